"""The hops of many flows at once, and the directed links that they take.

A hop is a port and the next server, as in `hosts.base.path`. Which links it takes follows from the
wiring: the server's own, and where that leads to a switch, the switch's link to the next server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy
from numpy.typing import NDArray

from experiments.fluid.links import Routes, link_at, link_count
from topos.base.polymorphic import NOTHING
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
    counts = numpy.zeros(len(sources), numpy.int32)
    found: list[tuple[Ints, Ints]] = []
    for first in range(0, len(sources), BLOCK):
        part = slice(first, first + BLOCK)
        ports = numpy.zeros((len(sources[part]), most), numpy.int8)
        peers = numpy.zeros(ports.shape, numpy.int64)
        fill(sources[part], destinations[part], ports, peers, counts[part])
        written = numpy.arange(most) < counts[part, None]
        found.append((ports[written], peers[written]))
    starts = numpy.zeros(len(sources) + 1, numpy.int64)
    starts[1:] = numpy.cumsum(counts)
    empty = (numpy.empty(0, numpy.int8), numpy.empty(0, numpy.int64))
    ports, peers = (numpy.concatenate(column) for column in zip(empty, *found, strict=True))
    return Hops(starts, ports, peers)


def count_hops(fill: Fill, most: int, sources: Ints, destinations: Ints) -> Ints:
    """Return only how many hops each flow takes."""
    counts = numpy.zeros(len(sources), numpy.int32)
    ports = numpy.zeros((min(BLOCK, len(sources)), most), numpy.int8)
    peers = numpy.zeros(ports.shape, numpy.int64)
    for first in range(0, len(sources), BLOCK):
        part = slice(first, first + BLOCK)
        fill(sources[part], destinations[part], ports, peers, counts[part])
    return counts


def routes_of_hops(topology: Topology, sources: Ints, hops: Hops) -> Routes:
    """Return the links of the flows.

    A flow that would pass a server or cable that is not there (in a partial network) has none.
    """
    at = numpy.empty_like(hops.peers)
    at[1:] = hops.peers[:-1]
    begins = hops.starts[:-1][numpy.diff(hops.starts) > 0]
    at[begins] = sources[numpy.diff(hops.starts) > 0]
    far, back = _through(topology, at, hops)
    present = (at < topology.servers) & (hops.peers < topology.servers) & (far != NOTHING)
    flow = numpy.repeat(numpy.arange(len(sources)), numpy.diff(hops.starts))
    broken = numpy.zeros(len(sources), bool)
    broken[flow[~present]] = True
    keep = ~broken[flow]
    at, far, back, ports, flow = at[keep], far[keep], back[keep], hops.ports[keep], flow[keep]
    by_switch = far >= topology.servers
    places = numpy.cumsum(1 + by_switch) - 1  # of each hop's last link
    links: Ints = numpy.empty(len(at) + int(by_switch.sum()), _link_type(topology))
    links[places - by_switch] = link_at(topology, at, ports)
    links[places[by_switch]] = link_at(topology, far[by_switch], back[by_switch])
    starts = numpy.zeros(len(sources) + 1, numpy.int64)
    starts[1:] = numpy.cumsum(numpy.bincount(flow, 1 + by_switch, len(sources)))
    return Routes(starts, links)


def _through(topology: Topology, at: Ints, hops: Hops) -> tuple[Ints, Ints]:
    """Return where each hop's first cable ends and, of a switch, its port to the next server."""
    far = numpy.full(len(at), NOTHING, numpy.int64)
    back = numpy.zeros(len(at), numpy.int64)
    for port in range(topology.ports):
        here = numpy.flatnonzero(hops.ports == port)
        if not len(here):
            continue
        far[here] = topology.server_plug(at[here], port).node
        # The next server is on that switch with one of its ports, mostly the one of that number.
        open_ = here[far[here] >= topology.servers]
        for other in (port, *(p for p in range(topology.ports) if p != port)):
            plug = topology.server_plug(hops.peers[open_], other)
            found = plug.node == far[open_]
            back[open_[found]] = numpy.broadcast_to(plug.port, found.shape)[found]
            open_ = open_[~found]
            if not len(open_):
                break
    return far, back


def _link_type(topology: Topology) -> type:
    return numpy.int32 if link_count(topology) < 2**31 else numpy.int64
