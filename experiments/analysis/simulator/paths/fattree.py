"""The fat-tree's ways up and down for arrays of flows (hosts/fattree.py).

The choices u_1, u_2, ... on the way up name an equal-cost path. Written as one number in the base
n/2, u_1 as its last digit, they are the number of a path of "any"; a flow that turns round before
the top uses as many of the digits as it needs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy

from experiments.analysis.fluid.links import Routes
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.paths import Compiled
from topos.fattree import FatTree


@numba.njit(cache=True, nogil=True)
def turn_of(half: int, levels: int, source: int, destination: int) -> int:
    """Return the level at which the paths between two servers turn round."""
    turn = 0
    while turn < levels - 1 and source // half ** (turn + 1) != destination // half ** (turn + 1):
        turn += 1
    return turn


@numba.njit(cache=True, nogil=True)
def up_link(
    half: int, levels: int, servers: int, source: int, level: int, number: int, up: int
) -> int:
    """Return the link that a path goes up by; `number` is made of its choices below that level."""
    index = source // half ** (level + 1) * half**level + number
    return servers + (level * 2 * half ** (levels - 1) + index) * 2 * half + half + up


@numba.njit(cache=True, nogil=True)
def down_link(
    half: int, levels: int, servers: int, destination: int, level: int, number: int
) -> int:
    """Return the link that a path comes down by from a level's switch."""
    above = destination // half ** (level + 1) if level < levels - 1 else 0
    down = destination // half**level
    down %= 2 * half if level == levels - 1 else half
    index = above * half**level + number
    return servers + (level * 2 * half ** (levels - 1) + index) * 2 * half + down


@numba.njit(cache=True, nogil=True)
def _fill(
    half: int,
    levels: int,
    servers: int,
    by_suffix: bool,
    choice: Any,
    sources: Any,
    destinations: Any,
    links: Any,
    counts: Any,
) -> None:
    """Write the links of each flow: its server's, then those out of each switch, up and down."""
    ups = numpy.empty(levels, numpy.int64)
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        turn = turn_of(half, levels, source, destination)
        for level in range(turn):
            ups[level] = choice[flow] // half**level % half
            if by_suffix:
                place = 0 if level == 0 else ups[level - 1]
                if level + 1 < levels - 1:
                    place += source // half ** (level + 1) % half
                ups[level] = (destination + place) % half
        links[flow, 0], at = source, 1
        number = 0  # the choices so far
        for level in range(turn):
            links[flow, at] = up_link(half, levels, servers, source, level, number, ups[level])
            number, at = number * half + ups[level], at + 1
        for level in range(turn, -1, -1):
            links[flow, at] = down_link(half, levels, servers, destination, level, number)
            number, at = number // half, at + 1
        counts[flow] = at


def _routes(by_suffix: bool, fattree: FatTree, s: Ints, d: Ints, choice: Ints) -> Routes:
    links = numpy.empty((len(s), 2 * fattree.levels), numpy.int64)
    counts = numpy.empty(len(s), numpy.int64)
    _fill(fattree.half, fattree.levels, fattree.servers, by_suffix, choice, s, d, links, counts)
    starts = numpy.concatenate([[0], numpy.cumsum(counts)])
    return Routes(starts, links[numpy.arange(links.shape[1]) < counts[:, None]])


ALGORITHMS = {
    "two-level": Compiled(routes=partial(_routes, True)),
    "any": Compiled(
        routes=partial(_routes, False),
        choices=lambda fattree: fattree.half ** (fattree.levels - 1),
    ),
}
