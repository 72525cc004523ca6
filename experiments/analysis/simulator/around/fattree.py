"""The fat-tree's flows on a random one of the equal-cost paths that work.

Most tries at random find one soon, where most paths work. Where few or none do, all are looked at;
either way each path that works is as likely.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy
from numpy.random import Generator

from experiments.analysis.fluid.links import Routes
from experiments.analysis.simulator.around import Find
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.paths import routes
from experiments.analysis.simulator.paths.fattree import down_link, turn_of, up_link
from topos.fattree import FatTree

TRIES = 32
NONE = -1


@numba.njit(cache=True, nogil=True)
def _is_working(
    half: int,
    levels: int,
    servers: int,
    works: Any,
    source: int,
    destination: int,
    turn: int,
    choice: int,
) -> bool:
    """Tell whether the path of that number works, its lower links first."""
    number = 0
    for level in range(turn):
        up = choice // half**level % half
        if not works[down_link(half, levels, servers, destination, level, number)]:
            return False
        if not works[up_link(half, levels, servers, source, level, number, up)]:
            return False
        number = number * half + up
    return works[down_link(half, levels, servers, destination, turn, number)]


@numba.njit(cache=True, nogil=True)
def _choose(
    half: int,
    levels: int,
    servers: int,
    works: Any,
    random: Any,
    sources: Any,
    destinations: Any,
    choice: Any,
) -> None:
    """Write the number of a random path that works for each flow, or NONE."""
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        choice[flow] = NONE
        if not (works[source] and works[destination]):  # the cables of the two servers
            continue
        turn = turn_of(half, levels, source, destination)
        paths = half**turn
        for _ in range(TRIES):
            number = int(random.random() * paths)
            if _is_working(half, levels, servers, works, source, destination, turn, number):
                choice[flow] = number
                break
        if choice[flow] != NONE:
            continue
        found = 0
        for number in range(paths):
            if _is_working(half, levels, servers, works, source, destination, turn, number):
                found += 1
                if random.random() * found < 1:  # each of those found so far is as likely
                    choice[flow] = number


def _any(fattree: FatTree, works: Bools, random: Generator) -> Find:
    shape = fattree.half, fattree.levels, fattree.servers

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
