"""Routing of the nD-FullMesh (Liao 2025, section 4): all-path routing, and dimension-order routing.

All-path routing (APR, section 4.1, Fig. 10) spreads flows over shortest paths and detours: the
source writes the path into the packet (4.1.1), and a failed link is reported directly to the
sources that use it (4.2). BCube's source routing (BSR) does the same, so APR is BSR with the path
set of a full mesh: one path per port of the source. A path first changes one digit to the value
behind its port, then corrects the other digits in cyclic order, and that digit at last. If the
first hop already corrects its digit, the path is a shortest one; the others have one or two hops
more. All paths are node-disjoint, as many as a server has ports::

    0.0 to 1.1 in mesh,3,2    0.0 0.1 1.1       digit 0 corrected first
                              0.0 0.2 1.2 1.1   detour over another value of digit 0
                              0.0 1.0 1.1       digit 1 corrected first

Departs from the paper: the source route is in BCube's header, not in the 8 bytes of Fig. 11, and
choice among paths follows probes as in BSR. Left out: the virtual lanes that prevent deadlocks
(4.1.3), since queues here drop packets.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from pillarbox.hosts.base.algorithms import Algorithm
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.rules import Rule, Values
from pillarbox.hosts.bcube.bsr import BSR
from pillarbox.hosts.bcube.rules import corrections, digit, width, with_digit
from pillarbox.hosts.bcube.selection import PathSet, around, parallel_paths
from pillarbox.hosts.bcube.spraying import Spray
from pillarbox.hosts.wire.bcube import BCUBE
from pillarbox.topos.mesh import Mesh

Hops = Iterator[tuple[int, int]]  # egress port of a hop, and next server


def numbers(mesh: Mesh) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the weights of digits and the first port of each dimension, for the path rules."""
    return mesh.weights, mesh.first_ports


def port_towards(weights: Values[int], first: Values[int], here: int, level: int, peer: int) -> int:
    """Return the port of server `here` towards a peer that differs in the digit at a level."""
    by = digit(weights, peer, level) - digit(weights, here, level)
    return first[level] + by % width(weights, level) - 1


def dimension_order(
    weights: Values[int], first: Values[int], source: int, destination: int, _choice: int
) -> Hops:
    """Yield the hops that correct digits from the highest dimension down to 0."""
    here = source
    for level, peer in corrections(weights, source, source, destination, len(weights) - 2):
        yield port_towards(weights, first, here, level, peer), peer
        here = peer


def by_port(
    weights: Values[int], first: Values[int], source: int, destination: int, choice: int
) -> Hops:
    """Yield the hops of the path that leaves the source by port `choice`."""
    level = 0
    while choice >= first[level + 1]:
        level += 1
    value = digit(weights, source, level) + choice - first[level] + 1
    begin = with_digit(weights, source, level, value % width(weights, level))
    here = source
    for dimension, peer in corrections(weights, source, begin, destination, level):
        yield port_towards(weights, first, here, dimension, peer), peer
        here = peer


def _arrivals(mesh: Mesh) -> list[None]:
    return [None] * mesh.ports


DIMENSION_ORDER = Rule(dimension_order, numbers, lambda mesh: len(mesh.sizes), _arrivals)
BY_PORT = Rule(by_port, numbers, lambda mesh: len(mesh.sizes) + 1, _arrivals, lambda m: m.ports)


def path_set(mesh: Mesh, source: int, destination: int) -> list[Path]:
    """Return the node-disjoint paths of a pair, one per port of the source, shortest first.

    >>> mesh = Mesh(3, 2)
    >>> for path in path_set(mesh, mesh.server("0.0"), mesh.server("1.1")):
    ...     print(*map(mesh.address, path.servers))
    0.0 0.1 1.1
    0.0 1.0 1.1
    0.0 0.2 1.2 1.1
    """
    return sorted(BY_PORT.paths(mesh, source, destination), key=len)


class AllPathRouting(BSR):
    """Router for all-path routing: BSR over the paths of a full mesh."""

    path_set: ClassVar[PathSet] = staticmethod(path_set)


class SprayAllPaths(Spray):
    """Router that sprays the packets of a flow over the paths of a full mesh."""

    path_set: ClassVar[PathSet] = staticmethod(path_set)


class DimensionOrder(HopByHop):
    """Router for dimension-order routing, which has one path per pair and ignores failures."""

    def next_step(self, destination: int, came_by: int | None) -> Step | None:
        """Return the hop that corrects the highest digit in which the destination differs."""
        return DIMENSION_ORDER.first_step(self.topology, self.server, destination)


NETWORK = Network(
    algorithms={
        "apr": Algorithm(
            "all-path routing (Liao 2025, section 4.1)",
            path_set=partial(parallel_paths, path_set=path_set),
            around=partial(around, path_set=path_set),
            router=AllPathRouting,
        ),
        "spray": Algorithm(
            "packet spraying: the paths of apr, the packets of a flow in turn",
            path_set=partial(parallel_paths, path_set=path_set),
            around=partial(around, path_set=path_set),
            router=SprayAllPaths,
            sprays=True,
        ),
        "dor": Algorithm(
            "dimension-order routing", DIMENSION_ORDER.path, path_set, router=DimensionOrder
        ),
    },
    rules={"dor": DIMENSION_ORDER, "by-port": BY_PORT},
    headers=(BCUBE,),
)
