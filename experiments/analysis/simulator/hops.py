"""The hops of many flows at once, and the directed links that they take.

A hop is a port and the next server, as in `hosts.base.path`. Which links it takes follows from the
wiring: the server's own, and where that leads to a switch, the switch's link to the next server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy
from numpy.typing import NDArray

from experiments.analysis.fluid.links import Routes, link_at, link_count
from experiments.analysis.simulator.compiled import native
from hosts.base.rules import NONE
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
    rows, onto = links_onto(topology, arrivals)
    return Routes(*_links(topology.servers, topology.ports, rows, onto, sources, *hops))


def links_onto(topology: Topology, arrivals: Sequence[int | None]) -> tuple[Ints, Ints]:
    """Return the links from switches to servers.

    First, by port of a hop, the row of the second, NONE for a cable between two servers; second, by
    row and the server to which the hop leads, the link by which it arrives.
    """
    return _onto(topology, tuple(arrivals))


@lru_cache(maxsize=4)  # asked again for every block of flows
def _onto(topology: Topology, arrivals: tuple[int | None, ...]) -> tuple[Ints, Ints]:
    switched = [arrival for arrival in arrivals if arrival is not None]
    onto: Ints = numpy.empty((len(switched), topology.servers), link_type(topology))
    for row, arrival in zip(onto, switched, strict=True):
        for first in range(0, topology.servers, BLOCK):
            servers = numpy.arange(first, min(first + BLOCK, topology.servers))
            plug = topology.server_plug(servers, arrival)
            row[servers] = link_at(topology, plug.node, plug.port)
    have = numpy.array([arrival is not None for arrival in arrivals])
    return numpy.where(have, numpy.cumsum(have) - 1, NONE), onto


@native
def _links(
    servers: int, ports: int, rows: Any, onto: Any, sources: Any, starts: Any, by: Any, peers: Any
) -> Any:
    """Return where each flow's links begin, and the links (see `routes_of_hops`)."""
    begins = numpy.zeros(len(sources) + 1, numpy.int64)
    for flow in range(len(sources)):
        count = 0
        for hop in range(starts[flow], starts[flow + 1]):
            if peers[hop] >= servers:
                count = 0
                break
            count += 1 if rows[by[hop]] == NONE else 2
        begins[flow + 1] = begins[flow] + count
    links = numpy.empty(begins[-1], onto.dtype)
    for flow in range(len(sources)):
        here, place = sources[flow], begins[flow]
        if place == begins[flow + 1]:
            continue
        for hop in range(starts[flow], starts[flow + 1]):
            port, peer = by[hop], peers[hop]
            links[place] = here * ports + port
            place += 1
            if rows[port] != NONE:
                links[place] = onto[rows[port], peer]
                place += 1
            here = peer
    return begins, links


def link_type(topology: Topology) -> type:
    """Return the least kind of whole number that holds the network's links."""
    return numpy.int32 if link_count(topology) < 2**31 else numpy.int64
