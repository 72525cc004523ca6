"""The A/A check: one system, measured twice under two labels, must not differ from itself.

A method of comparison that finds a difference where there is none finds them anywhere. So the very
runner and statistics that compare two systems are given one system as both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topos.base.errors import require

if TYPE_CHECKING:
    from experiments.runs.statistics import Comparison

LEAST_PAIRS = 5


def same_twice(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Return how a system compares with itself; `differs` says that the method is at fault.

    By chance alone 1 check in 20 says so: the interval is of 95 %.

    Parameters
    ----------
    first, second : sequence of float
        What the trials under either label gave (goodput, completion time): those at the same place
        ran in the same block, interleaved in random order.

    Examples
    --------
    >>> same_twice([10.0, 10.2, 9.9, 10.1, 10.0], [10.1, 10.0, 10.0, 10.0, 10.1]).differs
    False
    >>> same_twice([10.0, 10.2, 9.9, 10.1, 10.0], [11.1, 11.0, 11.0, 11.2, 11.1]).differs
    True
    """
    from experiments.runs.statistics import compare

    require(
        len(first) == len(second) >= LEAST_PAIRS,
        f"an A/A check takes {LEAST_PAIRS} pairs of trials or more, not {len(first)} of one label "
        f"and {len(second)} of the other",
    )
    return compare(dict(enumerate(first)), dict(enumerate(second)))
