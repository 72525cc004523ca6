"""Hops of many flows as arrays, and the directed links that these flows take.

A hop is a port and the next server, as in `pillarbox.hosts.base.path`. Its links follow from the
wiring: the server's own link and, if that leads to a switch, the switch's link to the next server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeVar

import numpy

from pillarbox.experiments.base.processes import processors
from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, link_at, link_count
from pillarbox.experiments.models.simulator.compiled import native_in_place
from pillarbox.hosts.base.rules import NONE, VARIES
from pillarbox.topos.base.topology import Topology

Found = TypeVar("Found")

# Number of flows per block: their data fits into the processor's cache.
BLOCK = 1 << 14


class Hops(NamedTuple):
    """Hops of flow i: the first ``counts[i]`` entries of row i. A flow without a path has none."""

    counts: Ints
    ports: Ints
    peers: Ints

    def written(self) -> Bools:
        """Return a mask of the array entries that hold hops (others are padding)."""
        found: Bools = numpy.arange(self.ports.shape[1]) < self.counts[:, None]
        return found


# Function that writes the hops of flows: fill(sources, destinations, hops). It must keep no state
# between calls: several threads call it for different blocks of flows.
Fill: TypeAlias = Callable[[Ints, Ints, Hops], object]


def in_blocks(count: int, most: int | None = None) -> Iterator[slice]:
    """Yield slices that divide `count` flows into blocks of at most `most` (default: BLOCK)."""
    most = most or BLOCK
    return (slice(first, first + most) for first in range(0, count, most))


def block_by_block(do: Callable[[slice], Found], count: int, *, at_once: bool) -> list[Found]:
    """Return the result of `do` for each block of `count` flows, in order.

    Blocks run on all processors in parallel if `at_once` is set, which makes sense if `do` spends
    its time in compiled code, which lets other threads run.
    """
    parts = list(in_blocks(count))
    if not at_once or len(parts) < 2:
        return list(map(do, parts))
    # the first block runs in one thread and compiles or loads the functions that all blocks call
    first = do(parts[0])
    with ThreadPoolExecutor(processors()) as pool:
        return [first, *pool.map(do, parts[1:])]


def hops_of_flows(fill: Fill, most: int, sources: Ints, destinations: Ints) -> Hops:
    """Return the hops that a compiled routing writes, at most `most` per flow."""
    sources, destinations = as_int64_array(sources), as_int64_array(destinations)
    hops = Hops(
        numpy.empty(len(sources), numpy.int32),
        numpy.empty((len(sources), most), numpy.int8),
        numpy.empty((len(sources), most), numpy.int64),
    )
    fill(sources, destinations, hops)
    return hops


def count_hops(fill: Fill, most: int, sources: Ints, destinations: Ints) -> Ints:
    """Return the number of hops that a compiled routing writes for each flow."""
    counts = numpy.empty(len(sources), numpy.int32)
    for part in in_blocks(len(sources)):
        counts[part] = hops_of_flows(fill, most, sources[part], destinations[part]).counts
    return counts


def as_int64_array(numbers: Ints) -> Ints:
    """Return integers as a contiguous int64 array, the only type for which rules are compiled."""
    return numpy.ascontiguousarray(numbers, numpy.int64)


def routes_of_hops(
    topology: Topology, sources: Ints, hops: Hops, arrivals: Sequence[int | None]
) -> Routes:
    """Return the directed links of flows, given their hops.

    A flow that would pass a missing server of a partial network has no links.

    Parameters
    ----------
    topology : Topology
        The network.
    sources : array
        Source of each flow.
    hops : Hops
        Hops of each flow.
    arrivals : sequence
        For each port of a server, the port of the next server by which a hop through its switch
        arrives; None for a cable between two servers, VARIES if it depends on the servers.
    """
    starts = numpy.zeros(len(sources) + 1, numpy.int64)
    links: Ints = numpy.empty(2 * int(hops.counts.sum()), link_type(topology))
    _write_links(hop_links(topology, arrivals), as_int64_array(sources), hops, starts, links)
    return Routes(starts, links[: starts[-1]])


class HopLinks(NamedTuple):
    """Numbers of a network from which the directed links of its servers' hops follow."""

    servers: int
    ports: int  # ports of a server
    # For each port: difference between the number of the link by which a hop arrives from its
    # switch and the number of the server to which the hop leads, if it is constant.
    shifts: Ints
    rows: Ints  # row of `table` by port; NONE for a cable between servers, or VARIES
    table: Ints  # link number by row and server; row by arrival port if any entry of `rows` VARIES
    switches: Ints  # switch by server and port if any entry of `rows` VARIES, else empty


def hop_links(topology: Topology, arrivals: Sequence[int | None]) -> HopLinks:
    """Return the numbers of a network's links, for `arrivals` as in `routes_of_hops`."""
    return _cached_hop_links(topology, tuple(arrivals))


@lru_cache(maxsize=4)  # cached, since it is called for every block of flows of a network
def _cached_hop_links(topology: Topology, arrivals: tuple[int | None, ...]) -> HopLinks:
    shape = topology.servers, topology.ports
    shifts, rows = numpy.full((2, len(arrivals)), NONE)
    if VARIES in arrivals:
        rows[:] = [NONE if arrival is None else arrival for arrival in arrivals]
        ports = range(topology.ports)
        servers = numpy.arange(topology.servers)
        plugs = [topology.server_plug(servers, port) for port in ports]
        whole = numpy.array([link_at(topology, plug.node, plug.port) for plug in plugs])
        switches = numpy.stack([numpy.broadcast_to(plug.node, servers.shape) for plug in plugs], 1)
        return HopLinks(*shape, shifts, rows, whole.astype(link_type(topology)), switches)
    table: list[Ints] = []
    for port, arrival in enumerate(arrivals):
        if arrival is None:
            continue
        links: Ints = numpy.empty(topology.servers, link_type(topology))
        in_order = True
        for part in in_blocks(topology.servers):
            servers = numpy.arange(*part.indices(topology.servers))
            plug = topology.server_plug(servers, arrival)
            links[part] = link_at(topology, plug.node, plug.port)
            in_order = in_order and bool((links[part] - servers == links[0]).all())
        if in_order:
            shifts[port] = links[0]
        else:
            rows[port] = len(table)
            table.append(links)
    whole = numpy.array(table) if table else numpy.empty((0, 0), link_type(topology))
    return HopLinks(*shape, shifts, rows, whole, numpy.empty((0, 0), numpy.int64))


@native_in_place
def _write_links(net: HopLinks, sources: Ints, hops: Hops, starts: Ints, links: Ints) -> None:
    """Write the start of each flow's links, and the links (see `routes_of_hops`)."""
    for flow in range(len(sources)):
        row = hops.ports[flow], hops.peers[flow], hops.counts[flow]
        starts[flow + 1] = write_links_of_hops(net, sources[flow], *row, links, starts[flow])


def write_links_of_hops(
    net: HopLinks, source: int, ports: Ints, peers: Ints, count: int, links: Ints, begin: int
) -> int:
    """Write the links of one flow's hops from `begin` on; return the end of the links.

    A flow that would pass a missing server of a partial network has no links.
    """
    here, end = source, begin
    for hop in range(count):
        end = write_links_of_hop((net, links), end, here, ports[hop], peers[hop])
        here = peers[hop]
    return max(begin, end)


def write_links_of_hop(
    space: tuple[HopLinks, Ints], end: int, here: int, port: int, peer: int
) -> int:
    """Write the links of a hop from `end` on; return the new end.

    The new end is NONE if `end` is NONE, or if a partial network has no server `peer`.
    """
    net, links = space
    if end == NONE or peer >= net.servers:
        return NONE
    links[end] = here * net.ports + port
    end += 1
    link = _link_from_switch(net, here, port, peer)
    if link != NONE:
        links[end] = link
        end += 1
    return end


def _link_from_switch(net: HopLinks, here: int, port: int, peer: int) -> int:
    """Return the link by which a hop arrives from its switch; NONE for a cable between servers."""
    if net.shifts[port] != NONE:
        return net.shifts[port] + peer
    if net.rows[port] >= 0:
        return net.table[net.rows[port], peer]
    if net.rows[port] == VARIES:
        arrival = 0
        while net.switches[peer, arrival] != net.switches[here, port]:
            arrival += 1
        return net.table[arrival, peer]
    return NONE


def add_link_flows(
    topology: Topology, sources: Ints, hops: Hops, arrivals: Sequence[int | None], counts: Ints
) -> None:
    """Add flows, given their hops, to the number of flows on each directed link.

    The parameters are those of `routes_of_hops`, and `counts`, an array by link number.
    """
    links = numpy.empty(2 * hops.ports.shape[1], link_type(topology))
    _add_link_flows(hop_links(topology, arrivals), sources, hops, links, counts)


@native_in_place
def _add_link_flows(net: HopLinks, sources: Ints, hops: Hops, links: Ints, counts: Ints) -> None:
    """Add the flows of hops to the number of flows on each link (see `add_link_flows`)."""
    for flow in range(len(sources)):
        row = hops.ports[flow], hops.peers[flow], hops.counts[flow]
        for place in range(write_links_of_hops(net, sources[flow], *row, links, 0)):
            counts[links[place]] += 1


def link_type(topology: Topology) -> type:
    """Return the smallest integer type that holds the network's link numbers."""
    return numpy.int32 if link_count(topology) < 2**31 else numpy.int64
