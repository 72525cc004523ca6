"""Routing algorithms by name, and the paths that each computes under given failures.

hosts/NETWORK declares the algorithms (`pillarbox.hosts.base.network`). Shortest-path routing works
in every network.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.hosts.base.spf import shortest_router
from pillarbox.topos.base.errors import UnknownNameError, UnsupportedError, meant
from pillarbox.topos.base.topology import Topology


class Algorithm(NamedTuple):
    """A routing algorithm. The callables take a topology, a source and a destination.

    `path_set` returns the disjoint paths, best first. An algorithm without `path` uses the first
    path of its set that works, like a server that probes all paths.
    """

    about: str
    path: Callable[[Any, int, int], Path] | None = None
    path_set: Callable[[Any, int, int], list[Path]] | None = None
    opposite: str = ""  # name of the same algorithm in the other direction (DPillar)
    # Function for the paths around known failures; None if the algorithm ignores failures.
    # Its last argument is True for the whole set of disjoint paths.
    around: Callable[[Any, int, int, Failures, bool], Routed] | None = None
    router: type[Router] | None = None  # router class of live servers
    sprays: bool = False  # True if the packets of a flow take all disjoint paths in turn


class Routed(NamedTuple):
    """Result of a routing algorithm: working paths, or the drop reason of packets."""

    paths: list[Path]
    dropped: str = ""


SHORTEST = "shortest"


def algorithms(topology: Topology) -> dict[str, Algorithm]:
    """Return the network's routing algorithms by name, the default algorithm first."""
    network = declared(topology.kind)
    shortest = Algorithm("fewest hops, every failure known", router=shortest_router(topology))
    return {**(network.algorithms if network else {}), SHORTEST: shortest}


def choose(topology: Topology, name: str | None, several: bool, opposite: bool) -> str:
    """Return the name of the routing algorithm for a user's options, or raise PillarboxError."""
    known = algorithms(topology)
    if name is None:
        fitting = (n for n, algorithm in known.items() if algorithm.path_set or not several)
        name = next(fitting, SHORTEST)
    if name not in known:
        raise UnknownNameError(f"{topology.spec} has no routing {name!r}: {meant(name, known)}")
    if opposite:
        if not known[name].opposite:
            raise UnsupportedError(f"{name} of {topology.spec} has no direction to choose")
        name = known[name].opposite
    return name


def route(
    topology: Topology,
    name: str,
    source: int,
    destination: int,
    failures: Failures = NONE,
    *,
    several: bool = False,
) -> Routed:
    """Return the path that the algorithm uses, or with `several` all disjoint paths that work."""
    for end in (source, destination):
        if end in failures.nodes:
            return Routed([], f"server {topology.address(end)} has failed")
    if source == destination:
        return Routed([Path(source, ())])
    if name == SHORTEST:
        found = shortest_path(topology, source, destination, failures)
        return Routed([found]) if found else Routed([], "no path is left")
    algorithm = algorithms(topology)[name]
    if algorithm.around:
        return algorithm.around(topology, source, destination, failures, several)
    if algorithm.path_set and (several or not algorithm.path):
        paths = algorithm.path_set(topology, source, destination)
        working = (path for path in paths if not failures.first_on(topology, path))
        used = list(working if several else islice(working, 1))
        return Routed(used, "" if used else f"all {len(paths)} disjoint paths have failed")
    if not algorithm.path:
        raise UnsupportedError(
            f"{name} of {topology.spec} has no path computation: run its protocol with --protocol"
        )
    path = algorithm.path(topology, source, destination)
    failed = failures.first_on(topology, path)
    return Routed([], _drop_reason(topology, failed)) if failed else Routed([path])


def _drop_reason(topology: Topology, failed: tuple[int, ...]) -> str:
    """Return the drop reason for a failed node (one number) or link (two numbers)."""
    names = [topology.name(node) for node in failed]
    if len(names) == 2:
        return f"link {'-'.join(names)} has failed"
    kind = "server" if failed[0] < topology.servers else "switch"
    return f"{kind} {names[0]} has failed"
