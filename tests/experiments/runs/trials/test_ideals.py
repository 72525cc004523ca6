"""The ideal of a trial is not exceeded: flows end at different times, and their paths move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.ideal import header_efficiency
from pillarbox.experiments.models.workloads.flows import COMPLETED, Flow, FlowResult, Interval
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.plans.trials import Trial
from pillarbox.experiments.runs.trials import ideals, recorded_paths
from pillarbox.experiments.runs.trials.order import FlowPathsAtTime, TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.outcome import outcome
from pillarbox.experiments.runs.trials.recorded_paths import PathSampler
from pillarbox.hosts.base.failures import NONE, Failures, parse_failures
from tests.experiments.runs.seen import SEEN

CUBE = topos.parse("bcube,2,1")
CABLE_BPS = 1e7 * header_efficiency(36, 9000)
SYSTEM = System(CUBE.spec, routing="bsr", rate_mbit=10.0, mtu=9000)
OVER_01, OVER_10 = ("0.0", "0.1", "1.1"), ("0.0", "1.0", "1.1")


def measured(
    workload: Workload, flows: list[tuple[Flow, list[float]]], **more: Any
) -> dict[str, Any]:
    """Return the record of flows that had these shares of a cable, each for a second."""
    results = []
    for flow, shares in flows:
        rows = [
            Interval(float(at), at + 1.0, round(share * CABLE_BPS / 8))
            for at, share in enumerate(shares)
        ]
        delivered = sum(row.delivered_bytes for row in rows)
        end_s = float(len(rows))
        results.append(
            FlowResult(flow, "fake", COMPLETED, "", 0.0, end_s, delivered, intervals=rows)
        )
    order = TrialOrder(Trial(0, SYSTEM, 0, 1), workload, tuple(r.flow for r in results), ())
    given = {"paths": ((),) * len(results), "back": ((),) * len(results), **more}
    found = TrialMeasurements(
        routing="bsr", plane="python", tool="fake", tool_versions={}, began={},
        results=tuple(results), events=(), lab={}, log=(),
        readings=replace(SEEN, duration_s=max(r.end_s or 0.0 for r in results), rate_bps=1e7),
        **given,
    )  # fmt: skip
    return outcome(order, found).record


LASTING = Workload("one-to-one", duration_s=4.0)
# Two flows between the same servers, which share their cables until one of them has moved.
PAIR = [(Flow(number, 0, 3, duration_s=4.0), [0.5, 0.5, 1.0, 1.0]) for number in range(2)]
BOTH_ONE_WAY, APART = (OVER_01, OVER_01), (OVER_01, OVER_10)


def of_ideal(record: dict[str, Any]) -> float:
    return float(record["goodput_bps"] / record["ideal_bps"])


def test_paths_that_move_are_followed() -> None:
    """With the paths of the end alone, or of the begin alone, the ideal would be another."""
    samples = [FlowPathsAtTime(at_s, BOTH_ONE_WAY, NONE) for at_s in (0.0, 1.0, 2.0)]
    known = (*samples, FlowPathsAtTime(2.0, APART, NONE))
    record = measured(LASTING, PAIR, sampled=known, paths=APART)
    assert of_ideal(record) == pytest.approx(1.0, abs=1e-3)
    assert record["valid"], record["verdict"]
    steps = dict(record["ideal_steps"])
    assert steps[0.0] == pytest.approx(CABLE_BPS, rel=1e-3)
    assert steps[3.0] == pytest.approx(2 * CABLE_BPS, rel=1e-3)


def test_the_moment_of_a_move_need_not_be_known() -> None:
    sampled = FlowPathsAtTime(0.0, BOTH_ONE_WAY, NONE), FlowPathsAtTime(3.0, APART, NONE)
    record = measured(LASTING, PAIR, sampled=sampled, paths=APART)
    assert 0.8 < of_ideal(record) <= 1.001
    back = measured(
        LASTING, [(flow, shares[::-1]) for flow, shares in PAIR],
        sampled=(FlowPathsAtTime(0.0, APART, NONE), FlowPathsAtTime(1.0, APART, NONE)),
        paths=BOTH_ONE_WAY,
    )  # fmt: skip
    assert 0.8 < of_ideal(back) <= 1.001


def test_more_than_the_paths_carry_is_not_valid() -> None:
    record = measured(LASTING, PAIR, paths=BOTH_ONE_WAY)  # nobody has seen that one moved
    assert of_ideal(record) == pytest.approx(1.5, abs=1e-2)
    assert not record["valid"]
    assert "more than 1.03: the cables cannot carry that" in record["verdict"]["reasons"][0]


def test_flows_that_end_early_leave_their_cables_to_others() -> None:
    first, second = (Flow(number, 0, 3, duration_s=4.0) for number in range(2))
    flows = [(first, [0.5, 0.5]), (second, [0.5, 0.5, 1.0, 1.0])]
    record = measured(LASTING, flows, paths=BOTH_ONE_WAY)
    assert of_ideal(record) == pytest.approx(1.0, abs=1e-3)
    assert {bps for _, bps in record["ideal_steps"]} == {float(f"{CABLE_BPS:.4g}")}


def test_volumes_end_when_the_busiest_cable_has_carried_them() -> None:
    volume = round(CABLE_BPS / 8)
    flows = [
        (Flow(0, 0, 3, volume), [0.5, 0.5]),
        (Flow(1, 0, 3, volume), [0.25, 0.25, 0.25, 0.25]),
    ]
    record = measured(Workload("one-to-one", volume_bytes=volume), flows, paths=BOTH_ONE_WAY)
    assert record["ideal_s"] == pytest.approx(2.0, rel=1e-3)
    assert of_ideal(record) == pytest.approx(0.5, rel=1e-3)
    late = next(bps for at_s, bps in record["ideal_steps"] if at_s > 2)
    assert late == pytest.approx(CABLE_BPS, rel=1e-3)  # the other flow has ended


class FakeLab:
    """A lab whose failures and paths a test sets."""

    topology, relays, dead = CUBE, True, frozenset[int]()

    def __init__(self) -> None:
        self.now = NONE
        self.asked = 0

    def failures(self) -> Failures:
        return self.now


def test_paths_are_sampled_before_and_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    lab, flows = FakeLab(), [Flow(0, 0, 3, duration_s=9.0)]
    used = OVER_01

    def live_paths(lab: FakeLab, flows: object) -> tuple[object, object]:
        lab.asked += 1
        return (used,), ((),)

    monkeypatch.setattr(recorded_paths, "live_paths", live_paths)
    sampler = PathSampler(lab, flows)  # type: ignore[arg-type]
    for now_s in (-0.1, 0.0, 0.5, 0.95):
        sampler.look(now_s)
    assert lab.asked == 1
    lab.now, used = parse_failures(CUBE, ["kill 0.1"]), OVER_10
    for now_s in (1.2, 1.5, 1.71, 2.5, 2.72):
        sampler.look(now_s)
    assert [(one.at_s, one.paths) for one in sampler.samples] == [
        (0.0, (OVER_01,)), (1.2, (OVER_01,)), (1.71, (OVER_10,)), (2.72, (OVER_10,))
    ]  # fmt: skip
    nobody = PathSampler(lab, ())  # type: ignore[arg-type]
    nobody.look(5.0)
    assert (nobody.samples, lab.asked) == ([], 3)


def test_equal_samples_compute_their_paths_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []

    def counted_paths_of(*arguments: Any) -> Any:
        computed.append(arguments[3:])
        return recorded_paths.paths_of(*arguments)

    monkeypatch.setattr(ideals, "paths_of", counted_paths_of)
    cut = parse_failures(CUBE, ["cut 0.0-s0"])
    samples = [FlowPathsAtTime(at / 4, APART, cut if at in (4, 5, 6) else NONE) for at in range(12)]
    measured(LASTING, PAIR, sampled=tuple(samples), paths=APART)
    assert computed == [(APART, cut)]
