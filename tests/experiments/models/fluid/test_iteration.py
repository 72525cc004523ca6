"""A training iteration in the fluid model: the drawn trace takes exactly its time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.collective import transfer_end_times_s
from pillarbox.experiments.models.fluid.graphs import transfer_ends_s
from pillarbox.experiments.models.fluid.ideal import acknowledged_share, header_efficiency
from pillarbox.experiments.models.fluid.iteration import simulated_jobs, simulated_moments
from pillarbox.experiments.models.workloads.training.breakdown import iteration_times
from pillarbox.experiments.models.workloads.training.iteration_plan import iteration_plan
from pillarbox.experiments.models.workloads.training.jobs import Job, repeated, united
from pillarbox.experiments.models.workloads.training.trace import COMPUTE, Trace, TraceNode
from tests.experiments.models.workloads.training.drawn_trace import drawn_time_s, drawn_trace
from tests.experiments.models.workloads.training.test_jobs import message_trace

RATE_BPS, MTU = 50e6, 9000


def test_drawn_trace_with_headers_and_acknowledgements() -> None:
    """A message has a cable to itself; in the ring, acknowledgements share it with data.

    Ranks 1 to 3 begin the ring during the last message: their acknowledgements delay it a little.
    """
    network = topos.parse("tree,4,1")
    plan = iteration_plan(network, drawn_trace(), range(4))
    found = iteration_times(plan, simulated_moments(network, plan, "", RATE_BPS, MTU))
    message_bps = RATE_BPS * header_efficiency(0, MTU)
    ring_bps = message_bps / (1 + acknowledged_share(0, MTU) * header_efficiency(0, MTU))
    assert found.total_s == pytest.approx(drawn_time_s(message_bps, ring_bps), rel=5e-4)


def test_drawn_trace_without_acknowledgements() -> None:
    network = topos.parse("tree,4,1")
    plan = iteration_plan(network, drawn_trace(), range(4))
    moments = simulated_moments(network, plan, "", RATE_BPS, MTU, segments_per_ack=math.inf)
    bps = RATE_BPS * header_efficiency(0, MTU)
    total_s = iteration_times(plan, moments).total_s
    assert total_s == pytest.approx(drawn_time_s(bps, bps), rel=1e-9)


def test_drawn_trace_takes_exactly_its_time() -> None:
    """At 4.8 Mbit/s a message takes 1 s, and each of the ring's 6 steps 0.4 s."""
    plan = iteration_plan(topos.parse("tree,4,1"), drawn_trace(), range(4))
    ends = transfer_end_times_s(plan, lambda active: numpy.full(len(active), 4.8e6))
    assert ends.max() == pytest.approx(0.2 + 0.3 + 0.15 + 0.1 + 4 * 1 + 6 * 0.4, rel=1e-12)


def test_two_jobs_on_one_cable_take_exactly_twice_as_long() -> None:
    """Messages 0.0 to 1.0 and 0.1 to 1.1 share the cable of the first rack's switch.

    The third job's servers are below one switch; its message is half as long, twice.
    """
    network = topos.parse("tree,4,2")
    servers = [0, 4, 1, 5, 2, 3]
    traces = [(message_trace(1_000_000), 1)] * 2 + [(repeated(message_trace(500_000), 2), 2)]
    jobs = [Job(str(at), *one) for at, one in enumerate(traces)]
    trace, planned = united(jobs)
    plan = replace(iteration_plan(network, trace, servers), jobs=planned)
    alone = [
        replace(iteration_plan(network, job.trace, servers[2 * at :][:2]), jobs=planned[:1])
        for at, job in enumerate(jobs)
    ]
    moments = simulated_moments(network, plan, "", RATE_BPS, MTU)
    found = simulated_jobs(network, plan, moments, alone, "", RATE_BPS, MTU)
    second = 8e6 / (RATE_BPS * header_efficiency(0, MTU))
    assert [one.alone_s for one in found] == pytest.approx([second, second, second / 2], rel=1e-9)
    assert [one.slowdown for one in found] == pytest.approx([2.0, 2.0, 1.0], rel=1e-9)
    assert [one.together_s for one in found] == pytest.approx(
        [2 * second, 2 * second, second / 2], rel=1e-9
    )


def test_an_iteration_without_messages() -> None:
    network = topos.parse("tree,4,1")
    trace = Trace(((TraceNode(0, "", COMPUTE, (), 250_000),), ()))
    plan = iteration_plan(network, trace, range(2))
    found = iteration_times(plan, simulated_moments(network, plan, "", RATE_BPS, MTU))
    assert found.total_s == 0.25
    assert found.ranks[1].waits_for == ((0, 0.25),)


def test_steps_without_work_end_when_they_are_ready() -> None:
    """Step 2 joins both transfers, and step 3 follows the join immediately."""
    found = transfer_ends_s(
        numpy.array([1.0, 3.0, 0.0, 0.0, 2.0]),
        [0, 1, -1, -1, 0],
        [[], [], [0, 1], [2], [3]],
        2,
        lambda active: active * 1.0,
    )
    assert found.tolist() == [1.0, 3.0, 3.0, 3.0, 5.0]


def test_rates_of_flows_are_computed_once_per_set_of_senders() -> None:
    """Computations change no rate."""
    asked: list[bytes] = []

    def rates(active: numpy.ndarray) -> numpy.ndarray:
        asked.append(active.tobytes())
        return numpy.full(len(active), 1e6)

    plan = iteration_plan(topos.parse("tree,4,1"), drawn_trace(), range(4))
    transfer_end_times_s(plan, rates)
    assert len(asked) == len(set(asked))
