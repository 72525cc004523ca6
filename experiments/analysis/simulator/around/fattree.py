"""The fat-tree's flows on a random one of the equal-cost paths that work.

A path is two halves: up from the edge switch of the source, and down to that of the destination,
by the same choices. So what each half has of links, and whether all of them work, is looked up once
for all flows. Most tries at random find a path soon, where most paths work. Where few or none do,
all are looked at; either way each path that works is as likely.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
from numpy.random import Generator

from experiments.analysis.fluid.links import Routes, link_of, ports_of
from experiments.analysis.simulator.around import Find
from experiments.analysis.simulator.compiled import native, native_in_place
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Ints
from hosts.base.rules import NONE
from hosts.fattree import equal_cost, numbers, turn
from topos.fattree import FatTree

TRIES = 32
Three = tuple[int, int, int]  # numbers of a network


class Halves(NamedTuple):
    """The halves of all paths: by edge switch, and by row, which is a level and the choices there.

    The level is that of the switch where the path turns.
    """

    first: Any  # row of each level
    links: Any  # up and down: of the switches, the server's cable left out
    works: Any  # up and down: whether all of these work
    onto: Any  # by server: the link from its edge switch


def _halves(fattree: FatTree, works: Bools) -> Halves:
    half, levels, servers = shape = numbers(fattree)
    first = numpy.cumsum([0, *(half**level for level in range(levels))])
    edges, rows = servers // half, int(first[-1])
    found = Halves(
        first,
        numpy.zeros((2, edges, rows, levels - 1), numpy.int32),
        numpy.ones((2, edges, rows), bool),
        numpy.empty(servers, numpy.int32),
    )
    _look_up(shape, ports_of(fattree), works, *found)
    return found


@native_in_place
def _look_up(
    numbers: Three, ports: Three, works: Any, first: Any, links: Any, well: Any, onto: Any
) -> None:
    """Follow each half of a path once, to and from some server whose paths turn at that level."""
    half, levels, servers = numbers
    for edge in range(servers // half):
        for level in range(levels):
            ends = edge * half, _other(half, levels, edge, level) * half
            for choice in range(half**level):
                row = first[level] + choice
                up, down = links[0, edge, row], links[1, edge, row]
                well[0, edge, row] = _half(numbers, ports, works, *ends, choice, 1, up[:level])
                back = ends[1], ends[0], choice, 1 + level
                well[1, edge, row] = _half(numbers, ports, works, *back, down[:level])
    for server in range(servers):
        for node, port in equal_cost(*numbers, server, server, 0):
            onto[server] = link_of(*ports, node, port)


def _half(
    numbers: Three,
    ports: Three,
    works: Any,
    source: int,
    destination: int,
    choice: int,
    begin: int,
    links: Any,
) -> bool:
    """Write the links of a path from that one on; return whether all of them work."""
    place, well = -begin, True
    for node, port in equal_cost(*numbers, source, destination, choice):
        if 0 <= place < len(links):
            links[place] = link_of(*ports, node, port)
            well &= works[links[place]]
        place += 1
    return well


def _other(half: int, levels: int, edge: int, level: int) -> int:
    """Return an edge switch to which paths turn at that level; at level 0, the same."""
    if level == 0:
        return edge
    weight = half ** (level - 1)
    values = 2 * half if level == levels - 1 else half
    own = edge // weight % values
    return edge + ((own + 1) % values - own) * weight


@native
def _find(
    numbers: Three, halves: Halves, works: Any, random: Any, sources: Any, destinations: Any
) -> Any:
    """Return where each flow's links begin, and the links: of a random path that works."""
    half, levels, _ = numbers
    first, of_half, well, onto = halves
    starts = numpy.zeros(len(sources) + 1, numpy.int64)
    links = numpy.empty(len(sources) * 2 * levels, numpy.int32)
    place = 0
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        if works[source] and works[onto[destination]]:  # a server has one port
            level = turn(half, levels, source, destination)
            near, far = source // half, destination // half
            row = _chosen(well[0, near], well[1, far], first[level], first[level + 1], random)
            if row != NONE:
                links[place] = source
                for hop in range(level):
                    links[place + 1 + hop] = of_half[0, near, row, hop]
                    links[place + 1 + level + hop] = of_half[1, far, row, hop]
                place += 2 * level + 2
                links[place - 1] = onto[destination]
        starts[flow + 1] = place
    return starts, links[:place]


def _chosen(up: Any, down: Any, begin: int, end: int, random: Any) -> int:
    """Return a random row of a path that works, or NONE."""
    for _ in range(TRIES):
        row = begin + int(random.random() * (end - begin))
        if up[row] and down[row]:
            return row
    found, chosen = 0, NONE
    for row in range(begin, end):
        if up[row] and down[row]:
            found += 1
            if random.random() * found < 1:  # each of those found so far is as likely
                chosen = row
    return chosen


def _any(fattree: FatTree, works: Bools, random: Generator) -> Find:
    shape, halves = numbers(fattree), _halves(fattree, works)

    def find(sources: Ints, destinations: Ints) -> Routes:
        return Routes(*_find(shape, halves, works, random, sources, destinations))

    return find


AROUND = {"any": _any}
