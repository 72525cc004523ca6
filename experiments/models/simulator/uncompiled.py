"""Simulation of routing algorithms that are not compiled: flow by flow, by the code of
hosts/NETWORK.

This takes some ten microseconds or more per flow. An algorithm that consists only of a router sends
its flows through servers in memory (`pillarbox.hosts.memory`), heartbeats included, which takes
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, link_at, link_count, routes_of
from pillarbox.experiments.models.simulator.hops import Fill, Hops
from pillarbox.hosts.base.algorithms import SHORTEST, Routed, algorithms, route
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.memory.tryout import network_of, packet_path
from pillarbox.topos.base.errors import UnsupportedError, require
from pillarbox.topos.base.topology import Topology

Find = Callable[[int, int], "Path | None"]


def path_finder(topology: Topology, name: str, works: Bools | None = None) -> Find:
    """Return a function that finds the path of a flow, None where it has none."""
    failures = NONE if works is None else failures_of(topology, works)
    algorithm = algorithms(topology)[name]
    require(
        not algorithm.sprays,
        f"simulated flows take one path each: {name} of {topology.spec} is in live labs and in gap",
        UnsupportedError,
    )
    if name != SHORTEST and not (algorithm.path or algorithm.path_set or algorithm.around):
        assert algorithm.router
        network = network_of(topology, algorithm.router, failures)

        def found(source: int, destination: int) -> Routed:
            return packet_path(network, source, destination)
    else:

        def found(source: int, destination: int) -> Routed:
            return route(topology, name, source, destination, failures)

    @cache
    def found_path(source: int, destination: int) -> Path | None:
        return next(iter(found(source, destination).paths), None)

    return found_path


def routes_by(topology: Topology, find: Find, sources: Ints, destinations: Ints) -> Routes:
    """Return the links of flows, each on the path that `find` returns."""
    ends = zip(sources.tolist(), destinations.tolist(), strict=True)
    return routes_of(topology, [find(*pair) for pair in ends])


def fill_by(find: Find) -> Fill:
    """Return a function that writes flows' hops on the paths that `find` returns."""

    def fill(sources: Ints, destinations: Ints, hops: Hops) -> None:
        for flow, pair in enumerate(zip(sources.tolist(), destinations.tolist(), strict=True)):
            path = find(*pair)
            steps = path.steps if path else ()
            hops.counts[flow] = len(steps)
            hops.ports[flow, : len(steps)] = [step.port for step in steps]
            hops.peers[flow, : len(steps)] = [step.peer for step in steps]

    return fill


def failures_of(topology: Topology, works: Bools) -> Failures:
    """Return the failures as a set: nodes without any working cable, and the other cables that
    failed.

    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.fluid.directed_links import working_links
    >>> from pillarbox.hosts.base.failures import parse_failures
    >>> bcube = topos.parse("bcube,4,1")
    >>> failed = parse_failures(bcube, ["kill 0.3", "cut 0.0-s0"])
    >>> failures_of(bcube, working_links(bcube, failed)) == failed
    True
    """
    cables = topology.cable_arrays()
    ends = cables.a.astype(numpy.int64), cables.b.astype(numpy.int64)
    well = works[link_at(topology, ends[0], cables.a_port)]
    assert len(works) == link_count(topology)
    cabled, alive = (
        numpy.bincount(numpy.concatenate([end[which] for end in ends]), minlength=topology.nodes)
        for which in (slice(None), well)
    )
    dead = (cabled > 0) & (alive == 0)
    cut = ~well & ~dead[ends[0]] & ~dead[ends[1]]
    links = zip(ends[0][cut].tolist(), ends[1][cut].tolist(), strict=True)
    return Failures(frozenset(numpy.flatnonzero(dead).tolist()), frozenset(map(frozenset, links)))
