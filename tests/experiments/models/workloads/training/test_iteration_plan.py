"""Traces as graphs of transfers and local steps: bytes, dependencies and data."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.workloads.collectives import plan as collective_plans
from pillarbox.experiments.models.workloads.training import iteration_plan as plans
from pillarbox.experiments.models.workloads.training.iteration_plan import (
    JOIN,
    IterationPlan,
    iteration_plan,
)
from pillarbox.experiments.models.workloads.training.trace import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    Trace,
    TraceNode,
    check_trace,
)
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.models.workloads.collectives.sum_checks import transfer_graph_errors
from tests.experiments.models.workloads.training.drawn_trace import (
    ALL_REDUCE_BYTES,
    MESSAGE_BYTES,
    drawn_trace,
)

TREE = topos.parse("tree,8,1")


def planned(
    ranks: tuple[tuple[TraceNode, ...], ...],
    groups: Mapping[str, tuple[int, ...]] | None = None,
    algorithm: str = "",
) -> IterationPlan:
    trace = Trace(ranks, groups or {})
    check_trace(trace)
    return iteration_plan(TREE, trace, range(len(ranks)), algorithm)


def collective(operation: str, size: int, **values: int) -> TraceNode:
    return TraceNode(0, "", COLLECTIVE, size_bytes=size, operation=operation, **values)  # type: ignore[arg-type]


def ancestors(plan: IterationPlan, step: int) -> set[int]:
    found, left = set(), [step]
    while left:
        for other in plan.graph.transfers[left.pop()].after:
            if other not in found:
                found.add(other)
                left.append(other)
    return found


def test_drawn_trace() -> None:
    plan = planned(drawn_trace().ranks, drawn_trace().groups)
    assert plan.bytes_by_label() == {"all-reduce": 6 * ALL_REDUCE_BYTES, "send": 4 * MESSAGE_BYTES}
    assert len(plan.tasks) == 20
    assert sum(queue >= len(plan.pairs) for queue in plan.flow_of) == 8  # computations
    assert sum(flow.volume_bytes or 0 for flow in plan.live_flows()) == sum(plan.volumes)


def test_steps_are_after_those_that_they_need() -> None:
    plan = planned(drawn_trace().ranks, drawn_trace().groups)
    for number, one in enumerate(plan.graph.transfers):
        assert all(other < number for other in one.after)


@pytest.mark.parametrize("algorithm", ["", "ring", "bcube", "halving-doubling"])
def test_no_transfer_of_a_collective_begins_before_its_two_ranks(algorithm: str) -> None:
    """Whatever the order of the algorithm, both ends have begun the operation."""
    node = {"size_bytes": 4096, "operation": "all-reduce"}
    ranks = tuple(
        (
            TraceNode(0, "", COMPUTE, (), 10),
            TraceNode(1, "", COLLECTIVE, (0,), **node),  # type: ignore[arg-type]
            TraceNode(2, "", COMPUTE, (1,), 10),
        )
        for _ in range(8)
    )
    plan = planned(ranks, algorithm=algorithm)
    first = {task.place.rank: task.last for task in plan.tasks if task.place.position == 0}
    last = {task.place.rank: task.first for task in plan.tasks if task.place.position == 2}
    moving = [at for at, one in enumerate(plan.graph.transfers) if one.sender != one.receiver]
    for number in moving:
        one = plan.graph.transfers[number]
        assert {first[one.sender], first[one.receiver]} <= ancestors(plan, number)
    for rank, step in last.items():
        own = {n for n in moving if rank in plan.graph.transfers[n][:2]}
        assert own <= ancestors(plan, step)


# Bytes that an operation among g ranks sends in total, by the size of a rank's data before it.
SENT = {
    "all-reduce": lambda g, size: 2 * (g - 1) * size,
    "reduce-scatter": lambda g, size: (g - 1) * size,
    "all-gather": lambda g, size: g * (g - 1) * size,
    "total-exchange": lambda g, size: (g - 1) * size,
    "broadcast": lambda g, size: (g - 1) * size,
    "reduce": lambda g, size: (g - 1) * size,
    "gather": lambda g, size: (g - 1) * size,
    "scatter": lambda g, size: (g - 1) * size // g,
    "barrier": lambda g, size: 0,
}


@pytest.mark.parametrize(("operation", "ranks"), list(product(SENT, (1, 2, 4, 5))))
def test_bytes_and_data_of_operations(operation: str, ranks: int) -> None:
    size = 240
    plan = planned(((collective(operation, size, root=ranks - 1),),) * ranks)
    assert sum(plan.volumes) == SENT[operation](ranks, size)
    # Local steps carry no chunks.
    errors = [
        one
        for one in transfer_graph_errors(plan.graph)
        if "to itself" not in one and "do not exist" not in one
    ]
    assert errors == []


@given(st.sampled_from(sorted(SENT)), st.integers(1, 6), st.integers(0, 99))
def test_any_size(operation: str, ranks: int, size: int) -> None:
    """Sizes below one element per part leave parts without bytes, which no connection carries."""
    plan = planned(((collective(operation, size),),) * ranks)
    assert all(
        (volume > 0) == (one.sender != one.receiver)
        for volume, one in zip(plan.volumes, plan.graph.transfers, strict=True)
    )
    assert plan.size_bytes % 4 == 0
    if operation == "all-reduce":
        assert sum(plan.volumes) == 2 * (ranks - 1) * -(-size // 4) * 4


def test_a_rank_computes_on_accelerator_and_cpu() -> None:
    nodes = tuple(TraceNode(n, "", COMPUTE, (), 5, on_cpu=n == 1) for n in range(3))
    plan = planned((nodes, (TraceNode(0, "", COMPUTE, (), 0),)))
    assert plan.flow_of == (0, 1, 0, JOIN)
    assert plan.queues == 4
    with pytest.raises(PillarboxError, match="sends no bytes between servers"):
        plan.live_flows()


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    send = TraceNode(0, "", SEND, peer=1, size_bytes=1000)
    receive = TraceNode(0, "", RECEIVE, peer=0, size_bytes=1000)
    plan = planned(((send,), (receive,)))
    assert plan.memory_bytes == 2000
    monkeypatch.setattr(plans, "MOST_BYTES", 2000)
    plan.live_flows()
    monkeypatch.setattr(plans, "MOST_BYTES", 1999)
    with pytest.raises(PillarboxError, match="choose a smaller model"):
        plan.live_flows()


def test_number_of_steps_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = tuple(TraceNode(n, "", COMPUTE, (), 5) for n in range(3))
    monkeypatch.setattr(plans, "MOST_SENT", 3)
    planned((nodes,))
    monkeypatch.setattr(plans, "MOST_SENT", 2)
    with pytest.raises(PillarboxError, match="choose fewer ranks, layers or micro-batches"):
        planned((nodes,))


def test_unknown_and_unfit_algorithms() -> None:
    ranks = ((collective("all-reduce", 64),),) * 3
    with pytest.raises(PillarboxError, match="no algorithm 'rign'"):
        planned(ranks, algorithm="rign")
    with pytest.raises(PillarboxError, match="takes a power of 2 as the number of ranks, not 3"):
        planned(ranks, algorithm="halving-doubling")


def test_collectives_alone_are_unchanged() -> None:
    """A plan of one collective operation has as many queues as flows."""
    from pillarbox.experiments.models.workloads.workload import Workload

    plan = collective_plans.plan_for(TREE, Workload("all-reduce", 800), "ring", 1)
    assert plan.queues == len(plan.flows()) == 8
