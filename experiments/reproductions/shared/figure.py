"""What a figure is, and what is made of its points and claims: the same for all of them.

A figure is a function of `Settings` that returns what it has `Made`, registered by its name::

    @figure("dcell-fig7", "path failures of DFR and shortest paths while servers fail (Guo 2008)",
            "Path failures in a DCell_3 while servers fail", "failed servers, %", "ratio, %")
    def fig7(settings: Settings) -> Made: ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy

from experiments.reporting.reproduced.result import (
    AGREES,
    DIFFERS,
    Point,
    Reproduction,
    Settings,
)
from experiments.trials.runs.statistics import estimate
from topos.base.errors import require

Papers = Mapping[tuple[str, float | str], float]  # a paper's values, by series and x


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


Judged = tuple[str, Sequence[str]]  # a verdict and its reasons


def verdict(claims: Iterable[Claim]) -> Judged:
    """Return whether all claims hold, and a sentence for each that does not.

    >>> verdict([Claim(Point("DFR", 0.2, ours=22.9, paper=22.3), 1.0)])
    ('agrees', ())
    >>> verdict([Claim(Point("DFR", 0.2, ours=28.0, paper=6.0), 0.5, at_most=True)])[1]
    ("DFR, 0.2: ours is 28, the paper's at most 6 (tolerance 0.5).",)
    """
    failed = tuple(str(claim) for claim in claims if not claim.holds)
    return (DIFFERS if failed else AGREES), failed


class Made(NamedTuple):
    """What came of a figure."""

    points: Iterable[Point]
    claims: Sequence[Claim] = ()
    rows: Iterable[Point] | None = None  # those of the claims by default
    judged: Judged | None = None  # by the claims by default
    why: str = ""  # the reason why it does not agree, if it does not
    notes: Iterable[str] = ()
    title: str = ""  # where the figure's own does not say all


@dataclass(frozen=True)
class Figure:
    """A paper's figure or table."""

    name: str
    about: str
    title: str
    x: str
    y: str
    make: Callable[[Settings], Made]
    live: bool = False  # needs a lab, and so root
    look: Mapping[str, Any] | None = None  # kind, log_x, log_y (see `Reproduction`)

    def reproduce(self, settings: Settings) -> Reproduction:
        """Make it again."""
        return self.of(self.make(settings))

    def of(self, made: Made) -> Reproduction:
        """Return what was made, with a verdict."""
        word, reasons = made.judged or verdict(made.claims)
        if made.why and word != AGREES:
            reasons = (*reasons, made.why)
        rows = (claim.row for claim in made.claims) if made.rows is None else made.rows
        return Reproduction(
            name=self.name,
            title=made.title or self.title,
            x_label=self.x,
            y_label=self.y,
            points=tuple(made.points),
            verdict=word,
            reasons=tuple(reasons),
            notes=tuple(made.notes),
            rows=tuple(rows),
            **(self.look or {}),
        )


FIGURES: dict[str, Figure] = {}  # all that were registered


def figure(
    name: str, about: str, title: str, x: str = "", y: str = "", *, live: bool = False, **look: Any
) -> Callable[[Callable[[Settings], Made]], Figure]:
    """Register the decorated function as a figure."""

    def register(make: Callable[[Settings], Made]) -> Figure:
        require(name not in FIGURES, f"there are two figures {name}: rename one")
        FIGURES[name] = Figure(name, about, title, x, y, make, live, look)
        return FIGURES[name]

    return register


# -- points ----------------------------------------------------------------------------------------


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


def ours(points: Iterable[Point], series: str, x: float | str) -> float:
    """Return our value of a series at x, which there must be."""
    found = find(points, series, x).ours
    assert found is not None
    return found


def by_series(points: Iterable[Point]) -> list[Point]:
    """Return points series by series, in the order in which the series came."""
    points = list(points)
    names = list(dict.fromkeys(one.series for one in points))
    return sorted(points, key=lambda one: names.index(one.series))


def with_paper(points: Iterable[Point], paper: Papers) -> list[Point]:
    """Return the points with the paper's values where it gives them."""
    return [replace(one, paper=paper.get((one.series, one.x), one.paper)) for one in points]
