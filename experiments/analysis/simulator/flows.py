"""Who sends to whom, as arrays; and flows that look for a path that works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from experiments.analysis.fluid.links import Routes
from experiments.analysis.simulator.failures import Bools, surviving
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.paths import choose, routes
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterator


def all_to_all(servers: Ints) -> tuple[Ints, Ints]:
    """Return a flow from each of these servers to each other one.

    >>> [ends.tolist() for ends in all_to_all(numpy.array([4, 7, 9]))]
    [[4, 4, 7, 7, 9, 9], [7, 9, 4, 9, 4, 7]]
    """
    sources = numpy.repeat(servers, len(servers))
    destinations = numpy.tile(servers, len(servers))
    different = sources != destinations
    return sources[different], destinations[different]


def random_flows(servers: int, flows: int, random: numpy.random.Generator) -> tuple[Ints, Ints]:
    """Return flows between random servers; a server may have several, or none."""
    require(servers >= 2, "flows need two servers")
    sources = random.integers(0, servers, flows)
    destinations = random.integers(0, servers - 1, flows)
    return sources, destinations + (destinations >= sources)


def working_routes(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    works: Bools,
    random: numpy.random.Generator,
) -> Routes:
    """Return the links of flows that each take a random one of their paths that work.

    A flow has no links if none of its routing's paths works.
    """
    choices = choose(topology, name).choices(topology)
    counts = numpy.zeros(len(sources), numpy.int64)
    found: list[tuple[Ints, Routes]] = []
    for flows, choice in _tries(counts, choices, random):
        ends = sources[flows], destinations[flows]
        left = surviving(routes(topology, name, *ends, choice), works)
        counts[flows] = numpy.diff(left.starts)
        found.append((flows, left))
    starts = numpy.zeros(len(sources) + 1, numpy.int64)
    numpy.cumsum(counts, out=starts[1:])
    links = numpy.empty(starts[-1], found[0][1].links.dtype if found else numpy.int32)
    for flows, left in found:
        own = numpy.diff(left.starts)
        # A link's place: behind as many links of its flow as here, but from the flow's own start.
        links[
            numpy.arange(len(left.links)) + numpy.repeat(starts[flows] - left.starts[:-1], own)
        ] = left.links
    return Routes(starts, links)


def _tries(
    counts: Ints, choices: int, random: numpy.random.Generator
) -> Iterator[tuple[Ints, Ints]]:
    """Yield, round by round, the flows that have no links yet, and the path that each tries.

    Paths that were tried go on the front of the flow's row, the others are drawn from behind.
    """
    flows = numpy.arange(len(counts))
    order = numpy.tile(numpy.arange(choices, dtype=numpy.int32), (len(flows), 1))
    for tried in range(choices):
        if not len(flows):
            return
        rows, drawn = numpy.arange(len(flows)), random.integers(tried, choices, len(flows))
        choice = order[rows, drawn]
        order[rows, drawn] = order[rows, tried]
        yield flows, choice
        left = counts[flows] == 0
        flows, order = flows[left], order[left]
