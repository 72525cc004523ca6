"""Slowdowns of millions of TCP flows, estimated by packet simulations of a smaller network.

The fluid model has each flow's share of its links at every moment, in the whole network, but no
packets. What packets add to it, queues, losses and windows that adapt, is the same in a smaller
network of the same kind under the same load, where a packet simulation is short. A flow's
completion time is estimated as ::

    ideal (ADR 26) + delay in the fluid model + excess of a similar flow of the smaller network

The excess is a flow's completion time in the packet simulation beyond the first two terms. Flows
are similar if their sizes, their slowdowns in the fluid model, and the numbers of links on their
paths that limit flows when they start are close. The first two determine the course of a large
flow, the third the queues that a small flow meets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy
from scipy.spatial import KDTree

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.arrivals.arrival_request import ArrivalRequest
from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    RANDOM,
    ArrivalSimulation,
    simulate,
)
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.fluid.unloaded_time import idle_network_completion_s, idle_paths
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.packets.tcp_arrivals import simulate_by_tcp
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

# Expected packet events: an acknowledgement for two data packets, retransmissions, timers.
EVENTS_PER_FLOW, RETRANSMITTED = 3, 1.07
SIMILAR = 32  # number of similar flows, of which one is drawn
# Weight of a limiting link: one more counts like a factor of e (2.7) in size or slowdown.
LIMITING_WEIGHT = 1.0


class FlowSamples(NamedTuple):
    """Results of the flows of one or several packet simulations."""

    volume_bytes: Ints
    limiting: Ints  # number of links on the path that limit flows at the flow's start
    fluid_slowdown: Floats
    excess_s: Floats  # completion time beyond the ideal and the delay in the fluid model
    simulations: int
    events: int  # number of packet events


def simulate_samples(
    request: ArrivalRequest,
    load: float,
    count: int,
    tcp: TcpParameters,
    *,
    most_samples: int,
    most_events: float,
    choice: str = RANDOM,
) -> FlowSamples:
    """Simulate flows of a small network packet by packet and as fluids, and compare them.

    Simulations with other random flows follow until there are enough samples or events.

    Parameters
    ----------
    request : ArrivalRequest
        The small network, and what its flows are like.
    load, count
        Load, and number of flows of a simulation (`ArrivalRequest.drawn`).
    tcp, choice
        Parameters of TCP, and choice of paths (`simulate_by_tcp`, `simulate`).
    most_samples : int
        Number of samples from which no further simulation begins.
    most_events : float
        Approximate upper bound for the number of packet events.
    """
    found: list[FlowSamples] = []
    events = samples = 0
    topology, routing = request.topology, request.routing
    seeds = numpy.random.default_rng([request.seed, count])
    while not found or (
        samples < most_samples and events * (len(found) + 1) / len(found) <= most_events
    ):
        seed = int(seeds.integers(1 << 31))
        fluid = simulate(
            topology,
            routing,
            *request.drawn(load, count, seed),
            request.cable_bps,
            choice=choice,
            seed=seed,
            records_limits=True,
        )
        if not found:
            _require_events(topology, fluid, tcp, most_events)
        found.append(flow_samples(topology, fluid, routing, tcp, seed))
        events += found[-1].events
        samples += len(found[-1].excess_s)
        require(
            samples > 0,
            f"no flow of {topology.spec} has paths in both directions: use another network",
        )
    return FlowSamples(
        volume_bytes=numpy.concatenate([one.volume_bytes for one in found]),
        limiting=numpy.concatenate([one.limiting for one in found]),
        fluid_slowdown=numpy.concatenate([one.fluid_slowdown for one in found]),
        excess_s=numpy.concatenate([one.excess_s for one in found]),
        simulations=len(found),
        events=events,
    )


def _require_events(
    topology: Topology, fluid: ArrivalSimulation, tcp: TcpParameters, most_events: float
) -> None:
    packets = -(-fluid.arrivals.volume_bytes // tcp.segment_bytes)
    sent = packets + (packets + 1) // 2  # data packets and acknowledgements
    on_links = float(sent @ numpy.diff(fluid.routes.starts))
    expected = on_links * RETRANSMITTED + EVENTS_PER_FLOW * len(packets)
    require(
        expected <= most_events,
        f"a packet simulation of {topology.spec} takes about {expected:.3g} events, more than "
        f"--events {most_events:.3g}: choose a smaller network, or allow more events",
    )


def flow_samples(
    topology: Topology, fluid: ArrivalSimulation, routing: str, tcp: TcpParameters, seed: int
) -> FlowSamples:
    """Return the excess of the flows of a fluid simulation, by a packet simulation of them."""
    by_packets = simulate_by_tcp(topology, fluid, routing, tcp, seed)
    took_s = by_packets.course.end_s - fluid.arrivals.start_s
    ideal_s, delay_s = _ideal_and_delay_s(topology, fluid, tcp)
    excess_s = took_s - ideal_s - delay_s
    sampled = fluid.counts & ~numpy.isnan(excess_s)
    return FlowSamples(
        volume_bytes=fluid.arrivals.volume_bytes[sampled],
        limiting=limiting_links(fluid.routes, fluid.course.limits)[sampled],
        fluid_slowdown=fluid.slowdown[sampled],
        excess_s=excess_s[sampled],
        simulations=1,
        events=by_packets.course.events,
    )


def estimate_tails(
    topology: Topology,
    fluid: ArrivalSimulation,
    tcp: TcpParameters,
    samples: FlowSamples,
    seed: int,
) -> ArrivalSimulation:
    """Return the fluid simulation with the excess of similar flows added to each flow's time.

    The fluid simulation must have recorded the links that limit flows. Slowdowns are relative to
    the same ideal as those of `simulate_by_tcp`.
    """
    has_path = numpy.diff(fluid.routes.starts) > 0
    excess_s = numpy.full(len(has_path), numpy.nan)
    excess_s[has_path] = drawn_excess_s(
        samples,
        fluid.arrivals.volume_bytes[has_path],
        limiting_links(fluid.routes, fluid.course.limits)[has_path],
        fluid.slowdown[has_path],
        numpy.random.default_rng([seed, len(samples.excess_s)]),
    )
    ideal_s, delay_s = _ideal_and_delay_s(topology, fluid, tcp)
    took_s = numpy.maximum(ideal_s + delay_s + excess_s, ideal_s)
    course = fluid.course._replace(end_s=fluid.arrivals.start_s + took_s, events=samples.events)
    return fluid._replace(course=course, slowdown=took_s / ideal_s)


def _ideal_and_delay_s(
    topology: Topology, fluid: ArrivalSimulation, tcp: TcpParameters
) -> tuple[Floats, Floats]:
    """Return each flow's ideal time, and its delay in the fluid model beyond its time alone."""
    paths, how = idle_paths(topology, fluid.routes), (tcp.rate_bps, tcp.mtu, tcp.header)
    ideal_s = idle_network_completion_s(fluid.arrivals.volume_bytes, paths, *how, tcp.delay_s)
    took_s = fluid.course.end_s - fluid.arrivals.start_s
    return ideal_s, took_s - took_s / fluid.slowdown


def limiting_links(routes: Routes, limits: Ints) -> Ints:
    """Return the number of links on each flow's path that limit flows (see `limits`).

    >>> limiting_links(Routes(numpy.array([0, 2, 2, 5]), numpy.arange(5)), numpy.ones(5)).tolist()
    [2, 0, 3]
    """
    before = numpy.concatenate([[0], numpy.cumsum(limits > 0)])
    found: Ints = before[routes.starts[1:]] - before[routes.starts[:-1]]
    return found


def drawn_excess_s(
    samples: FlowSamples,
    volume_bytes: Ints,
    limiting: Ints,
    fluid_slowdown: Floats,
    random: numpy.random.Generator,
) -> Floats:
    """Return for each flow the excess of a random one of the samples that are similar to it.

    >>> columns = (numpy.full(200, 1000), numpy.repeat([0, 1], 100), numpy.ones(200))
    >>> samples = FlowSamples(*columns, numpy.repeat([0.0, 5.0], 100), 1, 0)
    >>> flows = numpy.full(3, 1000), numpy.array([0, 1, 2]), numpy.ones(3)
    >>> drawn_excess_s(samples, *flows, numpy.random.default_rng(1)).tolist()
    [0.0, 5.0, 5.0]
    """
    sampled = _feature_points(
        samples.volume_bytes, samples.limiting, samples.fluid_slowdown, random
    )
    wanted = _feature_points(volume_bytes, limiting, fluid_slowdown, random)
    tree, similar = KDTree(sampled), min(SIMILAR, len(sampled))
    rank = random.integers(1, similar + 1, len(wanted))  # place among the nearest
    found = numpy.empty(len(wanted))
    for number in range(1, similar + 1):
        of_rank = rank == number
        _, nearest = tree.query(wanted[of_rank], k=[number], workers=-1)
        found[of_rank] = samples.excess_s[nearest[:, 0]]
    return found


def _feature_points(
    volume_bytes: Ints, limiting: Ints, fluid_slowdown: Floats, random: numpy.random.Generator
) -> Floats:
    """Return a point for each flow: log of size, log of slowdown, number of limiting links.

    Small random offsets separate equal flows, so that each of them can be drawn.
    """
    columns = numpy.log(volume_bytes), numpy.log(fluid_slowdown), LIMITING_WEIGHT * limiting
    points: Floats = numpy.column_stack(columns)
    return points + random.uniform(-0.01, 0.01, points.shape)
