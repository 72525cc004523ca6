"""BCube's rules (Guo 2009, section 3), on plain numbers: see `pillarbox.hosts.base.rules`.

A server is numbered by its address, the sum of its digits times their weights (`DigitNetwork`).
The parameter of a network is `weights`: one weight per level, and at last the number of servers.
So the levels may have different sizes, as in a partial BCube.
"""

from __future__ import annotations

from collections.abc import Iterator

from pillarbox.hosts.base.rules import Rule, Values
from pillarbox.topos.base.digits import DigitNetwork

# A flow is large if its rate is at least the fraction LARGE of a port's rate, over at least
# LARGE_AFTER_S seconds; it counts as large for LATELY_S seconds (see
# `pillarbox.hosts.bcube.pairs`).
LARGE, LARGE_AFTER_S = 0.05, 0.1
LATELY_S = 2.0

Hops = Iterator[tuple[int, int]]  # level of the digit that a hop corrects, and next server


def numbers(network: DigitNetwork) -> tuple[tuple[int, ...]]:
    """Return the weights of a network's digits, for the path rules."""
    return (network.weights,)


def digit(weights: Values[int], server: int, level: int) -> int:
    """Return the digit at a level (a_level) of a server's address."""
    return server % weights[level + 1] // weights[level]


def with_digit(weights: Values[int], server: int, level: int, value: int) -> int:
    """Return the number of the server whose address has one digit replaced."""
    weight = weights[level]
    return server + (value - server % weights[level + 1] // weight) * weight


def width(weights: Values[int], level: int) -> int:
    """Return the number of values of an address digit at a level."""
    return weights[level + 1] // weights[level]


def corrected(weights: Values[int], here: int, destination: int, level: int) -> int:
    """Return the next server: `here` with its digit at a level replaced by the destination's."""
    upper, weight = weights[level + 1], weights[level]
    return here + (destination % upper // weight - here % upper // weight) * weight


def corrections(weights: Values[int], source: int, here: int, destination: int, level: int) -> Hops:
    """Yield the hop from the source to `here`, if they differ, and the hops that correct digits.

    Digits are corrected from `level` downwards, then from the top level. If `here` is not the
    source, the hop to `here` changes the digit at `level`, which is then corrected last.
    """
    levels = len(weights) - 1
    if here != source:
        yield level, here
        level -= 1
    for i in range(levels):
        place = (level - i) % levels
        onward = corrected(weights, here, destination, place)
        if onward != here:
            yield place, onward
            here = onward


def highest_first(weights: Values[int], source: int, destination: int, _choice: int) -> Hops:
    """Return the hops of BCubeRouting (Fig. 2), which corrects digits from level k down to 0."""
    return corrections(weights, source, source, destination, len(weights) - 2)


def parallel(weights: Values[int], source: int, destination: int, choice: int) -> Hops:
    """Return the hops of path P_{k - choice} of BuildPathSet (Fig. 3)."""
    level = len(weights) - 2 - choice
    own, values = digit(weights, source, level), width(weights, level)
    here = source
    # AltDCRouting: detour over the neighbour with the next value of the digit
    if own == digit(weights, destination, level):
        if values == 1:
            # A partial BCube lacks the neighbour for this detour, so the path has no hops.
            source = here = destination
        here = with_digit(weights, here, level, (own + 1) % values)
    return corrections(weights, source, here, destination, level)


def is_large(sent: float, rate: float, seconds: float) -> bool:
    """Return True if `sent` bits in `seconds` are a large share of a port's rate in bit/s."""
    return seconds >= LARGE_AFTER_S and sent >= LARGE * rate * seconds


def crowded(large_flows: Values[int], works: Values[object], here: int) -> bool:
    """Return True if a working path carries fewer large flows of a pair of servers than `here`.

    `here` is the number of those flows on the path in use; `large_flows` and `works` have one entry
    per path: its number of flows, and True if the path works.
    """
    fewest = here
    for path in range(len(large_flows)):
        if works[path]:
            fewest = min(fewest, large_flows[path])
    return fewest < here


def equal_share(rate: float, others: int, own: float) -> float:
    """Return the upper bound of the bandwidth available to a flow on a path: an equal share.

    `others` is the number of the pair's other large flows on that path; `own` is the rate at which
    the flow itself already sends there.
    """
    return max(0.0, rate / (1 + others) - own)


BCUBE_ROUTING = Rule(highest_first, numbers, lambda b: b.k + 1, lambda b: range(b.ports))
BUILD_PATH_SET = Rule(
    parallel, numbers, lambda b: b.k + 2, lambda b: range(b.ports), lambda b: b.k + 1
)

RULES = {"bcube": BCUBE_ROUTING, "parallel": BUILD_PATH_SET}
