"""Networks of networks with one cable between two members: the rules of DCell and FiConn.

Two servers that are together only in a member of level l have exactly one cable of that level
between their members of level l - 1. The way leads to it, over it, and on from there; so the next
hop is found by going to the first cable of the way to the first cable of the way ...

Scalar functions of uids, without objects: routers call them, and simulators compile them as they
are (see docs/adr/0005-rules.md).
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple, TypeAlias

Room: TypeAlias = MutableSequence[int]  # a list, or an array: what is written into


class Nested(NamedTuple):
    """The cables of a network, by their level; those of level 0 lead to a switch.

    Server ``rank * step + start`` of a member has the cable to its rank-th *other* member.
    """

    sizes: Sequence[int]  # servers of a member of each level
    steps: Sequence[int]
    starts: Sequence[int]
    ports: Sequence[int]


def common_level(sizes: Sequence[int], a: int, b: int) -> int:
    """Return the lowest level of a member that holds both; `sizes` are those of each level.

    >>> common_level([4, 20], 2, 3), common_level([4, 20], 3, 4)
    (0, 1)
    """
    level = 0
    while a // sizes[level] != b // sizes[level]:
        level += 1
    return level


def link_between(net: Nested, a: int, b: int, level: int) -> tuple[int, int]:
    """Return the ends of the level's cable between the members of two servers (getLink)."""
    size, whole = net.sizes[level - 1], net.sizes[level]
    step, start = net.steps[level], net.starts[level]
    base = a // whole * whole
    own, other = (a - base) // size, (b - base) // size
    near = base + own * size + (other - (other > own)) * step + start
    far = base + other * size + (own - (own > other)) * step + start
    return near, far


def far_end(net: Nested, server: int, level: int) -> int:
    """Return the server at the other end of a server's cable of that level."""
    size, whole = net.sizes[level - 1], net.sizes[level]
    base = server // whole * whole
    own, rank = (server - base) // size, (server % size - net.starts[level]) // net.steps[level]
    return link_between(net, server, base + (rank + (rank >= own)) * size, level)[1]


def next_hop(net: Nested, here: int, destination: int) -> tuple[int, int]:
    """Return the port of the next hop and the server it leads to."""
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
    """Write the ports and peers of all hops of the way, and return how many they are.

    They are those that `next_hop` finds one by one. Here no cable is computed twice: the ends of
    those still to come are kept on a stack with room for k + 1 of each.
    """
    near, far, levels = stack
    here, hops, depth = source, 0, 0
    near[0] = destination
    while here != destination:
        target = near[depth]
        if here == target:  # over the cable
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
    """Return the port and the peer of each hop of the way."""
    levels = len(net.sizes)
    stack = [0] * levels, [0] * levels, [0] * levels
    ports, peers = [0] * 2**levels, [0] * 2**levels
    count = write_hops(net, source, destination, stack, ports, peers)
    return list(zip(ports[:count], peers[:count], strict=True))
