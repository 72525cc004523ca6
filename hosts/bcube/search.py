"""The search for a path beside those in use (Guo 2009, section 4.2): a rule (`hosts.base.rules`).

The paper's breadth-first search, from both ends at once: it meets halfway, and an end without a
free port stops it at its first step. What it marks stands in tables that are read and written by
subscripts alone: dicts in a router, which meets few servers, and arrays in the simulator, which
searches again and again. There a mark is the number of the search that made it, so that nothing
has to be cleared.

A switch of level l is known by the server below it whose digit of that level is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hosts.base.rules import NONE
from hosts.bcube.rules import width


class Net(NamedTuple):
    """What a search goes by; `closed` is the number that marks what it must not pass."""

    works: Any  # by server and level: whether that cable, and what is at its ends, works
    # By two servers: whether what is between them has failed, though both cables may work. Empty
    # where failures are known by their cables.
    apart: Any
    closed_servers: Any  # by server
    closed_switches: Any  # by level and switch
    closed: int
    weights: Any  # by level: what a digit counts for in a server's number
    from_zero: bool  # try digits from 0 on, and not from the one behind a server's own


class Wave(NamedTuple):
    """What the search from one end has found."""

    reached: Any  # by server: the search that has reached it
    passed: Any  # by level and switch: the search that has done with it
    came_from: Any  # by server: the one before it
    came_by: Any  # by server: over which level
    queue: Any  # servers in the order of the search


def meeting(
    n: int,
    k: int,
    first: int,
    net: Net,
    near: Wave,
    far: Wave,
    number: int,
    most: int,
    source: int,
    destination: int,
) -> int:
    """Return a server in the middle of a shortest path of at most that many hops, or NONE."""
    near.queue[0], far.queue[0] = source, destination
    near.reached[source] = far.reached[destination] = number
    near_begin, near_end, far_begin, far_end = 0, 1, 0, 1
    for _ in range(most):
        if near_end - near_begin <= far_end - far_begin:
            found, end = advance(n, k, first, net, near, far, number, near_begin, near_end)
            near_begin, near_end = near_end, end
            stuck = near_begin == near_end
        else:
            found, end = advance(n, k, first, net, far, near, number, far_begin, far_end)
            far_begin, far_end = far_end, end
            stuck = far_begin == far_end
        if found != NONE or stuck:
            return found
    return NONE


def advance(
    n: int,
    k: int,
    first: int,
    net: Net,
    wave: Wave,
    other: Wave,
    number: int,
    begin: int,
    end: int,
) -> tuple[int, int]:
    """Go one hop further; return where waves meet, or NONE, and where the queue ends then."""
    size = end
    for place in range(begin, end):
        server = rest = wave.queue[place]
        for level in range(k, -1, -1):
            values, weight = width(n, k, first, level), net.weights[level]
            own = rest // weight
            rest -= own * weight
            switch = server - own * weight
            if (
                net.works[server, level]
                and wave.passed[level, switch] != number
                and net.closed_switches[level, switch] != net.closed
            ):
                done = number
                # From the next digit on, as BuildPathSet's detours go: so servers that search at
                # the same time do not all crowd on digit 0.
                start = 0 if net.from_zero else own + 1
                for i in range(start, start + values):
                    peer = switch + (i if i < values else i - values) * weight
                    if (
                        wave.reached[peer] == number
                        or not net.works[peer, level]
                        or net.closed_servers[peer] == net.closed
                    ):
                        continue
                    if len(net.apart) and net.apart[server, peer]:
                        done = 0  # another server below the switch may reach it
                        continue
                    wave.reached[peer] = number
                    wave.came_from[peer] = server
                    wave.came_by[peer] = level
                    if other.reached[peer] == number:
                        return peer, size
                    wave.queue[size] = peer
                    size += 1
                wave.passed[level, switch] = done
    return NONE, size


def joined(
    near: Wave, far: Wave, source: int, destination: int, middle: int
) -> Iterator[tuple[int, int]]:
    """Yield the hops of the path over the server where the waves have met."""
    hops, at = 0, middle
    while at != source:
        hops, at = hops + 1, near.came_from[at]
    for left in range(hops - 1, -1, -1):
        at = middle
        for _ in range(left):
            at = near.came_from[at]
        yield near.came_by[at], at
    at = middle
    while at != destination:
        level, at = far.came_by[at], far.came_from[at]
        yield level, at
