"""Packet simulation of regions: small parts of a network, with all flows that pass them.

A region is a set of neighbouring nodes with their egress ports. All flows that pass these ports are
simulated packet by packet, each on the part of its path inside the region. The same flows are also
simulated as fluids. The difference of both completion times is what the fluid model omits: queues,
packet losses, and windows that adapt. `tail_estimates` adds it to the fluid results of the network.

Parsimon (Zhao 2023, NSDI, section 3) simulates single links in this way. In its networks few links
are congested. Where servers relay, all links have the same rate and load, and a flow's bottleneck
moves along its path: a link simulated alone would be the bottleneck of all its flows at all times,
with two to three times the real queue. In a region bottlenecks move between its links.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.arrivals.fluid_events import (
    FluidSimulationResults,
    simulate_fluid_flows,
)
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    cabled_ends,
    link_count,
    link_factors,
    link_rates_bps,
    path_minima,
)
from pillarbox.experiments.models.fluid.ideal import ETHERNET_BYTES, header_efficiency
from pillarbox.experiments.models.fluid.unloaded_time import idle_network_completion_s, idle_paths
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters, simulate_tcp_flows
from pillarbox.experiments.models.workloads.arrivals import Arrivals, Window
from pillarbox.topos.base.topology import Topology


class TcpFlows(NamedTuple):
    """Flows of a network with their paths and the paths of their acknowledgements."""

    topology: Topology
    arrivals: Arrivals
    routes: Routes
    back: Routes
    tcp: TcpParameters
    window: Window  # flows that start in it are sampled


class RegionSamples(NamedTuple):
    """Results of the flows of one or several simulated regions."""

    volume_bytes: Ints
    limiting: Ints  # number of links on the path that limit other flows at the flow's start
    fluid_slowdown: Floats
    excess_s: Floats  # completion time minus the ideal time, beyond that of the fluid model
    events: int  # number of simulated packet events


def limiting_links(routes: Routes, limits: Ints) -> Ints:
    """Return the number of links on each flow's path that limit flows (see `limits`)."""
    before = numpy.concatenate([[0], numpy.cumsum(limits > 0)])
    found: Ints = before[routes.starts[1:]] - before[routes.starts[:-1]]
    return found


def random_region(topology: Topology, most: int, random: numpy.random.Generator) -> Bools:
    """Return a mask of the links of a random region: egress ports of neighbouring nodes.

    The region has at most `most` links, but at least one node. It grows from a random node by the
    node with the largest share of its cables in the region, so that paths stay inside for long.
    """
    links, near, far = cabled_ends(topology)
    order = numpy.argsort(near, kind="stable")
    nodes = topology.servers + topology.switches
    begin = numpy.searchsorted(near[order], numpy.arange(nodes + 1))
    inside = numpy.zeros(link_count(topology), bool)
    is_member, inward = numpy.zeros(nodes, bool), numpy.zeros(nodes)
    candidates = [(0.0, 0.0, int(near[random.integers(len(near))]))]
    size = 0
    while candidates:
        share, _, node = heapq.heappop(candidates)
        cables = order[begin[node] : begin[node + 1]]
        if is_member[node] or -share < inward[node] / len(cables):
            continue  # an earlier entry of a node that has a newer one
        size += len(cables)
        if is_member.any() and size > most:
            break
        is_member[node] = True
        inside[links[cables]] = True
        for peer in far[cables].tolist():
            inward[peer] += 1
            share = inward[peer] / (begin[peer + 1] - begin[peer])
            heapq.heappush(candidates, (-share, float(random.random()), peer))
    return inside


def packets_on_links(flows: TcpFlows) -> Floats:
    """Return the number of data packets that pass each link."""
    segments = -(-flows.arrivals.volume_bytes // flows.tcp.segment_bytes)
    of_links = numpy.repeat(segments, numpy.diff(flows.routes.starts))
    found: Floats = numpy.bincount(flows.routes.links, of_links, link_count(flows.topology)).astype(
        numpy.float64
    )
    return found


def simulate_regions(
    flows: TcpFlows, regions: Sequence[Bools], seed: int, workers: int
) -> list[RegionSamples]:
    """Return the samples of each region, simulated by `workers` threads.

    Compiled code runs without the interpreter's lock. The results do not depend on `workers`.
    """
    with ThreadPoolExecutor(workers) as pool:
        return list(
            pool.map(
                lambda numbered: simulate_region(flows, numbered[1], seed + numbered[0]),
                enumerate(regions),
            )
        )


def simulate_region(flows: TcpFlows, inside: Bools, seed: int) -> RegionSamples:
    """Simulate the flows that pass a region packet by packet and as fluids, and compare them."""
    topology, arrivals, routes, back, tcp, window = flows
    forth = _inside(routes, inside)
    passing = numpy.flatnonzero(numpy.diff(forth.starts))
    if not len(passing):
        return RegionSamples(passing, passing, numpy.empty(0), numpy.empty(0), 0)
    paths = forth.rows(passing)
    acks = _inside(back.rows(passing), inside, is_always_kept=True)
    tcp = replace(tcp, delay_s=tcp.delay_s + _outside_s(routes.rows(passing), paths, acks, tcp))
    start_s, volume_bytes = arrivals.start_s[passing], arrivals.volume_bytes[passing]
    found = simulate_tcp_flows(
        topology, paths, acks, start_s, volume_bytes, tcp, seed=seed, parts=1
    )
    cable_bps = tcp.rate_bps * header_efficiency(tcp.header, tcp.mtu)
    fluid = fluid_with_limits(topology, paths, start_s, volume_bytes, cable_bps)
    how = tcp.rate_bps, tcp.mtu, tcp.header, tcp.delay_s
    ideal_s = idle_network_completion_s(volume_bytes, idle_paths(topology, paths), *how)
    alone_s = fluid_alone_s(topology, paths, volume_bytes, cable_bps)
    fluid_s = fluid.end_s - start_s
    excess_s = found.end_s - start_s - ideal_s - (fluid_s - alone_s)
    sampled = (start_s >= window.from_s) & (start_s < window.until_s) & ~numpy.isnan(excess_s)
    return RegionSamples(
        volume_bytes=volume_bytes[sampled],
        limiting=limiting_links(paths, fluid.limits)[sampled],
        fluid_slowdown=(fluid_s / alone_s)[sampled],
        excess_s=excess_s[sampled],
        events=found.events,
    )


def fluid_with_limits(
    topology: Topology, paths: Routes, start_s: Floats, volume_bytes: Ints, cable_bps: float
) -> FluidSimulationResults:
    """Simulate flows as fluids and record the links that limit flows (`limits`)."""
    capacity_bps = numpy.full(link_count(topology), link_rates_bps(topology, cable_bps))
    volume_bits: Floats = numpy.multiply(volume_bytes, 8.0, dtype=numpy.float64)
    return simulate_fluid_flows(paths, start_s, volume_bits, capacity_bps, records_limits=True)


def fluid_alone_s(
    topology: Topology, paths: Routes, volume_bytes: Ints, cable_bps: float
) -> Floats:
    """Return the completion time of each flow alone, in the fluid model."""
    slowest = path_minima(paths, link_factors(topology, topology.factors.rates))
    found: Floats = 8.0 * volume_bytes / (cable_bps * slowest)
    return found


def _inside(routes: Routes, inside: Bools, *, is_always_kept: bool = False) -> Routes:
    """Return the parts of the routes that are simulated with a region.

    These are the links inside, the link that leads to each of them, which spreads packets in time,
    and the first link, which is the port of the source: a flow keeps few packets there. Routes that
    do not pass the region have no links, or the first one if it is always kept: acknowledgements
    need a link.
    """
    if not len(routes.links):
        return routes
    kept = inside[routes.links]
    before = numpy.concatenate([[0], numpy.cumsum(kept)])
    passes = before[routes.starts[1:]] > before[routes.starts[:-1]]
    has_links = routes.starts[1:] > routes.starts[:-1]
    enters = numpy.append(kept[1:], False)
    enters[routes.starts[1:][has_links] - 1] = False  # the next link belongs to another flow
    kept |= enters
    kept[routes.starts[:-1][has_links if is_always_kept else passes]] = True
    before = numpy.concatenate([[0], numpy.cumsum(kept)])
    return Routes(before[routes.starts], routes.links[kept])


def _outside_s(routes: Routes, paths: Routes, acks: Routes, tcp: TcpParameters) -> float:
    """Return the delay per link that replaces the links of the paths outside the region.

    It is the time of a full frame, and of an acknowledgement in return, on each omitted link, so
    that the mean round trip is that of the whole path.
    """
    frame_s = (tcp.mtu + ETHERNET_BYTES + tcp.header) * 8 / tcp.rate_bps + tcp.delay_s
    ack_s = (ETHERNET_BYTES + tcp.header + tcp.tcp_ip_bytes) * 8 / tcp.rate_bps + tcp.delay_s
    omitted = len(routes.links) - len(paths.links)
    omitted_acks = max(len(routes.links) - len(acks.links), 0)
    links = max(len(paths.links) + len(acks.links), 1)
    return (omitted * frame_s + omitted_acks * ack_s) / links
