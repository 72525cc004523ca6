"""Fat-tree flows on a random one of their working equal-cost paths.

A path has two halves: up from the source's edge switch, and down to the destination's edge switch,
determined by the same choices. So each half's links, and whether all of them work, are computed
once for all flows. Where most paths work, a few random tries find one. Where few or none do, all
are checked; in both cases every working path is equally likely.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy
from numpy.random import Generator

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, link_of, port_counts
from pillarbox.experiments.models.simulator.around import Find
from pillarbox.experiments.models.simulator.compiled import native, native_in_place
from pillarbox.hosts.base.rules import NONE
from pillarbox.hosts.fattree import equal_cost, numbers, turn
from pillarbox.topos.fattree import FatTree

TRIES = 32
NetworkNumbers = tuple[
    int, int, int
]  # parameters of a fat-tree, as compiled routing rules take them


class HalfPaths(NamedTuple):
    """Halves of all paths, by edge switch and by row, which stands for a level and the choices up
    to it.

    The level is that of the switch where the path turns.
    """

    first: Ints  # number of the first row of each level
    links: Ints  # link numbers of each half path, up and down, without the server's cable
    works: Bools  # whether all links of each half path work, up and down
    onto: Ints  # for each server: link from its edge switch to the server


def _half_paths(fattree: FatTree, works: Bools) -> HalfPaths:
    half, levels, servers = shape = numbers(fattree)
    first = numpy.cumsum([0, *(half**level for level in range(levels))])
    edges, rows = servers // half, int(first[-1])
    found = HalfPaths(
        first,
        numpy.zeros((2, edges, rows, levels - 1), numpy.int32),
        numpy.ones((2, edges, rows), bool),
        numpy.empty(servers, numpy.int32),
    )
    _compute_halves(shape, port_counts(fattree), works, *found)
    return found


@native_in_place
def _compute_halves(
    numbers: NetworkNumbers,
    ports: NetworkNumbers,
    works: Bools,
    first: Ints,
    links: Ints,
    well: Bools,
    onto: Ints,
) -> None:
    """Compute links and state of each upward and downward half of the fat-tree's paths."""
    half, levels, servers = numbers
    for edge in range(servers // half):
        for level in range(levels):
            ends = edge * half, _turning_edge(half, levels, edge, level) * half
            for choice in range(half**level):
                row = first[level] + choice
                up, down = links[0, edge, row], links[1, edge, row]
                well[0, edge, row] = _half_path(numbers, ports, works, *ends, choice, 1, up[:level])
                back = ends[1], ends[0], choice, 1 + level
                well[1, edge, row] = _half_path(numbers, ports, works, *back, down[:level])
    for server in range(servers):
        for node, port in equal_cost(*numbers, server, server, 0):
            onto[server] = link_of(*ports, node, port)


def _half_path(
    numbers: NetworkNumbers,
    ports: NetworkNumbers,
    works: Bools,
    source: int,
    destination: int,
    choice: int,
    begin: int,
    links: Ints,
) -> bool:
    """Write the links of a path from number `begin` on; return whether all of them work."""
    place, well = -begin, True
    for node, port in equal_cost(*numbers, source, destination, choice):
        if 0 <= place < len(links):
            links[place] = link_of(*ports, node, port)
            well &= works[links[place]]
        place += 1
    return well


def _turning_edge(half: int, levels: int, edge: int, level: int) -> int:
    """Return an edge switch to which paths from `edge` turn down at `level`; `edge` at level 0."""
    if level == 0:
        return edge
    weight = half ** (level - 1)
    values = 2 * half if level == levels - 1 else half
    own = edge // weight % values
    return edge + ((own + 1) % values - own) * weight


@native
def _random_routes(
    numbers: NetworkNumbers,
    halves: HalfPaths,
    works: Bools,
    random: Generator,
    sources: Ints,
    destinations: Ints,
) -> tuple[Ints, Ints]:
    """Return the start of each flow's links, and the links of a random working path."""
    half, levels, _ = numbers
    first, of_half, well, onto = halves
    starts = numpy.zeros(len(sources) + 1, numpy.int64)
    links = numpy.empty(len(sources) * 2 * levels, numpy.int32)
    place = 0
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        # link from a server to its edge switch: link number = server number
        if works[source] and works[onto[destination]]:
            level = turn(half, levels, source, destination)
            near, far = source // half, destination // half
            row = _random_working_row(
                well[0, near], well[1, far], first[level], first[level + 1], random
            )
            if row != NONE:
                links[place] = source
                for hop in range(level):
                    links[place + 1 + hop] = of_half[0, near, row, hop]
                    links[place + 1 + level + hop] = of_half[1, far, row, hop]
                place += 2 * level + 2
                links[place - 1] = onto[destination]
        starts[flow + 1] = place
    return starts, links[:place]


def _random_working_row(up: Bools, down: Bools, begin: int, end: int, random: Generator) -> int:
    """Return the table row of a random working path in a fat-tree, or NONE."""
    for _ in range(TRIES):
        row = begin + int(random.random() * (end - begin))
        if up[row] and down[row]:
            return row
    found, chosen = 0, NONE
    for row in range(begin, end):
        if up[row] and down[row]:
            found += 1
            # reservoir sampling: every working row is equally likely
            if random.random() * found < 1:
                chosen = row
    return chosen


def _any_working_path(fattree: FatTree, works: Bools, random: Generator) -> Find:
    shape, halves = numbers(fattree), _half_paths(fattree, works)

    def find(sources: Ints, destinations: Ints) -> Routes:
        return Routes(*_random_routes(shape, halves, works, random, sources, destinations))

    return find


AROUND = {"any": _any_working_path}
