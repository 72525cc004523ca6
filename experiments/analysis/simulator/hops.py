"""The hops of many flows at once, and the directed links that they take.

A hop is a port and the next server, as in `hosts.base.path`. Which links it takes follows from the
wiring: the server's own, and where that leads to a switch, the switch's link to the next server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy
from numpy.typing import NDArray

from experiments.analysis.fluid.links import Routes, link_at, link_count
from topos.base.topology import Topology

Ints: TypeAlias = "NDArray[numpy.signedinteger[Any]]"
# Writes the hops of flow i to row i of ports and peers, and their count to its place:
# fill(sources, destinations, ports, peers, counts).
Fill: TypeAlias = Callable[[Ints, Ints, Ints, Ints, Ints], object]

# Flows handled at once: what is needed for them stays in the processor's cache.
BLOCK = 1 << 14


class Hops(NamedTuple):
    """Hops of flow i: ``starts[i]`` to ``starts[i + 1]``. A flow without a path has none."""

    starts: Ints
    ports: Ints
    peers: Ints


def walk(fill: Fill, most: int, sources: Ints, destinations: Ints) -> Hops:
    """Return the hops that a compiled routing writes, at most so many a flow."""
    sources, destinations = _alike(sources), _alike(destinations)
    counts = numpy.zeros(len(sources), numpy.int32)
    found: list[tuple[Ints, Ints]] = []
    ports = numpy.zeros((min(BLOCK, len(sources)), most), numpy.int8)
    peers = numpy.zeros(ports.shape, numpy.int64)
    for first in range(0, len(sources), BLOCK):
        part = slice(first, first + BLOCK)
        fill(sources[part], destinations[part], ports, peers, counts[part])
        rows, longest = len(counts[part]), counts[part].max()
        written = numpy.flatnonzero(numpy.arange(longest) < counts[part, None])
        by, to = (column[:rows, :longest].ravel()[written] for column in (ports, peers))
        found.append((by, to))
    starts = numpy.zeros(len(sources) + 1, numpy.int64)
    starts[1:] = numpy.cumsum(counts)
    empty = (numpy.empty(0, numpy.int8), numpy.empty(0, numpy.int64))
    ports, peers = (numpy.concatenate(column) for column in zip(empty, *found, strict=True))
    return Hops(starts, ports, peers)


def count_hops(fill: Fill, most: int, sources: Ints, destinations: Ints) -> Ints:
    """Return only how many hops each flow takes."""
    sources, destinations = _alike(sources), _alike(destinations)
    counts = numpy.zeros(len(sources), numpy.int32)
    ports = numpy.zeros((min(BLOCK, len(sources)), most), numpy.int8)
    peers = numpy.zeros(ports.shape, numpy.int64)
    for first in range(0, len(sources), BLOCK):
        part = slice(first, first + BLOCK)
        fill(sources[part], destinations[part], ports, peers, counts[part])
    return counts


def _alike(servers: Ints) -> Ints:
    """Return the same servers in the one kind of array for which code is to be compiled."""
    return numpy.ascontiguousarray(servers, numpy.int64)


def routes_of_hops(
    topology: Topology, sources: Ints, hops: Hops, arrivals: Sequence[int | None]
) -> Routes:
    """Return the links of the flows.

    A flow that would pass a server that is not there (in a partial network) has none.

    Parameters
    ----------
    topology : Topology
        The network.
    sources : array
        Of the flows.
    hops : Hops
        Of the flows.
    arrivals : sequence
        For each port of a server, by which port of the next server a hop through its switch
        arrives; None where it is a cable between two servers.
    """
    counts = numpy.diff(hops.starts)
    flow = numpy.repeat(numpy.arange(len(sources)), counts)
    ports, peers = hops.ports, hops.peers
    at = numpy.empty_like(peers)
    at[1:] = peers[:-1]
    at[hops.starts[:-1][counts > 0]] = sources[counts > 0]
    if (peers >= topology.servers).any():
        broken = numpy.zeros(len(sources), bool)
        broken[flow[peers >= topology.servers]] = True
        keep = ~broken[flow]
        ports, peers, at, flow = ports[keep], peers[keep], at[keep], flow[keep]
    switched = numpy.array([arrival is not None for arrival in arrivals])[ports]
    places = numpy.cumsum(1 + switched) - 1  # of each hop's last link
    links: Ints = numpy.empty(len(at) + int(switched.sum()), _link_type(topology))
    links[places - switched] = link_at(topology, at, ports)
    for port, arrival in enumerate(arrivals):
        if arrival is not None:
            here = numpy.flatnonzero(ports == port)
            plug = topology.server_plug(peers[here], arrival)
            links[places[here]] = link_at(topology, plug.node, plug.port)
    starts = numpy.zeros(len(sources) + 1, numpy.int64)
    starts[1:] = numpy.cumsum(numpy.bincount(flow, 1 + switched, len(sources)))
    return Routes(starts, links)


def _link_type(topology: Topology) -> type:
    return numpy.int32 if link_count(topology) < 2**31 else numpy.int64
