"""Lower bound of an iteration: its chain of steps, a server's data, and a processor's work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.fluid.ideal import goodput_share
from pillarbox.experiments.models.fluid.iteration import simulated_moments
from pillarbox.experiments.models.workloads.training.bound import iteration_bound_s
from pillarbox.experiments.models.workloads.training.iteration_plan import iteration_plan
from pillarbox.experiments.models.workloads.training.trace import (
    COMPUTE,
    RECEIVE,
    SEND,
    Trace,
    TraceNode,
)
from pillarbox.experiments.models.workloads.training.transformer import Transformer
from tests.experiments.models.workloads.training.drawn_trace import drawn_time_s, drawn_trace

PORT_BPS = 8e6


def bound_s(ranks: list[list[TraceNode]], network: str = "tree,4,1") -> float:
    topology = topos.parse(network)
    trace = Trace(tuple(map(tuple, ranks)))
    return iteration_bound_s(topology, iteration_plan(topology, trace, range(len(ranks))), PORT_BPS)


def sends(number: int, peer: int, *after: int) -> TraceNode:
    return TraceNode(number, "", SEND, after, size_bytes=1_000_000, peer=peer)


def receives(number: int, peer: int, *after: int) -> TraceNode:
    return TraceNode(number, "", RECEIVE, after, size_bytes=1_000_000, peer=peer)


def test_chain_of_steps() -> None:
    """A computation of half a second, a message of 1 s, and one back."""
    compute = TraceNode(0, "", COMPUTE, (), 500_000)
    chain = [[compute, sends(1, 1, 0), receives(2, 1)], [receives(0, 0), sends(1, 0, 0)]]
    assert bound_s(chain) == pytest.approx(2.5)
    assert bound_s(chain, "bcube,2,1") == pytest.approx(1.5)


def test_a_server_sends_and_receives_all_its_data() -> None:
    out = [[sends(0, 1), sends(1, 2), sends(2, 3)], *([receives(0, 0)] for _ in range(3))]
    into = [[receives(at, at + 1) for at in range(3)], *([sends(0, 0)] for _ in range(3))]
    assert bound_s(out) == pytest.approx(3)
    assert bound_s(into) == pytest.approx(3)


def test_a_processor_computes_one_step_after_another() -> None:
    steps = [TraceNode(at, "", COMPUTE, (), 400_000) for at in range(3)]
    assert bound_s([steps, []]) == pytest.approx(1.2)


def test_drawn_trace_meets_its_bound() -> None:
    network = topos.parse("tree,4,1")
    plan = iteration_plan(network, drawn_trace(), range(4))
    assert iteration_bound_s(network, plan, PORT_BPS) == pytest.approx(drawn_time_s(8e6, 8e6))


@settings(max_examples=15)
@given(
    st.sampled_from(["tree,4,4", "bcube,4,1", "dcell,4,1", "mesh,4,4", "fattree,4"]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2]),
)
def test_no_simulated_iteration_is_faster(spec: str, tp: int, pp: int) -> None:
    network = topos.parse(spec)
    model = Transformer(tp=tp, pp=pp, dp=3, layers=2, hidden=32, sequence=16, micro_batches=2)
    plan = iteration_plan(network, model.trace(), range(model.ranks))
    took_s = max(one.end_s for one in simulated_moments(network, plan, "", 1e7, 9000))
    least_s = iteration_bound_s(network, plan, 1e7 * goodput_share(network, "", 9000))
    assert 0 < least_s <= took_s * (1 + 1e-9)
