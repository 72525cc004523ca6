"""Routing rules of recursive networks with one cable between two members: DCell and FiConn.

If level l is the lowest level at which two servers are in the same member, exactly one level-l
cable joins their members of level l - 1. The path leads to that cable, over the cable, and on to
the destination. So the next hop is the first hop of the path to the near end of that cable,
computed by the same rule.

These are scalar functions of uids, without objects: routers call the functions, and simulators
compile them unchanged (see docs/adr/0005-rules.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Room(Protocol):
    """Numbers that a rule reads and writes: a list or an array."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> int: ...
    def __setitem__(self, place: int, number: int, /) -> None: ...


class Nested(NamedTuple):
    """Wiring of a recursive network (DCell, FiConn) by level; level-0 cables lead to a switch.

    Server ``rank * step + start`` of a member has the cable to the rank-th *other* member.
    """

    sizes: Sequence[int]  # number of servers in a sub-network of each level
    steps: Sequence[int]
    starts: Sequence[int]
    ports: Sequence[int]


def common_level(sizes: Sequence[int], a: int, b: int) -> int:
    """Return the lowest level at which one sub-network contains both servers.

    >>> common_level([4, 20], 2, 3), common_level([4, 20], 3, 4)
    (0, 1)
    """
    level = 0
    while a // sizes[level] != b // sizes[level]:
        level += 1
    return level


def link_between(net: Nested, a: int, b: int, level: int) -> tuple[int, int]:
    """Return the ends of the cable between two servers' sub-networks of a level (getLink)."""
    size, whole = net.sizes[level - 1], net.sizes[level]
    step, start = net.steps[level], net.starts[level]
    base = a // whole * whole
    own, other = (a - base) // size, (b - base) // size
    near = base + own * size + (other - (other > own)) * step + start
    far = base + other * size + (own - (own > other)) * step + start
    return near, far


def far_end(net: Nested, server: int, level: int) -> int:
    """Return the server at the far end of a server's cable of the given level."""
    size, whole = net.sizes[level - 1], net.sizes[level]
    base = server // whole * whole
    own, rank = (server - base) // size, (server % size - net.starts[level]) // net.steps[level]
    return link_between(net, server, base + (rank + (rank >= own)) * size, level)[1]


def next_hop(net: Nested, here: int, destination: int) -> tuple[int, int]:
    """Return the next hop to a destination: egress port and next server."""
    target = destination
    level = common_level(net.sizes, here, target)
    while level > 0:
        near, far = link_between(net, here, target, level)
        if near == here:
            return net.ports[level], far
        target = near
        level = common_level(net.sizes, here, target)
    return net.ports[0], target


def write_hops(
    net: Nested,
    source: int,
    destination: int,
    stack: tuple[Room, Room, Room],
    ports: Room,
    peers: Room,
) -> int:
    """Write the egress ports and next servers of a path's hops; return the number of hops.

    The hops are the same as those of repeated calls of `next_hop`, but each cable is computed only
    once: a stack with k + 1 entries holds the ends of the cables still to cross.
    """
    near, far, levels = stack
    here, hops, depth = source, 0, 0
    near[0] = destination
    while here != destination:
        target = near[depth]
        if here == target:  # near end of the next cable: the path crosses the cable
            here, level = far[depth], levels[depth]
            depth -= 1
        else:
            level = common_level(net.sizes, here, target)
            if level > 0:
                depth += 1
                near[depth], far[depth] = link_between(net, here, target, level)
                levels[depth] = level
                continue
            here = target
        ports[hops], peers[hops] = net.ports[level], here
        hops += 1
    return hops


def hops_between(net: Nested, source: int, destination: int) -> list[tuple[int, int]]:
    """Return the hops of a DCell or FiConn path, each as egress port and next server."""
    levels = len(net.sizes)
    stack = [0] * levels, [0] * levels, [0] * levels
    ports, peers = [0] * 2**levels, [0] * 2**levels
    count = write_hops(net, source, destination, stack, ports, peers)
    return list(zip(ports[:count], peers[:count], strict=True))
