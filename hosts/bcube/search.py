"""Search for a path parallel to those in use (Guo 2009, section 4.2): a rule
(`pillarbox.hosts.base.rules`).

The paper's breadth-first search, run from both ends: it meets halfway, and stops at its first step
if one end has no free port. Visited nodes are marked in tables that are accessed by subscripts
only: dicts in a router, which visits few servers, and arrays in the simulator, which runs many
searches. In arrays the mark is the number of the search, so that tables need not be cleared between
searches.

A switch of level l is identified by the server below it whose digit of level l is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeVar

from pillarbox.hosts.base.rules import NONE, Values
from pillarbox.hosts.bcube.rules import width

Key_contra = TypeVar("Key_contra", contravariant=True)


class CableStates(Protocol):
    """Table by server and level: True if the cable and both its ends work."""

    def __getitem__(self, cable: tuple[int, int], /) -> bool: ...


class FailedLinks(Protocol):
    """Table by pair of servers: True if the link between them has failed."""

    def __len__(self) -> int: ...
    def __getitem__(self, servers: tuple[int, int], /) -> bool: ...


class Marks(Protocol[Key_contra]):
    """Table of numbers by server, or by level and switch: a dict or an array."""

    def __getitem__(self, key: Key_contra, /) -> int: ...
    def __setitem__(self, key: Key_contra, number: int, /) -> None: ...


class Net(NamedTuple):
    """A BCube as input of a path search; nodes marked with the number `closed` are not visited."""

    works: CableStates  # True if a cable and both its ends work, by server and level
    # By pair of servers: True if the link between them has failed, though its cables may work.
    # Empty if all failures are given as failed cables.
    apart: FailedLinks
    closed_servers: Marks[int]  # mark of each server, compared with `closed`
    closed_switches: Marks[tuple[int, int]]  # mark of each switch by level, compared with `closed`
    closed: int
    weights: Values[int]  # weight of the digit at each level, and at last the number of servers
    from_zero: bool  # True to try digit values from 0 upwards, not from the server's digit + 1


class Wave(NamedTuple):
    """State of a bidirectional breadth-first path search, from one of its two ends."""

    reached: Marks[int]  # number of the last search that reached each server
    passed: Marks[tuple[int, int]]  # number of the last search that finished each switch, by level
    came_from: Marks[int]  # previous server on the path to each server
    came_by: Marks[int]  # level of the hop from the previous server to each server
    queue: Marks[int]  # reached servers in breadth-first order


def meeting_server(
    net: Net,
    near: Wave,
    far: Wave,
    number: int,
    most: int,
    source: int,
    destination: int,
) -> int:
    """Return the server where the searches from both ends meet, NONE without a path."""
    near.queue[0], far.queue[0] = source, destination
    near.reached[source] = far.reached[destination] = number
    near_begin, near_end, far_begin, far_end = 0, 1, 0, 1
    for _ in range(most):
        if near_end - near_begin <= far_end - far_begin:
            found, end = advance(net, near, far, number, near_begin, near_end)
            near_begin, near_end = near_end, end
            stuck = near_begin == near_end
        else:
            found, end = advance(net, far, near, number, far_begin, far_end)
            far_begin, far_end = far_end, end
            stuck = far_begin == far_end
        if found != NONE or stuck:
            return found
    return NONE


def advance(
    net: Net,
    wave: Wave,
    other: Wave,
    number: int,
    begin: int,
    end: int,
) -> tuple[int, int]:
    """Extend a search by one hop; return the server where both meet (or NONE), and `end`."""
    size = end
    for place in range(begin, end):
        server = rest = wave.queue[place]
        for level in range(len(net.weights) - 2, -1, -1):
            values, weight = width(net.weights, level), net.weights[level]
            own = rest // weight
            rest -= own * weight
            switch = server - own * weight
            if (
                net.works[server, level]
                and wave.passed[level, switch] != number
                and net.closed_switches[level, switch] != net.closed
            ):
                done = number
                # Start at the digit after the server's own, as BuildPathSet's detours do, so that
                # servers that search at the same time do not all choose digit 0.
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
                        done = 0  # another server on this switch may still reach the peer
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


def joined_hops(
    near: Wave, far: Wave, source: int, destination: int, middle: int
) -> Iterator[tuple[int, int]]:
    """Yield the hops of the path through server `middle`, where the two searches met."""
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
