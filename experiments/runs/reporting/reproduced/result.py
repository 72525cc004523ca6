"""Results of a reproduced figure: points of the paper and our points, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pillarbox.experiments.base.units import figures_apart

AGREES = "agrees"  # every number is within its tolerance
CLAIM_HOLDS = "claim holds"  # the paper's sentences hold, and its numbers that are compared agree
ERRATUM = "paper's erratum"  # our value is the derived one, and the printed one is wrong
DIFFERS = "differs"
UNDECIDED = "not decided"  # more draws or trials are needed
# A figure with several values has the first of these verdicts that one of them has.
VERDICTS = (DIFFERS, UNDECIDED, ERRATUM, CLAIM_HOLDS, AGREES)


@dataclass(frozen=True)
class Settings:
    """Settings for reproducing a paper's figure: folders, seed, workers, link rate and size."""

    folder: Path  # output folder of the reproduced figures
    tasks: Path | None = None  # cache folder of finished simulation tasks, shared by figures
    seed: int = 1
    workers: int = 0  # number of simulator processes; 0 for one per processor
    scheduler: str = ""  # address of a Dask scheduler, used instead of processes
    rate_mbit: float | None = None  # link rate of a live lab; None for this machine's capacity
    own_mbit: float | None = None  # link rate that a dilated live lab stands for; None: no dilation
    repeats: int | None = None
    quick: bool = False  # True: smaller networks and coarser sweeps, for previews
    say: Callable[[str], Any] = print  # callback for progress messages
    # Hash of the figure's inputs; a run with equal inputs is resumed.
    inputs: str = ""
    tasks_s: list[float] = field(
        default_factory=list
    )  # durations of finished simulation tasks, in seconds


@dataclass(frozen=True)
class Point:
    """A point of a reproduced series, or a row of a reproduced table."""

    series: str
    x: float | str
    ours: float | None  # our value
    paper: float | None = None  # the paper's value of this point, None if not given
    low: float | None = None  # lower end of our spread or confidence interval
    high: float | None = None  # upper end of our spread or confidence interval
    ideal: float | None = None
    draws: int = 0  # number of draws or trials in our mean; 0: deterministic

    @property
    def spread(self) -> tuple[float, float] | None:
        """Interval of our reproduced value; None if unknown, or if all draws are equal."""
        if self.low is None or self.high is None or math.isclose(self.low, self.high, rel_tol=1e-6):
            return None
        return self.low, self.high

    @property
    def figures(self) -> int:
        """Number of significant figures: as in the paper, or more to show our spread."""
        papers = 3 if self.paper is None or float(f"{self.paper:.3g}") == self.paper else 4
        return max(papers, figures_apart(*self.spread)) if self.spread else papers


@dataclass(frozen=True)
class Reproduction:
    """A reproduced figure or table of a paper: points, verdict, reasons and notes."""

    name: str
    title: str
    x_label: str
    y_label: str
    points: tuple[Point, ...]
    verdict: str  # one of VERDICTS
    reasons: tuple[str, ...] = ()  # sentences on differences, errata and claims of the paper
    errata: tuple[str, ...] = ()  # headings of docs/errata.md that explain values
    notes: tuple[str, ...] = ()  # measurement method: sizes, seeds, rates, models
    kind: str = "lines"  # kind of drawing: "lines", "bars" or "table"
    # Compared numbers of a figure whose points are a curve; they are printed instead of the curve.
    rows: tuple[Point, ...] = ()
    log_x: bool = False
    log_y: bool = False
    # Inputs, date, machine and duration of the reproduction.
    made: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the reproduction as JSON-compatible data; NaN and infinity become None."""
        values = asdict(self)
        for key in ("points", "rows"):
            values[key] = [{k: _json_number(v) for k, v in point.items()} for point in values[key]]
        return values

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Reproduction:
        """Return a reproduction from the data that `as_json` returned."""
        values = dict(plain)
        for key in ("points", "rows"):
            values[key] = tuple(Point(**point) for point in values[key])
        for key in ("reasons", "errata", "notes"):
            values[key] = tuple(values.get(key, ()))
        return cls(**values)


def _json_number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
