"""BCube's rules (Guo 2009, section 3), on plain numbers: see `hosts.base.rules`.

A server is its BCube address, the sum of a_i n^i. The numbers of a network are n, k and `first`,
how many values the first digit takes, that of level k: n, in a partial BCube fewer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hosts.base.rules import Rule
from topos.bcube import BCube

# A large flow takes this share of a port's rate, over at least so long, and counts as large for a
# while (see `hosts.bcube.pairs`).
LARGE, LARGE_AFTER_S = 0.05, 0.1
LATELY_S = 2.0

Hops = Iterator[tuple[int, int]]  # the level that a hop corrects, and the server it leads to


def numbers(bcube: BCube) -> tuple[int, int, int]:
    """Return n, k and `first`."""
    return bcube.n, bcube.k, bcube.radices()[0]


def digit(n: int, server: int, level: int) -> int:
    """Return a_level of the server."""
    weight: int = n**level
    return server // weight % n


def with_digit(n: int, server: int, level: int, value: int) -> int:
    """Return the server that differs at most in that digit."""
    weight: int = n**level
    return server + (value - server // weight % n) * weight


def width(n: int, k: int, first: int, level: int) -> int:
    """Return how many values the digit takes."""
    return first if level == k else n


def corrected(n: int, here: int, destination: int, level: int) -> int:
    """Return the server that has that digit as the destination has it."""
    return with_digit(n, here, level, digit(n, destination, level))


def corrections(n: int, k: int, source: int, here: int, destination: int, level: int) -> Hops:
    """Yield the hop to `here`, if it is not the source, and those that correct digits from there.

    From that level downwards, and on from level k. The hop to `here` is one of that level, too,
    and its digit comes last then.
    """
    if here != source:
        yield level, here
        level -= 1
    for i in range(k + 1):
        place = (level - i) % (k + 1)
        onward = corrected(n, here, destination, place)
        if onward != here:
            yield place, onward
            here = onward


def highest_first(n: int, k: int, _first: int, source: int, destination: int, _choice: int) -> Hops:
    """Return the hops of BCubeRouting (Fig. 2): digits are corrected from level k to 0."""
    return corrections(n, k, source, source, destination, k)


def parallel(n: int, k: int, first: int, source: int, destination: int, choice: int) -> Hops:
    """Return the hops of P_{k - choice} of BuildPathSet (Fig. 3)."""
    level = k - choice
    own, values = digit(n, source, level), width(n, k, first, level)
    here = source
    if own == digit(n, destination, level):  # AltDCRouting, by the neighbour with the next digit
        if values == 1:
            source = here = destination  # no neighbour, and no path: no hops
        here = with_digit(n, here, level, (own + 1) % values)
    return corrections(n, k, source, here, destination, level)


def is_large(sent: float, rate: float, seconds: float) -> bool:
    """Tell whether what a flow has sent in that time is much for a port of that rate."""
    return seconds >= LARGE_AFTER_S and sent >= LARGE * rate * seconds


def crowded(beside: Any, works: Any, here: int) -> bool:
    """Tell whether fewer large flows of the pair use another path, which works, than are `here`.

    `beside` and `works` have an entry for each path.
    """
    fewest = here
    for path in range(len(beside)):
        if works[path]:
            fewest = min(fewest, beside[path])
    return fewest < here


def unshared(rate: float, others: int, own: float) -> float:
    """Return what is free on a path, at most, beside so many large flows of the same pair.

    `own` is what the flow itself sends there already.
    """
    return max(0.0, rate / (1 + others) - own)


BCUBE_ROUTING = Rule(highest_first, numbers, lambda b: b.k + 1, lambda b: range(b.ports))
BUILD_PATH_SET = Rule(
    parallel, numbers, lambda b: b.k + 2, lambda b: range(b.ports), lambda b: b.k + 1
)

RULES = {"bcube": BCUBE_ROUTING, "parallel": BUILD_PATH_SET}
