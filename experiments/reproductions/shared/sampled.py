"""What simulated figures share: repeats as points, and the paper's claims held against them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy

from experiments.reporting.reproduced.result import AGREES, DIFFERS, Point
from experiments.trials.runs.statistics import estimate


def point(
    series: str,
    x: float | str,
    values: Sequence[float],
    paper: float | None = None,
    least: float = -math.inf,
) -> Point:
    """Return the mean of independent repeats as a point, with its 95 % confidence interval.

    `least` is what the true value cannot be below.

    >>> point("SPF", 0.02, [10.0, 10.0], paper=10.0)
    Point(series='SPF', x=0.02, ours=10.0, paper=10.0, low=10.0, high=10.0, ideal=None)
    """
    found = estimate(values, least=least)
    known = numpy.isfinite(found.low)
    low, high = (found.low, found.high) if known else (None, None)
    return Point(series, x, found.value if found.repeats else None, paper, low, high)


def find(points: Iterable[Point], series: str, x: float | str) -> Point:
    """Return the point of a series at x."""
    return next(one for one in points if (one.series, one.x) == (series, x))


def by_series(points: Iterable[Point]) -> list[Point]:
    """Return points series by series, in the order in which the series came."""
    points = list(points)
    names = list(dict.fromkeys(one.series for one in points))
    return sorted(points, key=lambda one: names.index(one.series))


def with_paper(
    points: Iterable[Point], paper: Mapping[tuple[str, float | str], float]
) -> list[Point]:
    """Return the points with the paper's values, by series and x, where it gives them."""
    return [replace(one, paper=paper.get((one.series, one.x), one.paper)) for one in points]


def less(first: Point, second: Point, series: str, paper: float) -> Point:
    """Return by how much one point is above another of the same x."""
    assert first.ours is not None and second.ours is not None
    return Point(series, first.x, first.ours - second.ours, paper)


class Claim(NamedTuple):
    """What a paper says of a row, and how near to it ours has to be."""

    row: Point
    tolerance: float  # in the row's own unit
    at_most: bool = False  # the paper's value is a bound from above

    @property
    def holds(self) -> bool:
        """Tell whether ours is as near, or at most as large, as claimed."""
        ours, paper = self.row.ours, self.row.paper
        if ours is None or paper is None:
            return False
        off = ours - paper
        return (off if self.at_most else abs(off)) <= self.tolerance

    def __str__(self) -> str:
        words = "at most " if self.at_most else ""
        ours = "missing" if self.row.ours is None else f"{self.row.ours:.4g}"
        return (
            f"{self.row.series}, {self.row.x}: ours is {ours}, the paper's {words}"
            f"{self.row.paper:g} (tolerance {self.tolerance:g})."
        )


def verdict(claims: Iterable[Claim]) -> tuple[str, tuple[str, ...]]:
    """Return whether all claims hold, and a sentence for each that does not.

    >>> verdict([Claim(Point("DFR", 0.2, ours=22.9, paper=22.3), 1.0)])
    ('agrees', ())
    >>> verdict([Claim(Point("DFR", 0.2, ours=28.0, paper=6.0), 0.5, at_most=True)])[1]
    ("DFR, 0.2: ours is 28, the paper's at most 6 (tolerance 0.5).",)
    """
    failed = tuple(str(claim) for claim in claims if not claim.holds)
    return (DIFFERS if failed else AGREES), failed
