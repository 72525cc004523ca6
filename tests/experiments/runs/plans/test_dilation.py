"""Dilated experiments: systems and faults of the plan, and what is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pillarbox.experiments.lab.traffic import tools
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.dilation import dilated
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, FaultRate, System
from pillarbox.experiments.runs.plans.experiment_checks import check_experiment
from pillarbox.topos.base.errors import InvalidValueError, PillarboxError, UnsupportedError

A = System("bcube,2,1", label="A", rate_mbit=10)
B = System("tree,2,1", label="B", rate_mbit=20, delay="1ms")
WORKLOAD = Workload(duration_s=2.0, congestion="reno")
PLAN = Experiment("plan", "", (A, B), WORKLOAD)


def test_each_system_runs_at_the_own_rate_with_two_dilations() -> None:
    found, left_out = dilated(PLAN, 1000)
    assert left_out == []
    assert [(one.name, one.dilation, one.rate_mbit) for one in found.systems] == [
        ("A", 100, 1000),
        ("B", 50, 1000),
        ("A, 200 times slower", 200, 1000),
        ("B, 100 times slower", 100, 1000),
    ]
    assert found.systems[1].delay == "1ms"  # delays are the network's own
    # 3 ms of the lab's rate, the same bytes at both dilations
    assert [one.catch_up for one in found.systems] == ["0.03ms", "0.06ms"] * 2
    check_experiment(found)


def test_faults_of_a_system_apply_to_both_dilations() -> None:
    faults = (FaultAt("cut h0-s0 at 1", systems=("B",)), FaultAt("cut h0-s0 at 1.5"))
    found, _ = dilated(replace(PLAN, faults=faults), 1000)
    assert [one.systems for one in found.faults] == [("B", "B, 100 times slower"), ()]


@pytest.mark.parametrize(
    ("system", "workload", "plan", "reason"),
    [
        ({"tcp": "cubic"}, {}, {}, "congestion control cubic"),
        ({}, {"congestion": "bbr"}, {}, "congestion control bbr"),
        ({"tcp": "delay"}, {}, {}, "congestion control delay"),
        ({"queue": "codel"}, {}, {}, "queue codel"),
        ({"transport": "mptcp"}, {}, {}, "Multipath TCP"),
        ({"switches": "learning"}, {}, {}, "Open vSwitch"),
        ({"machines": 2}, {}, {}, "one machine"),
        ({"tool": "iperf3"}, {}, {}, "iperf3"),
        ({}, {"tool": "iperf3"}, {}, "iperf3"),
        ({}, {}, {"log_packets": True}, "log of packets"),
        ({}, {}, {"faults": (FaultAt("flap h0-s0 0.5 at 1"),)}, "flap"),
        ({}, {}, {"faults": (FaultRate("reorder 2", 60.0, 0.5),)}, "reorder 2"),
    ],
)
def test_what_cannot_be_dilated_is_refused_by_name(
    system: dict[str, Any], workload: dict[str, Any], plan: dict[str, Any], reason: str
) -> None:
    refused = replace(A, **system)
    made = replace(PLAN, systems=(refused,), workload=replace(WORKLOAD, **workload), **plan)
    with pytest.raises(UnsupportedError, match=f"no system of plan can be dilated: .*{reason}"):
        dilated(made, 1000)
    if system:  # the other system remains
        others = replace(refused, label="C"), B
        found, (sentence,) = dilated(replace(made, systems=(refused, *others)), 1000)
        assert [one.name for one in found.systems] == ["B", "B, 100 times slower"]
        assert sentence.startswith("systems left out: A; C (") and reason in sentence
    written = replace(made, systems=(replace(refused, dilation=10),))
    with pytest.raises(PillarboxError, match=reason):
        check_experiment(written)


@pytest.mark.parametrize("control", ["reno", "dctcp", "scalable", "mine.bpf.c"])
def test_controls_without_seconds_and_files_are_dilated(control: str) -> None:
    found, _ = dilated(replace(PLAN, systems=(replace(A, tcp=control),)), 1000)
    assert len(found.systems) == 2


def test_a_kernel_without_a_sysctl_of_timeouts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tools.TIMES, "net/ipv4/tcp_none_such_us", 1)
    with pytest.raises(UnsupportedError, match=r"this kernel has no net\.ipv4\.tcp_none_such_us"):
        dilated(PLAN, 1000)


def test_the_own_rate_is_above_the_labs() -> None:
    assert dilated(PLAN, 20.1)[0].systems[1].dilation == pytest.approx(1.005)
    with pytest.raises(PillarboxError, match="cables of B have 20 Mbit/s in the lab"):
        dilated(PLAN, 20)
    assert dilated(replace(PLAN, systems=(A,)), 1000)[0].systems[1].dilation == 200
    with pytest.raises(PillarboxError, match="at most 100 times"):
        dilated(replace(PLAN, systems=(A,)), 1001)
    with pytest.raises(PillarboxError, match="A has a dilation"):
        dilated(replace(PLAN, systems=(replace(A, dilation=2),)), 1000)
    with pytest.raises(PillarboxError, match="A has no rate"):
        dilated(replace(PLAN, systems=(replace(A, rate_mbit=None),)), 1000)


@pytest.mark.parametrize(
    ("dilation", "valid"), [(1, True), (200, True), (0.5, False), (201, False)]
)
def test_a_dilation_has_bounds(dilation: float, valid: bool) -> None:
    made = replace(PLAN, systems=(replace(A, dilation=dilation),))
    if valid:
        check_experiment(made)
    else:
        with pytest.raises(InvalidValueError, match="1 to 200 times slower"):
            check_experiment(made)
