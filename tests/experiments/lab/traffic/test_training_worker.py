"""The collective worker runs training iterations: computations are waits, data is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from pillarbox import topos
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
from tests.experiments.lab.traffic.test_collective_worker import done, loop_of
from tests.experiments.models.workloads.training.drawn_trace import drawn_trace

NETWORK = "tree,8,1"


def planned(trace: Trace) -> IterationPlan:
    check_trace(trace)
    return iteration_plan(topos.parse(NETWORK), trace, range(len(trace.ranks)))


@pytest.mark.parametrize(
    "trace",
    [
        drawn_trace(),
        Transformer(
            tp=2, pp=2, dp=2, ep=2, experts=2, hidden=64, sequence=32, tflops=0.001
        ).trace(),
        # Rank 0's experts process nearly all tokens: some parts of exchanges have no bytes.
        Transformer(
            dp=4, ep=4, experts=4, top_k=1, gate=(0.9, 0.1, 0.0, 0.0), hidden=64, sequence=32
        ).trace(),
    ],
)
def test_steps_end_in_the_order_of_dependencies(trace: Trace, tmp_path: Path) -> None:
    plan = planned(trace)
    reasons, cost = done(loop_of(plan, tmp_path, NETWORK))
    assert set(reasons) == {""}
    moments = cost["transfers"]
    running: dict[int, float] = {}
    for (ready_s, begin_s, end_s), one in zip(moments, plan.graph.transfers, strict=True):
        assert ready_s <= begin_s <= end_s
        assert all(moments[other][2] <= ready_s for other in one.after)
        if one.sender == one.receiver:
            assert end_s == pytest.approx(begin_s + one.lasts_s, abs=2e-6)
    # A processor runs one computation at a time.
    order = sorted(plan.processors, key=lambda number: moments[number][1])
    for number in order:
        processor = plan.processors[number]
        assert running.get(processor, 0.0) <= moments[number][1] + 2e-6
        running[processor] = moments[number][2]


def test_the_last_computation_ends_after_all_flows(tmp_path: Path) -> None:
    """Neither the loop nor the flow that is reported as running ends before it."""
    send = TraceNode(0, "", SEND, peer=1, size_bytes=4)
    receive = TraceNode(0, "", RECEIVE, peer=0, size_bytes=4)
    plan = planned(Trace(((send,), (receive, TraceNode(1, "", COMPUTE, (0,), 200_000)))))
    loop = loop_of(plan, tmp_path, NETWORK)
    ended: list[int] = []
    end_computation = loop._end_computation

    def observed(*arguments: object) -> None:
        ended.append(loop._ended[0])
        end_computation(*arguments)  # type: ignore[arg-type]

    loop._end_computation = observed  # type: ignore[method-assign]
    reasons, cost = done(loop)
    assert reasons == [""]
    assert ended == [0]
    assert loop._ended[0] == 1
    arrived = cost["transfers"][0][2]
    assert max(end_s for _, _, end_s in cost["transfers"]) == pytest.approx(arrived + 0.2, abs=1e-4)


def test_a_broken_connection_ends_the_iteration(tmp_path: Path) -> None:
    """Steps that cannot run any more do not keep the loop alive."""
    loop = loop_of(planned(drawn_trace()), tmp_path, NETWORK)
    loop.connections[0].fail("no answer")
    loop._abort_others(loop.connections[0])
    reasons, cost = done(loop)
    assert all(reasons)
    assert None in [end_s for _, _, end_s in cost["transfers"]]
