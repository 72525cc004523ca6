"""Compiled routing around failures, one file a network: ``bcube.py`` is for topos/bcube.py.

Each file has AROUND, by the names that hosts/NETWORK.py gives the routings (or `paths` does):
functions that are given a network, what works and a random source, and return what finds the links
of flows. Routing without an entry goes as in `paths`: a flow takes a random one of its paths that
work. What is compiled nowhere goes flow by flow, by its own answer to failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from numpy.random import Generator

from experiments.analysis.fluid.links import Routes
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.flows import working_routes
from experiments.analysis.simulator.hops import Ints, in_blocks
from experiments.analysis.simulator.own import own
from experiments.analysis.simulator.paths import compiled, joined
from experiments.analysis.simulator.uncompiled import finder, routes_by
from hosts.base.algorithms import algorithms
from topos.base.errors import require
from topos.base.topology import Topology

Find: TypeAlias = Callable[[Ints, Ints], Routes]  # the links of flows, by their ends
Around: TypeAlias = Callable[[Any, Bools, Generator], Find]


def routings(topology: Topology) -> list[str]:
    """Return the names of the network's routings here, those that go around failures first."""
    return list(dict.fromkeys([*_own(topology), *compiled(topology), *algorithms(topology)]))


def routes(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    works: Bools,
    random: Generator,
) -> Routes:
    """Return the links of flows once servers have learned what works.

    Parameters
    ----------
    topology : Topology
        The network.
    name : str
        One of `routings`.
    sources, destinations : array
        Of the flows.
    works : array
        By the number of each link, whether it works (see `analysis.simulator.failures`).
    random : Generator
        Decides between paths that are as good.

    Returns
    -------
    Routes
        A flow without a path has no links.

    Examples
    --------
    >>> import numpy
    >>> import topos
    >>> from experiments.analysis.fluid.links import working_links
    >>> from hosts.base.failures import parse_failures
    >>> dcell = topos.parse("dcell,4,1")
    >>> works = working_links(dcell, parse_failures(dcell, ["cut 0.3-4.0"]))
    >>> ends = numpy.array([0]), numpy.array([19])
    >>> found = routes(dcell, "dfr", *ends, works, numpy.random.default_rng(1))
    >>> len(found.links)  # the detour of section 7.3; DCellRouting's path has 5
    6
    """
    return joined(list(blocks(topology, name, sources, destinations, works, random)))


def blocks(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    works: Bools,
    random: Generator,
) -> Iterator[Routes]:
    """Yield the same flow by flow, in blocks: for what need not hold the links of all flows."""
    find = _find(topology, name, works, random)
    for part in in_blocks(len(sources)):
        yield find(sources[part], destinations[part])


def _find(topology: Topology, name: str, works: Bools, random: Generator) -> Find:
    around = _own(topology)
    if name in around:
        return around[name](topology, works, random)
    if name in compiled(topology):
        return lambda sources, destinations: working_routes(
            topology, name, sources, destinations, works, random
        )
    known = routings(topology)
    require(name in known, f"{topology.spec} has no routing {name!r}: there are {', '.join(known)}")
    find = finder(topology, name, works)
    return lambda sources, destinations: routes_by(topology, find, sources, destinations)


def _own(topology: Topology) -> dict[str, Around]:
    return own("around", topology.kind, "AROUND")
