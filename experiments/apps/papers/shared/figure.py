"""Figures, their points and claims, and the verdicts that follow.

A figure is a function of `Settings` that returns a `Made`, registered under a name::

    @figure("dcell-fig7", "path failures of DFR and shortest paths while servers fail (Guo 2008)",
            "Path failures in a DCell_3 while servers fail", "failed servers, %", "ratio, %")
    def fig7(settings: Settings) -> Made: ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy

from pillarbox.experiments.base.units import figures_apart
from pillarbox.experiments.runs.reporting.reproduced.result import (
    AGREES,
    CLAIM_HOLDS,
    DIFFERS,
    UNDECIDED,
    VERDICTS,
    Point,
    Reproduction,
    Settings,
)
from pillarbox.experiments.runs.trials.statistics import estimate
from pillarbox.topos.base.errors import require

Papers = Mapping[tuple[str, float | str], float]  # a paper's values, by series and x


class Claim(NamedTuple):
    """The value that a figure's row should have: a number, or the bound of a sentence."""

    row: Point
    tolerance: float = 0.0  # tolerance in the row's unit
    at_most: bool = False  # whether the wanted value is an upper bound
    at_least: bool = False  # whether the wanted value is a lower bound
    # wanted value of the row, if different from the paper's
    wanted: float | None = None
    sentence: str = ""  # sentence of the paper that is tested, by `quoted`

    @property
    def value(self) -> float | None:
        """Value that the claim wants of a figure's row: the claim's own, or else the paper's."""
        return self.row.paper if self.wanted is None else self.wanted

    @property
    def holds(self) -> bool | None:
        """True if our value agrees with the paper's claim; None if other random draws may disagree.

        A drawn or measured value is within the tolerance if its whole confidence interval is, and
        outside if no part of the interval is inside.

        >>> of_draws = Point("BCube", 20, ours=990.0, paper=765.0, low=930.0, high=1050.0, draws=5)
        >>> [Claim(of_draws, tolerance).holds for tolerance in (100.0, 200.0, 300.0)]
        [False, None, True]
        """
        if self.row.ours is None or self.value is None:
            return False
        low, high = interval(self.row)
        least = -math.inf if self.at_most else self.value - self.tolerance
        most = math.inf if self.at_least else self.value + self.tolerance
        if least <= low and high <= most:
            return True
        return False if high < least or most < low else None

    @property
    def verdict(self) -> str:
        """Verdict on this claim alone.

        >>> twice = Claim(Point("DCell", "speed-up", 2.5, 2.0), at_least=True, sentence="faster")
        >>> twice.verdict, twice._replace(sentence="").verdict
        ('claim holds', 'agrees')
        """
        if not self.holds:
            return UNDECIDED if self.holds is None else DIFFERS
        return CLAIM_HOLDS if self.sentence else AGREES

    @property
    def comparison(self) -> str:
        """Our value and the wanted one as text."""
        row = self.row
        words = "at most " if self.at_most else "at least " if self.at_least else ""
        ours = "missing" if row.ours is None else f"{row.ours:.4g}"
        if row.spread:
            figures = figures_apart(*row.spread, least=4)
            ours += " ({:.{figures}g} to {:.{figures}g})".format(*row.spread, figures=figures)
        whose = "the paper's" if self.wanted is None else "wanted is"
        value = "unknown" if self.value is None else f"{self.value:.6g}"
        tolerance = f" (tolerance {self.tolerance:g})" if self.tolerance or not words else ""
        repeats = f"{row.draws} repeat{'s' * (row.draws != 1)}"
        open_end = f", not decided by {repeats}" if self.holds is None else ""
        name = ", ".join(filter(None, (row.series, f"{row.x}")))
        return f"{name}: ours is {ours}, {whose} {words}{value}{tolerance}{open_end}"

    def __str__(self) -> str:
        return f"{self.sentence}: {self.comparison}." if self.sentence else f"{self.comparison}."


def interval(row: Point) -> tuple[float, float]:
    """Return the confidence interval of a point's value; infinite for a single draw."""
    if row.ours is None or row.draws == 1:
        return -math.inf, math.inf
    if row.draws == 0 or row.low is None or row.high is None:
        return row.ours, row.ours
    return row.low, row.high


def quoted(sentence: str, source: str) -> str:
    """Return a sentence of a paper in quotation marks, with the paper and the section.

    >>> quoted("DCell was about 2 times faster than Tree.", "Guo 2008, 7.3")
    '"DCell was about 2 times faster than Tree." (Guo 2008, 7.3)'
    """
    return f'"{sentence}" ({source})'


Judged = tuple[str, Sequence[str]]  # a verdict and its reasons
MOST_COMPARISONS = 3  # maximum number of values that are listed with a sentence that holds


def overall(verdicts: Iterable[str]) -> str:
    """Return the verdict on a whole figure from those on its values; AGREES without any.

    >>> overall(["agrees", "claim holds", "differs"])
    'differs'
    """
    return min(verdicts, key=VERDICTS.index, default=AGREES)


def verdict(claims: Iterable[Claim]) -> Judged:
    """Return a figure's verdict, with its reasons.

    Reasons are a sentence for each claim that fails or is undecided, and one for each sentence of
    the paper that holds.

    >>> verdict([Claim(Point("DFR", 0.2, ours=22.9, paper=22.3), 1.0)])
    ('agrees', ())
    >>> verdict([Claim(Point("DFR", 0.2, ours=28.0, paper=6.0), 0.5, at_most=True)])[1]
    ("DFR, 0.2: ours is 28, the paper's at most 6 (tolerance 0.5).",)
    """
    by_verdict: dict[str, list[Claim]] = {word: [] for word in VERDICTS}
    for claim in claims:
        by_verdict[claim.verdict].append(claim)
    failed = map(str, (*by_verdict[DIFFERS], *by_verdict[UNDECIDED]))
    word = overall(word for word, found in by_verdict.items() if found)
    return word, (*failed, *_held_sentences(by_verdict[CLAIM_HOLDS]))


def _held_sentences(claims: Iterable[Claim]) -> Iterator[str]:
    """Yield each sentence of a paper that holds, with the values by which it is tested."""
    by_sentence: dict[str, list[str]] = {}
    for claim in claims:
        by_sentence.setdefault(claim.sentence, []).append(claim.comparison)
    for sentence, tested in by_sentence.items():
        few = len(tested) <= MOST_COMPARISONS
        yield f"{sentence}: {'; '.join(tested) if few else f'all {len(tested)} values hold'}."


class Made(NamedTuple):
    """Result of a figure's function: points, claims, verdict and notes."""

    points: Iterable[Point]
    claims: Sequence[Claim] = ()
    rows: Iterable[Point] | None = None  # rows of the figure's table (default: the claims' rows)
    judged: Judged | None = None  # verdict and reasons (default: by the claims)
    why: str = ""  # reason to print if our figure differs from the paper's
    notes: Iterable[str] = ()
    title: str = ""  # title (default: the figure's)
    errata: Sequence[str] = ()  # headings of docs/errata.md that explain values


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper that can be reproduced."""

    name: str
    about: str
    title: str
    x: str
    y: str
    make: Callable[[Settings], Made]
    live: bool = False  # whether the figure is measured in a live lab, which needs root
    look: Mapping[str, Any] | None = None  # kind of plot, log_x, log_y (see `Reproduction`)
    data: Mapping[str, Any] | None = None  # content of a live figure's file

    def reproduce(self, settings: Settings) -> Reproduction:
        """Reproduce the figure: run its function and judge the result."""
        return self.of(self.make(settings))

    def of(self, made: Made) -> Reproduction:
        """Return the reproduction of this figure from its function's result, with the verdict."""
        word, reasons = made.judged or verdict(made.claims)
        if made.why and word == DIFFERS:
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
            errata=tuple(made.errata),
            notes=tuple(made.notes),
            rows=tuple(rows),
            **(self.look or {}),
        )


FIGURES: dict[str, Figure] = {}  # all registered figures by name


def figure(
    name: str, about: str, title: str, x: str = "", y: str = "", *, live: bool = False, **look: Any
) -> Callable[[Callable[[Settings], Made]], Figure]:
    """Register the decorated function as the one that reproduces a figure."""

    def register(make: Callable[[Settings], Made]) -> Figure:
        require(name not in FIGURES, f"two reproduced figures are named {name}: rename one")
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

    `least` is the lower limit of the true value.

    >>> point("SPF", 0.02, [10.0, 10.0], paper=10.0)
    Point(series='SPF', x=0.02, ours=10.0, paper=10.0, low=10.0, high=10.0, ideal=None, draws=2)
    """
    found = estimate(values, least=least)
    known = numpy.isfinite(found.low)
    low, high = (found.low, found.high) if known else (None, None)
    value = found.value if found.repeats else None
    return Point(series, x, value, paper, low, high, draws=found.repeats)


def largest_point(points: Iterable[Point]) -> Point:
    """Return the point with the largest value."""
    return max(points, key=lambda one: -math.inf if one.ours is None else one.ours)


def smallest_point(points: Iterable[Point]) -> Point:
    """Return the point with the smallest value."""
    return min(points, key=lambda one: math.inf if one.ours is None else one.ours)


def find(points: Iterable[Point], series: str, x: float | str) -> Point:
    """Return the point of a series at a value of x."""
    return next(one for one in points if (one.series, one.x) == (series, x))


def by_series(points: Iterable[Point]) -> list[Point]:
    """Return points series by series, in the order of each series' first point."""
    points = list(points)
    names = list(dict.fromkeys(one.series for one in points))
    return sorted(points, key=lambda one: names.index(one.series))


def with_paper_values(points: Iterable[Point], paper: Papers) -> list[Point]:
    """Return the points with the paper's values added where the paper gives them."""
    return [replace(one, paper=paper.get((one.series, one.x), one.paper)) for one in points]
