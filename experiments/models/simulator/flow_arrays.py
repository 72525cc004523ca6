"""Traffic patterns as arrays of sources and destinations, and random working paths for flows."""

from __future__ import annotations

import numpy

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.simulator.failure_sets import surviving_routes
from pillarbox.experiments.models.simulator.paths import routes, routing_by_name
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology


def all_to_all(servers: Ints) -> tuple[Ints, Ints]:
    """Return flows from each of these servers to each other, as sources and destinations.

    >>> [ends.tolist() for ends in all_to_all(numpy.array([4, 7, 9]))]
    [[4, 4, 7, 7, 9, 9], [7, 9, 4, 9, 4, 7]]
    """
    sources = numpy.repeat(servers, len(servers))
    destinations = numpy.tile(servers, len(servers))
    different = sources != destinations
    return sources[different], destinations[different]


def random_flows(servers: int, flows: int, random: numpy.random.Generator) -> tuple[Ints, Ints]:
    """Return flows between random pairs of servers; a server may have several flows, or none."""
    require(servers >= 2, "random flows need a network of at least two servers")
    sources = random.integers(0, servers, flows)
    destinations = random.integers(0, servers - 1, flows)
    destinations += destinations >= sources
    return sources, destinations


def working_routes(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    works: Bools,
    random: numpy.random.Generator,
) -> Routes:
    """Return the links of flows, each on a random one of its working paths.

    A flow has no links if none of its routing's paths works.
    """
    working = routing_by_name(topology, name).working
    if working:
        return working(topology, sources, destinations, works, random)
    return surviving_routes(routes(topology, name, sources, destinations), works)
