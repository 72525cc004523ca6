"""The loop of a collective operation, over connections of this machine: real bytes, real sums."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.lab.traffic.collective_tool import Collective
from pillarbox.experiments.lab.traffic.collective_worker import (
    CollectiveLoop,
    TransferInProgress,
    initial_rank_data,
)
from pillarbox.experiments.lab.traffic.generator_worker import ServerDeathReader
from pillarbox.experiments.models.workloads.collectives.plan import CollectivePlan, plan_for
from pillarbox.experiments.models.workloads.flows import COMPLETED, Sending
from pillarbox.experiments.models.workloads.workload import Workload
from tests.experiments.lab.traffic.connections import board_of, connected

SEED = 7


def loop_of(
    plan: CollectivePlan, folder: Path, network: str, timeout_s: float = 20.0
) -> CollectiveLoop:
    """Return the loop of a plan; its task is the tool's own, without a lab."""
    topology = topos.parse(network)
    log = folder / "events.jsonl"
    log.touch()
    lab = SimpleNamespace(
        topology=topology, folder=folder, dead=set(), namespace_of=lambda server: -1
    )
    task = Collective(cast("Any", lab), plan, Sending(timeout_s=timeout_s), SEED)._task(
        plan.flows()
    )
    task["board"] = board_of(len(task["flows"]))
    connections = [connected(flow) for flow in plan.flows()]
    return CollectiveLoop(connections, task, ServerDeathReader(str(log), 0, task["names"]))


def done(
    loop: CollectiveLoop, before: Callable[[CollectiveLoop], object] = lambda loop: None
) -> tuple[list[str], dict[str, Any]]:
    """Return why flows failed, and the loop's cost."""
    before(loop)
    cost = loop.run(time.monotonic())
    for one in loop.connections:
        one.close()
    return [one.reason for one in loop.connections], cost


def planned(
    network: str, operation: str, algorithm: str, size: int, **options: object
) -> CollectivePlan:
    workload = Workload(operation, size, options=options)
    return plan_for(topos.parse(network), workload, algorithm, SEED)


@pytest.mark.parametrize(
    ("network", "operation", "algorithm", "size"),
    [
        ("bcube,3,1", "all-reduce", "bml", 1_000_003),
        ("bcube,2,1", "all-reduce", "ring", 3_000_001),
        ("tree,2,2", "all-reduce", "parameter-servers", 77_777),
        ("tree,2,2", "all-reduce", "halving-doubling", 77_777),
        ("bcube,3,1", "reduce-scatter", "bcube", 99_999),
        ("bcube,3,1", "all-gather", "bml", 99_999),
        ("dcell,2,1", "total-exchange", "pairwise", 600_000),
        ("bcube,2,1", "broadcast", "trees", 600_000),
    ],
)
def test_everybody_ends_with_the_right_numbers(
    network: str, operation: str, algorithm: str, size: int, tmp_path: Path
) -> None:
    plan = planned(network, operation, algorithm, size)
    loop = loop_of(plan, tmp_path, network)
    reasons, cost = done(loop)
    assert set(reasons) == {""}
    assert [one.delivered for one in loop.connections] == [f.volume_bytes for f in plan.flows()]
    for transfer, (ready_s, begin_s, end_s) in zip(
        plan.graph.transfers, cost["transfers"], strict=True
    ):
        assert ready_s <= begin_s <= end_s
        assert all(cost["transfers"][other][2] <= ready_s for other in transfer.after)
    # The sums, by hand: of the last rank's last chunk.
    rank = plan.graph.ranks - 1
    chunk = max(plan.graph.ends[rank])
    holders = [at for at, held in enumerate(plan.graph.begins) if chunk in held]
    size = plan.bytes_of_chunks(chunk)
    expected = sum(
        initial_rank_data(SEED, holder, chunk, size).astype(numpy.int64) for holder in holders
    )
    assert (
        loop._store.chunk_data(rank, chunk) == numpy.asarray(expected).astype(numpy.int32)
    ).all()


def test_an_uneven_exchange_ends_with_the_right_numbers(tmp_path: Path) -> None:
    plan = planned("tree,2,2", "total-exchange", "at-once", 400_000, skew=2.0)
    assert len(set(plan.volumes)) > 2
    loop = loop_of(plan, tmp_path, "tree,2,2")
    reasons, _ = done(loop)
    assert set(reasons) == {""}
    assert [one.delivered for one in loop.connections] == [f.volume_bytes for f in plan.flows()]


def test_one_wrong_bit_is_noticed_where_it_arrives(tmp_path: Path) -> None:
    def flip(loop: CollectiveLoop) -> None:
        loop._store.chunk_data(1, 0)[0] ^= 1 << 20

    reasons, _ = done(
        loop_of(planned("tree,2,2", "all-reduce", "ring", 4096), tmp_path, "tree,2,2"), flip
    )
    servers = ("0.0", "0.1", "1.0", "1.1")
    assert set(reasons) == {f"server {one} ended with wrong sums" for one in servers}


def test_what_is_added_twice_is_noticed(tmp_path: Path) -> None:
    def add(loop: CollectiveLoop) -> None:
        # a copy, the last to arrive at one rank
        cast("TransferInProgress", loop._steps[-1]).reduce = True

    loop = loop_of(planned("tree,2,2", "all-reduce", "ring", 4096), tmp_path, "tree,2,2")
    reasons, _ = done(loop, add)
    assert sum(reason != "" for reason in reasons) == 1


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_without_one_connection_all_is_broken_off(moment: str, tmp_path: Path) -> None:
    plan = planned("bcube,2,1", "all-reduce", "ring", 40_000_000)

    def close(loop: CollectiveLoop) -> None:
        receiver = loop.connections[1].receiver
        assert receiver is not None
        receiver.shutdown(socket.SHUT_RDWR)

    loop = loop_of(plan, tmp_path, "bcube,2,1")
    if moment == "before":
        loop.connections[1].fail("no answer")
        loop._abort_others(loop.connections[1])
    reasons, _ = done(loop, close if moment == "meanwhile" else lambda loop: None)
    assert all(reasons)
    assert all("broken off" in reason for at, reason in enumerate(reasons) if at != 1)


def test_what_does_not_end_in_time_says_how_far_it_came(tmp_path: Path) -> None:
    def hold(loop: CollectiveLoop) -> None:
        loop._steps[0].waits_for = 1

    loop = loop_of(planned("tree,2,2", "all-reduce", "ring", 4096), tmp_path, "tree,2,2", 0.2)
    reasons, _ = done(loop, hold)
    assert "no end within 0.2 s" in reasons[0]
    assert COMPLETED not in [loop.flow_result_fields(one)[0] for one in loop.connections]
