"""The fat-tree's flows on a random one of the equal-cost paths that work.

Most tries at random find one soon, where most paths work. Where few or none do, all are looked at;
either way each path that works is as likely.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy.random import Generator

from experiments.analysis.fluid.links import Routes, link_of, ports_of
from experiments.analysis.simulator.around import Find
from experiments.analysis.simulator.compiled import native
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.paths import routes
from hosts.base.rules import NONE
from hosts.fattree import equal_cost, numbers, turn
from topos.fattree import FatTree

TRIES = 32
Three = tuple[int, int, int]  # numbers of a network


@native
def _choose(
    numbers: Three,
    ports: Three,
    works: Any,
    random: Any,
    sources: Any,
    destinations: Any,
    choice: Any,
) -> None:
    """Write the number of a random path that works for each flow, or NONE."""
    half, levels, _ = numbers
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        choice[flow] = NONE
        if not (works[source] and works[destination]):  # the cables of the two servers
            continue
        paths = half ** turn(half, levels, source, destination)
        for _ in range(TRIES):
            number = int(random.random() * paths)
            if _is_working(numbers, ports, works, source, destination, number):
                choice[flow] = number
                break
        if choice[flow] != NONE:
            continue
        found = 0
        for number in range(paths):
            if _is_working(numbers, ports, works, source, destination, number):
                found += 1
                if random.random() * found < 1:  # each of those found so far is as likely
                    choice[flow] = number


def _is_working(
    numbers: Three, ports: Three, works: Any, source: int, destination: int, number: int
) -> bool:
    """Tell whether the path of that number works."""
    for node, port in equal_cost(*numbers, source, destination, number):
        if not works[link_of(*ports, node, port)]:
            return False
    return True


def _any(fattree: FatTree, works: Bools, random: Generator) -> Find:
    shape = numbers(fattree), ports_of(fattree)

    def find(sources: Ints, destinations: Ints) -> Routes:
        choice = numpy.empty(len(sources), numpy.int64)
        _choose(*shape, works, random, sources, destinations, choice)
        left = choice != NONE
        found = routes(fattree, "any", sources[left], destinations[left], choice[left])
        lengths = numpy.zeros(len(sources) + 1, numpy.int64)
        lengths[1:][left] = numpy.diff(found.starts)
        return Routes(numpy.cumsum(lengths), found.links)

    return find


AROUND = {"any": _any}
