"""A file over the cables of a small live lab: whole everywhere, over the plan's own cables only."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pillarbox.experiments.lab.traffic.file_distribution import FileDistributionTool, plan_for
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED, Sending
from pillarbox.experiments.models.workloads.workload import Workload
from tests.experiments import labs
from tests.experiments.labs import WAIT_S

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = pytest.mark.root

RATE_MBIT = 20.0
SIZE = 600_000
lab_of = partial(labs.lab_of, rate_mbit=RATE_MBIT, timers="paper")


def distributed(lab: Lab, pattern: str, size_bytes: int = SIZE) -> FileDistributionTool:
    workload = Workload(pattern, size_bytes, options={"distribute": True})
    plan = plan_for(lab.topology, workload, 1)
    made = FileDistributionTool(lab, plan, size_bytes, Sending(timeout_s=WAIT_S), 1)
    made.prepare()
    made.start(time.monotonic() + 0.02)
    return made


def wait(made: FileDistributionTool) -> None:
    deadline = time.monotonic() + 2 * WAIT_S
    while not made.ended():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("spec", "routing", "pattern", "hops"),
    [
        ("bcube,2,1", "bcube", "one-to-all", 6),
        ("bcube,2,1", "bcube", "one-to-several", 6),
        ("tree,2,2", "", "one-to-all", 3),
        ("dcell,2,1", "", "one-to-several", 2),
    ],
)
def test_everybody_has_the_whole_file(
    spec: str, routing: str, pattern: str, hops: int, tmp_path: Path
) -> None:
    with lab_of(spec, tmp_path, routing=routing) as lab, closing(distributed(lab, pattern)) as made:
        wait(made)
        results, received = made.results(), made.receipts
    assert len(results) == hops
    assert [(one.status, one.reason) for one in results] == [(COMPLETED, "")] * hops
    assert set(received) == set(made.plan.receivers)
    assert all(receipt.unchanged for receipt in received.values())
    last_s = max(receipt.moment_s or 0.0 for receipt in received.values())
    assert last_s == max(one.end_s or 0.0 for one in results)
    # No sooner than the cables allow, each of which carries a tree's part once.
    assert last_s > SIZE / len(made.plan.trees) * 8 / (RATE_MBIT * 1e6)
    for one in results:
        assert sum(row.delivered_bytes for row in one.intervals) == one.delivered_bytes


def test_only_the_cables_of_the_plan_carry_the_file(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path, routing="bcube") as lab:
        before = lab.fabric.bytes_sent()
        with closing(distributed(lab, "one-to-several")) as made:
            wait(made)
            assert all(receipt.unchanged for receipt in made.receipts.values())
        sent = {name: count - before[name] for name, count in lab.fabric.bytes_sent().items()}
        planned = {
            lab.topology.interface(sender, port)
            for tree in made.plan.trees
            for sender, receiver in tree
            for port in range(lab.topology.ports)
            if receiver in lab.topology.peers(sender, port)
        }
    part = SIZE // 2
    assert {name for name, count in sent.items() if count > part} == planned
    # Everything else is acknowledgements and heartbeats.
    assert all(count < part / 3 for name, count in sent.items() if name not in planned)


def test_a_server_that_dies_strands_only_those_behind_it(tmp_path: Path) -> None:
    with (
        lab_of("tree,2,2", tmp_path) as lab,
        closing(distributed(lab, "one-to-all", 10 * SIZE)) as made,
    ):
        deadline = time.monotonic() + WAIT_S
        while not made.progress()[1].delivered_bytes:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        lab.kill(2)
        wait(made)
        results, received = made.results(), made.receipts
    assert [one.status for one in results] == [COMPLETED, FAILED, FAILED]
    assert results[1].reason == "server 1.0 died"
    assert results[2].reason == "the relay server 1.0 had no more to pass on"
    assert [received[server].unchanged for server in (1, 2, 3)] == [True, False, False]
    assert received[2].moment_s is None
