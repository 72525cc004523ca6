"""Collective operations over a small live lab: right sums everywhere, also while a cable is cut."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pillarbox.experiments.lab.traffic.collective_tool import Collective
from pillarbox.experiments.models.workloads.collectives.plan import plan_for
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED, Sending
from pillarbox.experiments.models.workloads.workload import Workload
from tests.experiments.labs import WAIT_S, lab_of, wait_until

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = pytest.mark.root

RATE_MBIT = 40.0


def begun(lab: Lab, operation: str, algorithm: str, size: int) -> Collective:
    plan = plan_for(lab.topology, Workload(operation, size), algorithm, 1)
    made = Collective(lab, plan, Sending(timeout_s=WAIT_S), 1)
    made.prepare()
    made.start(time.monotonic() + 0.02)
    return made


@pytest.mark.parametrize(
    ("spec", "routing", "cases"),
    [
        ("bcube,2,1", "bcube", [("all-reduce", "bml"), ("broadcast", "trees")]),
        pytest.param(
            "dcell,2,1",
            "",
            [("all-reduce", "ring"), ("total-exchange", "at-once")],
            marks=pytest.mark.long,
        ),
        pytest.param(
            "tree,2,2",
            "",
            [("all-reduce", "parameter-server"), ("all-gather", "halving-doubling")],
            marks=pytest.mark.long,
        ),
    ],
)
def test_everybody_ends_with_the_right_numbers(
    spec: str, routing: str, cases: list[tuple[str, str]], tmp_path: Path
) -> None:
    with lab_of(spec, tmp_path, routing=routing, rate_mbit=RATE_MBIT, mtu=9000) as lab:
        for case in cases:
            with closing(begun(lab, *case, 200_000)) as made:
                wait_until(made.ended, "the operation comes to an end")
                results, steps = made.results(), made.steps()
            assert {(one.status, one.reason) for one in results} == {(COMPLETED, "")}
            delivered = sum(one.delivered_bytes for one in results)
            assert delivered == sum(one.volume_bytes for one in steps)
            assert all(one.ready_s <= one.begin_s <= one.end_s for one in steps)  # type: ignore[operator]


def test_sums_are_right_though_a_cable_is_cut_meanwhile(tmp_path: Path) -> None:
    with (
        lab_of("bcube,2,1", tmp_path, rate_mbit=RATE_MBIT, mtu=9000) as lab,
        closing(begun(lab, "all-reduce", "ring", 1_000_000)) as made,
    ):
        wait_until(lambda: made.progress()[0].delivered_bytes, "bytes go from 0.0 to 0.1")
        lab.cut(0, lab.topology.server_plug(0, 0).node)
        wait_until(made.ended, "the operation comes to an end")
        results = made.results()
    assert {(one.status, one.reason) for one in results} == {(COMPLETED, "")}


@pytest.mark.long
def test_a_server_that_dies_ends_it_for_all(tmp_path: Path) -> None:
    with (
        lab_of("tree,2,2", tmp_path, rate_mbit=RATE_MBIT) as lab,
        closing(begun(lab, "all-reduce", "ring", 20_000_000)) as made,
    ):
        wait_until(lambda: made.progress()[0].delivered_bytes, "bytes go from 0.0 to 0.1")
        lab.kill(2)
        wait_until(made.ended, "the operation is broken off")
        results, steps = made.results(), made.steps()
    assert {one.status for one in results} == {FAILED}
    assert any(one.reason == "server 1.0 died" for one in results)
    assert any("broken off" in one.reason for one in results)
    assert any(one.end_s is None for one in steps)
