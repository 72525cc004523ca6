"""Parts of an iteration's time: they add up, and a wait has the rank that caused it."""

from __future__ import annotations

from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.fluid.collective import transfer_end_times_s
from pillarbox.experiments.models.fluid.iteration import simulated_moments
from pillarbox.experiments.models.workloads.training.breakdown import (
    IterationTimes,
    iteration_times,
    moments_of_ends,
    node_times_us,
)
from pillarbox.experiments.models.workloads.training.iteration_plan import (
    IterationPlan,
    iteration_plan,
)
from pillarbox.experiments.models.workloads.training.trace import (
    COMPUTE,
    RECEIVE,
    SEND,
    Trace,
    TraceNode,
    check_trace,
)
from pillarbox.experiments.models.workloads.training.transformer import Transformer
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.models.workloads.training.drawn_trace import drawn_trace

TREE = topos.parse("tree,8,1")
BYTES_PER_S = 1_000_000


def planned(trace: Trace) -> IterationPlan:
    check_trace(trace)
    return iteration_plan(TREE, trace, range(len(trace.ranks)))


def times_of(trace: Trace) -> IterationTimes:
    """Return the times of a trace when each flow has the rate BYTES_PER_S."""
    plan = planned(trace)
    ends = transfer_end_times_s(plan, lambda active: numpy.full(len(active), 8.0 * BYTES_PER_S))
    return iteration_times(plan, moments_of_ends(plan, ends))


def test_a_wait_for_the_other_rank() -> None:
    """Rank 1 waits 0.3 s for rank 0's computation, then 0.1 s of data, and computes 0.2 s."""
    found = times_of(
        Trace(
            (
                (
                    TraceNode(0, "", COMPUTE, (), 300_000),
                    TraceNode(1, "", SEND, (0,), peer=1, size_bytes=100_000),
                ),
                (
                    TraceNode(0, "", RECEIVE, (), peer=0, size_bytes=100_000),
                    TraceNode(1, "", COMPUTE, (0,), 200_000),
                ),
            )
        )
    )
    assert found.total_s == pytest.approx(0.6)
    first, second = found.ranks
    assert (first.compute_s, first.exposed_s, first.waiting_s) == pytest.approx((0.3, 0.1, 0.2))
    assert (second.compute_s, second.exposed_s, second.waiting_s) == pytest.approx((0.2, 0.1, 0.3))
    assert first.waits_for == ((1, pytest.approx(0.2)),)
    assert second.waits_for == ((0, pytest.approx(0.3)),)
    assert found.path_by_label() == pytest.approx({"compute": 0.5, "send": 0.1})
    assert [part.rank for part in found.path] == [0, 0, 1]


def test_communication_that_a_computation_hides_is_not_exposed() -> None:
    found = times_of(
        Trace(
            (
                (
                    TraceNode(0, "", SEND, (), peer=1, size_bytes=100_000),
                    TraceNode(1, "", COMPUTE, (), 60_000),
                ),
                (TraceNode(0, "", RECEIVE, (), peer=0, size_bytes=100_000),),
            )
        )
    )
    assert found.ranks[0].exposed_s == pytest.approx(0.04)
    assert found.ranks[1].exposed_s == pytest.approx(0.1)


def test_computations_of_a_processor_run_one_after_another() -> None:
    nodes = tuple(TraceNode(n, "", COMPUTE, (), 100_000, on_cpu=n == 3) for n in range(4))
    found = times_of(Trace((nodes,)))
    assert found.total_s == pytest.approx(0.3)
    assert [part.step for part in found.path] == [0, 1, 2]


def test_transfers_of_one_connection_run_one_after_another() -> None:
    """The second message waits for the first one, and begins when it has arrived."""
    sends = tuple(TraceNode(n, "", SEND, (), peer=1, size_bytes=100_000) for n in range(2))
    receives = tuple(TraceNode(n, "", RECEIVE, (), peer=0, size_bytes=100_000) for n in range(2))
    trace = Trace((sends, receives))
    found = times_of(trace)
    assert found.total_s == pytest.approx(0.2)
    plan = planned(trace)
    ends = transfer_end_times_s(plan, lambda active: numpy.full(len(active), 8.0 * BYTES_PER_S))
    assert node_times_us(plan, moments_of_ends(plan, ends))[0, 1] == (100_000, 100_000)


def test_drawn_critical_path() -> None:
    found = times_of(drawn_trace())
    computing = [part.rank for part in found.path if part.label == "compute"]
    sending = [part.rank for part in found.path if part.label == "send"]
    assert computing == sending == [0, 1, 2, 3]
    assert found.path[0].from_s == 0
    assert found.path[-1].until_s == found.total_s
    assert [rank for rank, _ in found.ranks[3].waits_for] == [1, 2, 0]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([(1, 1, 1), (2, 1, 2), (1, 4, 1), (2, 2, 2), (1, 2, 4), (4, 1, 2)]),
    st.integers(1, 3),
    st.booleans(),
)
def test_parts_add_up_and_the_path_has_no_gaps(
    ways: tuple[int, int, int], micro_batches: int, moe: bool
) -> None:
    tp, pp, dp = ways
    model = Transformer(
        tp=tp, pp=pp, dp=dp, ep=dp if moe else 1, experts=dp * 2 if moe else 0, layers=4,
        hidden=32, sequence=16, micro_batches=micro_batches, tflops=1e-5,
    )  # fmt: skip
    plan = planned(model.trace())
    found = iteration_times(plan, simulated_moments(TREE, plan, "", 1e7, 1500))
    assert len(found.ranks) == model.ranks
    for one in found.ranks:
        assert one.compute_s + one.exposed_s + one.waiting_s == pytest.approx(found.total_s)
        assert sum(waits_s for _, waits_s in one.waits_for) == pytest.approx(one.waiting_s)
        assert min(one.compute_s, one.exposed_s, one.waiting_s) >= -1e-12
    edges = [(part.from_s, part.until_s) for part in found.path]
    assert edges[0][0] == 0
    assert edges[-1][1] == found.total_s
    assert all(before[1] == after[0] for before, after in pairwise(edges))


def test_an_iteration_that_never_ends() -> None:
    plan = planned(drawn_trace())
    ends = transfer_end_times_s(plan, lambda active: numpy.zeros(len(active)))
    with pytest.raises(PillarboxError, match="has no path for a transfer"):
        moments_of_ends(plan, ends)
