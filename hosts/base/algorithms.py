"""Routing algorithms by name, and what becomes of a packet under each when things have failed.

hosts/NETWORK declares them (`hosts.base.network`). Shortest-path routing works in every network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hosts.base.declared import declared
from hosts.base.failures import NONE, Failures
from hosts.base.path import Path
from hosts.base.router import Router
from hosts.base.shortest import shortest_path
from hosts.base.spf import shortest_router
from topos.base.errors import PillarboxError, meant
from topos.base.topology import Topology


class Algorithm(NamedTuple):
    """A way to compute paths. The callables take a topology, a source and a destination.

    `path_set` gives the disjoint paths, best first. Without a `path` of its own, an algorithm
    uses the first path of its set that works, as a server does that probes them all.
    """

    about: str
    path: Callable[[Any, int, int], Path] | None = None
    path_set: Callable[[Any, int, int], list[Path]] | None = None
    opposite: str = ""  # the same algorithm in the other direction
    # The paths that its servers take once they have learned of the failures; for routing that
    # goes around them. The last argument asks for the whole set of disjoint paths.
    around: Callable[[Any, int, int, Failures, bool], Routed] | None = None
    router: type[Router] | None = None  # what a live server runs


class Routed(NamedTuple):
    """The paths that work; or none, and the reason why a packet is dropped."""

    paths: list[Path]
    dropped: str = ""


SHORTEST = "shortest"


def algorithms(topology: Topology) -> dict[str, Algorithm]:
    """Return the network's algorithms by name, the usual one first."""
    network = declared(topology.kind)
    shortest = Algorithm("fewest hops, every failure known", router=shortest_router(topology))
    return {**(network.algorithms if network else {}), SHORTEST: shortest}


def choose(topology: Topology, name: str | None, several: bool, opposite: bool) -> str:
    """Return the name of the algorithm that a user means, or raise PillarboxError."""
    known = algorithms(topology)
    if name is None:
        fitting = (n for n, algorithm in known.items() if algorithm.path_set or not several)
        name = next(fitting, SHORTEST)
    if name not in known:
        raise PillarboxError(f"{topology.spec} has no routing {name!r}: {meant(name, known)}")
    if opposite:
        if not known[name].opposite:
            raise PillarboxError(f"{name} of {topology.spec} has no direction to choose")
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
    """Return the path that the algorithm takes, or all that work of its disjoint set."""
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
        working = [path for path in paths if not failures.first_on(topology, path)]
        if not working:
            return Routed([], f"all {len(paths)} disjoint paths have failed")
        return Routed(working if several else working[:1])
    if not algorithm.path:
        raise PillarboxError(
            f"{name} of {topology.spec} computes no paths: let its servers find them, by --protocol"
        )
    path = algorithm.path(topology, source, destination)
    stopped = failures.first_on(topology, path)
    return Routed([], _reason(topology, stopped)) if stopped else Routed([path])


def _reason(topology: Topology, stopped: tuple[int, ...]) -> str:
    names = [topology.name(node) for node in stopped]
    if len(names) == 2:
        return f"link {'-'.join(names)} has failed"
    kind = "server" if stopped[0] < topology.servers else "switch"
    return f"{kind} {names[0]} has failed"
