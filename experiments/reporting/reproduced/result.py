"""What comes of making a paper's figure again: its points beside ours, and what to think of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments.units import figures_apart

AGREES, DIFFERS, AMBIGUOUS = "agrees", "differs", "paper ambiguous"
UNDECIDED = "not decided"  # more draws or trials would decide


@dataclass(frozen=True)
class Settings:
    """How a figure is made again."""

    folder: Path  # for whatever is kept
    tasks: Path | None = None  # for finished tasks, which several figures share; else the folder's
    seed: int = 1
    workers: int = 0  # processes of the simulator; 0 for one a processor
    scheduler: str = ""  # of Dask, instead of processes
    rate_mbit: float | None = None  # of a live lab; None for what this machine can do
    repeats: int | None = None
    quick: bool = False  # smaller and coarser: for a look, and for tests
    say: Callable[[str], Any] = print  # of progress
    # Of what the figure is made (see `reproductions.inputs_of`): runs of the same go on.
    inputs: str = ""
    tasks_s: list[float] = field(default_factory=list)  # of all tasks, whenever they were done


@dataclass(frozen=True)
class Point:
    """One point of a series, or one cell of a table."""

    series: str
    x: float | str
    ours: float | None
    paper: float | None = None  # where the paper gives a number
    low: float | None = None  # of ours: where its spread or confidence interval ends
    high: float | None = None
    ideal: float | None = None
    draws: int = 0  # or trials, of which ours is the mean; 0 where chance has no part in it

    @property
    def spread(self) -> tuple[float, float] | None:
        """Between what ours lies; None where nothing is known of it, or all draws were alike."""
        if self.low is None or self.high is None or math.isclose(self.low, self.high, rel_tol=1e-6):
            return None
        return self.low, self.high

    @property
    def figures(self) -> int:
        """How many significant figures its numbers need: the paper's, and to show a spread."""
        papers = 3 if self.paper is None or float(f"{self.paper:.3g}") == self.paper else 4
        return max(papers, figures_apart(*self.spread)) if self.spread else papers


@dataclass(frozen=True)
class Reproduction:
    """A figure or table made again."""

    name: str
    title: str
    x_label: str
    y_label: str
    points: tuple[Point, ...]
    verdict: str  # AGREES, DIFFERS, AMBIGUOUS or UNDECIDED
    reasons: tuple[str, ...] = ()  # what differs, and why
    notes: tuple[str, ...] = ()  # how it was measured: sizes, seeds, rates, models
    kind: str = "lines"  # or bars, or table
    # Where the points are a curve: the numbers that the verdict is about, and that are printed.
    rows: tuple[Point, ...] = ()
    log_x: bool = False
    log_y: bool = False
    # Of what, when, where and in what time it was made.
    made: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain data; what is no number as None."""
        values = asdict(self)
        for key in ("points", "rows"):
            values[key] = [{k: _plain(v) for k, v in point.items()} for point in values[key]]
        return values

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Reproduction:
        """Return what `as_json` was of."""
        values = dict(plain)
        for key in ("points", "rows"):
            values[key] = tuple(Point(**point) for point in values[key])
        for key in ("reasons", "notes"):
            values[key] = tuple(values[key])
        return cls(**values)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
