"""Slowdowns of millions of TCP flows, from the fluid model and simulated regions of the network.

The fluid model has each flow's share of its links at every moment, in the whole network, but no
packets. Packet simulations of random regions (`region_samples`) give what packets add to it. A
flow's completion time is estimated as ::

    ideal (ADR 26) + delay in the fluid model + excess of a similar flow in a region

Flows are similar if the same number of links on their paths limit flows when they start, and if
their sizes and their slowdowns in the fluid model are close. The first two determine the queues
that a small flow meets, the third the course of a large flow. The excess of a flow with more such
links than any flow of the regions is the sum of several draws: Parsimon's convolution, which takes
delays of different links as independent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    ArrivalSimulation,
    random_path_numbers,
    window_loads,
)
from pillarbox.experiments.models.fluid.directed_links import cabled_links
from pillarbox.experiments.models.fluid.ideal import header_efficiency
from pillarbox.experiments.models.fluid.unloaded_time import idle_network_completion_s, idle_paths
from pillarbox.experiments.models.packets.region_samples import (
    RegionSamples,
    TcpFlows,
    fluid_alone_s,
    fluid_with_limits,
    limiting_links,
    packets_on_links,
    random_region,
    simulate_regions,
)
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.packets.tcp_arrivals import simulate_by_tcp
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.experiments.models.workloads.arrivals import Arrivals, Window
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

DEFAULT_EVENTS = 500_000_000  # packet events to simulate in all regions
EVENTS_PER_PACKET = 1.6  # events of a data packet on each link, acknowledgements included
# Events of a region, relative to those on its own links: others are simulated with it.
REGION_OVERHEAD = 1.4
REGION_LINKS = 200  # number of links of a region
LEAST_REGIONS = 4  # if the events do not suffice for them, a shorter time is simulated
# Buckets of sizes have at least this number of samples, and at least this ratio of sizes.
LEAST_SAMPLES, LEAST_RATIO = 100, 1.3
NEIGHBOURS = 8  # samples with a smaller, and with a larger fluid slowdown to draw from


class TailEstimate(NamedTuple):
    """Estimated slowdowns of arriving flows, and the size of the simulated regions."""

    simulation: ArrivalSimulation
    regions: int
    links: int  # number of links in all regions
    samples: int


def estimate_tails(
    topology: Topology,
    fluid: ArrivalSimulation,
    routing: str,
    tcp: TcpParameters,
    seed: int,
    *,
    events: float = DEFAULT_EVENTS,
    region_links: int = REGION_LINKS,
    workers: int = 2,
) -> TailEstimate:
    """Return the estimated TCP slowdowns of the flows that were simulated as fluids.

    Parameters
    ----------
    topology, fluid, routing, tcp, seed
        As of `simulate_by_tcp`, with which the estimate can be compared.
    events : float
        Number of packet events to simulate in all regions. If it suffices for the whole network,
        the result is that of `simulate_by_tcp`.
    region_links : int
        Approximate number of links of a region; a region has at least one node's.
    workers : int
        Number of threads. Results do not depend on it.
    """
    check_tail_parameters(tcp)
    require(
        len(fluid.arrivals.start_s) > 0 and len(fluid.routes.links) > 0,
        "tails cannot be estimated without a flow that has a path",
    )
    numbers = random_path_numbers(topology, routing, fluid.arrivals.destination, seed)
    back = routes(topology, routing, fluid.arrivals.destination, fluid.arrivals.source, numbers)
    flows = TcpFlows(topology, fluid.arrivals, fluid.routes, back, tcp, fluid.window)
    if packets_on_links(flows).sum() * EVENTS_PER_PACKET <= events:
        whole = simulate_by_tcp(topology, fluid, routing, tcp, seed)
        return TailEstimate(whole, 1, len(cabled_links(topology)), int(whole.counts.sum()))
    chosen, masks = _regions(flows, events, region_links, seed)
    samples = simulate_regions(chosen, masks, seed, workers)
    every = RegionSamples(
        volume_bytes=numpy.concatenate([one.volume_bytes for one in samples]),
        limiting=numpy.concatenate([one.limiting for one in samples]),
        fluid_slowdown=numpy.concatenate([one.fluid_slowdown for one in samples]),
        excess_s=numpy.concatenate([one.excess_s for one in samples]),
        events=sum(one.events for one in samples),
    )
    return TailEstimate(
        _with_excess(topology, fluid, tcp, every, seed),
        len(masks),
        int(sum(mask.sum() for mask in masks)),
        len(every.volume_bytes),
    )


def check_tail_parameters(tcp: TcpParameters) -> None:
    """Raise PillarboxError if tails cannot be estimated with these parameters of TCP."""
    require(not tcp.subflows, "--regions does not simulate Multipath TCP: use --tcp")
    require(
        not tcp.relay_s, "--regions does not simulate relays that take time (--relay-us): use --tcp"
    )


def _regions(
    flows: TcpFlows, events: float, region_links: int, seed: int
) -> tuple[TcpFlows, list[Bools]]:
    """Return the flows to simulate and the links of each region, for this number of events."""
    topology, packets = flows.topology, packets_on_links(flows)
    links = len(cabled_links(topology))
    region_links = min(region_links, links // LEAST_REGIONS)
    # A region has at least one node, so it may be larger.
    size = max(region_links, links / (topology.servers + topology.switches))
    of_region = packets.sum() / links * size * EVENTS_PER_PACKET * REGION_OVERHEAD
    count = max(LEAST_REGIONS, round(events / of_region))
    share = events / (count * of_region)
    if share < 1:
        flows = _first_flows(flows, share)
    random = numpy.random.default_rng([seed, count])
    return flows, [random_region(topology, region_links, random) for _ in range(count)]


def _first_flows(flows: TcpFlows, share: float) -> TcpFlows:
    """Return this share of the flows, the first ones; the window shrinks in proportion."""
    start_s = flows.arrivals.start_s
    order = numpy.argsort(start_s, kind="stable")[: max(1, int(share * len(start_s)))]
    first_s, last_s = float(start_s.min()), float(start_s.max())
    scale = (float(start_s[order[-1]]) - first_s) / max(last_s - first_s, 1e-9)
    window = Window(*(first_s + (moment - first_s) * scale for moment in flows.window))
    arrivals = Arrivals(
        start_s=start_s[order],
        source=flows.arrivals.source[order],
        destination=flows.arrivals.destination[order],
        volume_bytes=flows.arrivals.volume_bytes[order],
    )
    return flows._replace(
        arrivals=arrivals,
        routes=flows.routes.rows(order),
        back=flows.back.rows(order),
        window=window,
    )


# -- similar flows -------------------------------------------------------------------------------


def _with_excess(
    topology: Topology,
    fluid: ArrivalSimulation,
    tcp: TcpParameters,
    samples: RegionSamples,
    seed: int,
) -> ArrivalSimulation:
    """Return the fluid simulation with the excess of similar flows added to each flow's time."""
    arrivals, paths = fluid.arrivals, fluid.routes
    cable_bps = tcp.rate_bps * header_efficiency(tcp.header, tcp.mtu)
    limits = fluid.course.limits
    if not len(limits):
        limits = fluid_with_limits(
            topology, paths, arrivals.start_s, arrivals.volume_bytes, cable_bps
        ).limits
    alone_s = fluid_alone_s(topology, paths, arrivals.volume_bytes, cable_bps)
    fluid_s = fluid.course.end_s - arrivals.start_s
    excess_s = drawn_excess_s(
        samples,
        arrivals.volume_bytes,
        limiting_links(paths, limits),
        fluid_s / alone_s,
        numpy.random.default_rng([seed, len(samples.volume_bytes)]),
    )
    how = tcp.rate_bps, tcp.mtu, tcp.header, tcp.delay_s
    ideal_s = idle_network_completion_s(arrivals.volume_bytes, idle_paths(topology, paths), *how)
    took_s = numpy.maximum(ideal_s + fluid_s - alone_s + excess_s, ideal_s)
    course = fluid.course._replace(end_s=arrivals.start_s + took_s, events=samples.events)
    done = fluid._replace(course=course, slowdown=took_s / ideal_s)
    return done._replace(loads=window_loads(topology, done, cable_bps))


def drawn_excess_s(
    samples: RegionSamples,
    volume_bytes: Ints,
    limiting: Ints,
    fluid_slowdown: Floats,
    random: numpy.random.Generator,
) -> Floats:
    """Return a random sample's excess for each flow, from the samples that are similar to it.

    >>> columns = (numpy.full(200, 1000), numpy.repeat([0, 1], 100), numpy.ones(200))
    >>> samples = RegionSamples(*columns, numpy.repeat([0.0, 5.0], 100), 0)
    >>> flows = numpy.full(3, 1000), numpy.array([0, 1, 2]), numpy.ones(3)
    >>> drawn_excess_s(samples, *flows, numpy.random.default_rng(1)).tolist()
    [0.0, 5.0, 10.0]
    """
    require(
        len(samples.volume_bytes) > 0, "no flow was sampled in the regions: simulate more flows"
    )
    counts = numpy.bincount(samples.limiting)
    enough = numpy.flatnonzero(counts >= LEAST_SAMPLES)
    classes = enough if len(enough) else numpy.array([int(counts.argmax())])
    found = numpy.zeros(len(volume_bytes))
    left, drawn = limiting.copy(), numpy.zeros(len(volume_bytes), bool)
    while True:
        # Each flow draws from the class with its number of links, or the next smaller one.
        at = numpy.maximum(numpy.searchsorted(classes, left, side="right") - 1, 0)
        wanted = (left > 0) | ~drawn
        if not wanted.any():
            return found
        for number in numpy.unique(at[wanted]):
            flows = numpy.flatnonzero(wanted & (at == number))
            of_class = numpy.flatnonzero(samples.limiting == classes[number])
            picked = _similar(
                samples.volume_bytes[of_class],
                samples.fluid_slowdown[of_class],
                volume_bytes[flows],
                fluid_slowdown[flows],
                random,
            )
            found[flows] += samples.excess_s[of_class[picked]]
        left = numpy.where(wanted, left - numpy.maximum(classes[at], 1), left)
        drawn |= wanted


def _similar(
    volumes: Ints, slowdowns: Floats, volume: Ints, slowdown: Floats, random: numpy.random.Generator
) -> Ints:
    """Return for each flow the index of a random sample of similar volume and fluid slowdown."""
    order = numpy.argsort(volumes, kind="stable")
    picked = numpy.zeros(len(volume), numpy.int64)
    first_bytes = volumes[order[_bucket_starts(volumes[order])]]
    first_bytes[0] = 0
    bucket = numpy.searchsorted(first_bytes, volume, side="right") - 1
    sample_bucket = numpy.searchsorted(first_bytes, volumes, side="right") - 1
    for number in numpy.unique(bucket):
        flows = numpy.flatnonzero(bucket == number)
        inside = numpy.flatnonzero(sample_bucket == number)
        inside = inside[numpy.argsort(slowdowns[inside], kind="stable")]
        nearest = numpy.searchsorted(slowdowns[inside], slowdown[flows])
        at = nearest + random.integers(-NEIGHBOURS, NEIGHBOURS, len(flows))
        picked[flows] = inside[numpy.clip(at, 0, len(inside) - 1)]
    return picked


def _bucket_starts(volumes: Ints) -> list[int]:
    """Return the first index of each bucket of ascending volumes (Parsimon's rule).

    >>> _bucket_starts(numpy.repeat([10, 11, 20, 90], [90, 90, 99, 5]))
    [0, 180]
    """
    starts, start = [0], 0
    while True:
        least = max(int(volumes[start] * LEAST_RATIO), int(volumes[start]) + 1)
        end = max(int(numpy.searchsorted(volumes, least)), start + LEAST_SAMPLES)
        # equal volumes are in the same bucket
        end = int(numpy.searchsorted(volumes, volumes[min(end, len(volumes)) - 1], side="right"))
        if len(volumes) - end < LEAST_SAMPLES:
            return starts
        starts.append(end)
        start = end
