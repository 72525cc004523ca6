"""Networks of networks with one cable between two members: DCell and FiConn.

Two servers that are together only in a member of level l have exactly one cable of that level
between their members of level l - 1. The way leads to it, over it, and on from there; so the next
hop is found by going to the first cable of the way to the first cable of the way ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# The near and the far end of the cable between the members of two servers, at that level.
LinkBetween = Callable[[int, int, int], tuple[int, int]]


def common_level(sizes: Sequence[int], a: int, b: int) -> int:
    """Return the lowest level of a member that holds both; `sizes` are those of each level.

    >>> common_level([4, 20], 2, 3), common_level([4, 20], 3, 4)
    (0, 1)
    """
    for level, size in enumerate(sizes):
        if a // size == b // size:
            return level
    raise ValueError(f"{a} and {b} are not in one network of {sizes[-1]} servers")


def next_step(
    sizes: Sequence[int], link_between: LinkBetween, here: int, destination: int
) -> tuple[int, int]:
    """Return the level of the next hop and the server it leads to."""
    target = destination
    while level := common_level(sizes, here, target):
        near, far = link_between(here, target, level)
        if near == here:
            return level, far
        target = near
    return 0, target
