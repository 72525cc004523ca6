"""Paths of Multipath TCP's subflows: a network's disjoint paths, there and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, link_at, link_count, routes_of
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.pinned_paths import pinned_path
from pillarbox.topos.base.errors import UnsupportedError, require
from pillarbox.topos.base.topology import Topology


class SubflowPaths(NamedTuple):
    """Paths of all subflows, connection by connection; ACKs return on the same cables."""

    routes: Routes
    back: Routes
    counts: Ints  # number of subflows of each connection


def subflow_paths(
    topology: Topology,
    pairs: Iterable[tuple[int, int]],
    subflows: int,
    *,
    shortest: bool = False,
) -> SubflowPaths:
    """Return the paths of connections with up to `subflows` subflows between pairs of servers.

    Subflows take the paths of the source's first ports, as in a lab
    (`pillarbox.hosts.base.pinned_paths`), or the shortest ones of all ports. The paths are disjoint
    where the network has a disjoint path by each port. A pair with fewer paths has fewer subflows.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,4,1")
    >>> found = subflow_paths(bcube, [(0, 5), (0, 1)], subflows=2)
    >>> found.counts.tolist(), numpy.diff(found.routes.starts).tolist()
    ([2, 2], [4, 4, 2, 6])
    """
    require(subflows >= 1, f"a connection has at least 1 subflow, not {subflows}")
    require_several_ports(topology)
    found = [_paths(topology, *pair, shortest)[:subflows] for pair in pairs]
    routes = routes_of(topology, [path for paths in found for path in paths])
    counts = numpy.array([len(paths) for paths in found], numpy.int64)
    return SubflowPaths(routes, reversed_routes(topology, routes), counts)


def reversed_routes(topology: Topology, routes: Routes) -> Routes:
    """Return the routes over the same cables in the opposite direction."""
    cables = topology.cable_arrays()
    a = link_at(topology, cables.a.astype(numpy.int64), cables.a_port)
    b = link_at(topology, cables.b.astype(numpy.int64), cables.b_port)
    opposite = numpy.zeros(link_count(topology), numpy.int64)
    opposite[a], opposite[b] = b, a
    lengths = numpy.diff(routes.starts)
    ends = numpy.repeat(routes.starts[:-1] + routes.starts[1:] - 1, lengths)
    return Routes(routes.starts, opposite[routes.links[ends - numpy.arange(len(ends))]])


def require_several_ports(topology: Topology) -> None:
    """Raise PillarboxError if servers have one port, so that all paths share its cable."""
    if topology.ports < 2:
        raise UnsupportedError(
            f"servers of {topology.spec} have one port: Multipath TCP needs a network whose "
            "servers have several, such as bcube,4,1"
        )


def _paths(topology: Topology, source: int, destination: int, shortest: bool) -> list[Path]:
    """Return the path by each port of the source, in the order of ports or of lengths."""
    by_port = (
        pinned_path(topology, source, port, destination, None) for port in range(topology.ports)
    )
    found = [path for path in by_port if path]
    return sorted(found, key=len) if shortest else found
