"""Compiled routing around failures, one file per network: ``bcube.py`` is for topos/bcube.py.

Each file has a table AROUND, keyed by the names that hosts/NETWORK.py (or `paths`) gives the
routings. Its functions take a network, the working links and a random source, and return a function
that finds the links of flows. Other compiled routings use `paths`: a flow takes a random one of its
working paths. Routings that are not compiled run flow by flow, with their own answer to failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from numpy.random import Generator

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.simulator.compiled_networks import network_table
from pillarbox.experiments.models.simulator.flow_arrays import working_routes
from pillarbox.experiments.models.simulator.hops import in_blocks
from pillarbox.experiments.models.simulator.paths import compiled_routings, concatenated_routes
from pillarbox.experiments.models.simulator.uncompiled import path_finder, routes_by
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.topology import Topology

Find: TypeAlias = Callable[
    [Ints, Ints], Routes
]  # function that returns the links of flows, given sources and destinations
Around: TypeAlias = Callable[[Any, Bools, Generator], Find]


def routings(topology: Topology) -> list[str]:
    """Return the names of the network's simulated routings, those that avoid failures first."""
    return list(
        dict.fromkeys([*_around_of(topology), *compiled_routings(topology), *algorithms(topology)])
    )


def routes(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    works: Bools,
    random: Generator,
) -> Routes:
    """Return the links of flows after servers have learned which links work.

    Parameters
    ----------
    topology : Topology
        The network.
    name : str
        Name of a routing, one of `routings`.
    sources, destinations : array
        Ends of each flow.
    works : array
        Whether each link works, by link number (see `FailedNodes.works`).
    random : Generator
        Random source that selects among equally good paths.

    Returns
    -------
    Routes
        Links of each flow; a flow without a path has none.

    Examples
    --------
    >>> import numpy
    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.fluid.directed_links import working_links
    >>> from pillarbox.hosts.base.failures import parse_failures
    >>> dcell = topos.parse("dcell,4,1")
    >>> works = working_links(dcell, parse_failures(dcell, ["cut 0.3-4.0"]))
    >>> ends = numpy.array([0]), numpy.array([19])
    >>> found = routes(dcell, "dfr", *ends, works, numpy.random.default_rng(1))
    >>> len(found.links)  # the detour of section 7.3; DCellRouting's path has 5
    6
    """
    return concatenated_routes(
        list(blocks_of_routes(topology, name, sources, destinations, works, random))
    )


def blocks_of_routes(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    works: Bools,
    random: Generator,
) -> Iterator[Routes]:
    """Yield the links of flows in blocks, so that those of all flows need not be in memory."""
    find = _route_finder(topology, name, works, random)
    for part in in_blocks(len(sources)):
        yield find(sources[part], destinations[part])


def _route_finder(topology: Topology, name: str, works: Bools, random: Generator) -> Find:
    around = _around_of(topology)
    if name in around:
        return around[name](topology, works, random)
    known_algorithm = algorithms(topology).get(name)
    avoids = known_algorithm is not None and known_algorithm.around is not None
    if name in compiled_routings(topology) and not avoids:
        return lambda sources, destinations: working_routes(
            topology, name, sources, destinations, works, random
        )
    known = routings(topology)
    require(
        name in known,
        f"{topology.spec} has no routing {name!r}: there are {', '.join(known)}",
        UnknownNameError,
    )
    find = path_finder(topology, name, works)
    return lambda sources, destinations: routes_by(topology, find, sources, destinations)


def _around_of(topology: Topology) -> dict[str, Around]:
    return network_table("around", topology.kind, "AROUND")
