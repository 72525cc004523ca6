"""The paths between two servers that routings know, compared with the most disjoint paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from pillarbox.experiments.models.fluid.directed_links import link_count, links_of, working_links
from pillarbox.experiments.models.fluid.disjoint import DisjointPathCount, disjoint_paths
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.topos.base.errors import UnknownNameError, meant, require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.hosts.base.path import Path


@dataclass(frozen=True)
class RoutingPaths:
    """The paths of one routing between two servers."""

    routing: str
    paths: int  # number of working paths
    longest_hops: int
    # Maximum number of link-disjoint and node-disjoint paths over the links of these paths.
    by_link: int
    by_node: int


@dataclass(frozen=True)
class PathsBetweenServers:
    """Number of paths of each routing between two servers, and of the network's disjoint paths."""

    known: tuple[RoutingPaths, ...]
    by_link: int
    by_node: int


def paths_between(
    topology: Topology,
    source: int,
    destination: int,
    routings: Iterable[str] = (),
    failures: Failures = NONE,
) -> PathsBetweenServers:
    """Return the paths that each routing knows between two servers, and the most disjoint paths.

    Examples
    --------
    >>> from pillarbox import topos
    >>> found = paths_between(topos.parse("bcube,4,1"), 0, 5)
    >>> [(one.routing, one.paths, one.by_link) for one in found.known]
    [('bcube', 2, 2), ('bsr', 2, 2), ('spray', 2, 2), ('shortest', 1, 1)]
    >>> found.by_link, found.by_node
    (2, 2)
    """
    names = known_routing_names(topology, routings)
    most = disjoint_paths(topology, source, destination, working_links(topology, failures))
    known = []
    for name in names:
        paths = route(topology, name, source, destination, failures, several=True).paths
        own = _disjoint_over(topology, paths, source, destination)
        known.append(RoutingPaths(name, len(paths), max(map(len, paths), default=0), *own))
    return PathsBetweenServers(tuple(known), *most)


def known_routing_names(topology: Topology, routings: Iterable[str]) -> list[str]:
    """Return routings' names, all of them if none is given; raise PillarboxError if unknown."""
    known = algorithms(topology)
    names = list(dict.fromkeys(routings)) or list(known)
    for name in names:
        require(
            name in known,
            f"{topology.spec} has no routing {name!r}: {meant(name, known)}",
            UnknownNameError,
        )
    return names


def _disjoint_over(
    topology: Topology, paths: list[Path], source: int, destination: int
) -> DisjointPathCount:
    """Return the numbers of link- and node-disjoint paths over the links of these paths only."""
    usable = numpy.zeros(link_count(topology), bool)
    for path in paths:
        usable[links_of(topology, path)] = True
    return disjoint_paths(topology, source, destination, usable)
