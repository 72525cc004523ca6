"""Slowdowns of several jobs in one network: each job's iteration together against alone.

Trials of one repeat have the same servers and ranks; their ratio is that of a job's mean iteration
next to the other jobs to its mean iteration alone. Means are over valid trials; if a job has none
of both kinds, they are over all trials, and marked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.base.text import columns
from pillarbox.experiments.base.units import three_figures
from pillarbox.experiments.runs.trials.statistics import Estimate, estimate, paired

if TYPE_CHECKING:
    import pandas

    from pillarbox.experiments.runs.trials.records import Run

DOUBT = "?"  # mark of times with trials that are not valid
TITLES = ("system", "job", "ranks", "alone, s", "together, s", "slowdown", "simulated")


class JobSlowdown(NamedTuple):
    """Times of a job's iteration in a system, alone and together with the other jobs."""

    system: str
    job: str
    ranks: int
    alone_s: Estimate
    together_s: Estimate
    slowdown: Estimate  # over repeats with both valid trials
    simulated: float  # slowdown in the fluid model over the paths in use; NaN if unknown
    doubtful: bool  # True if trials that are not valid are included

    def cells(self) -> list[str]:
        """Return the cells of a table with TITLES."""
        mark = DOUBT * self.doubtful
        estimates = [_text(one) + mark for one in (self.alone_s, self.together_s, self.slowdown)]
        simulated = "-" if math.isnan(self.simulated) else three_figures(self.simulated)
        return [self.system, self.job, str(self.ranks), *estimates, simulated]

    def as_json(self) -> dict[str, Any]:
        """Return the times as JSON data; None for unknown values."""
        values = {
            "alone_s": self.alone_s.value,
            "together_s": self.together_s.value,
            "slowdown": self.slowdown.value,
            "simulated_slowdown": self.simulated,
        }
        found = {name: value if math.isfinite(value) else None for name, value in values.items()}
        about = {"system": self.system, "job": self.job, "ranks": self.ranks}
        return {**about, **found, "valid": not self.doubtful}


def job_slowdowns(run: Run) -> list[JobSlowdown]:
    """Return the slowdown of each job in each system; empty for other runs."""
    return slowdowns_in(run.jobs)


def slowdowns_in(jobs: pandas.DataFrame) -> list[JobSlowdown]:
    """Return the slowdown of each job in each system, given the table of jobs."""
    found = []
    jobs = jobs.sort_values("alone", kind="stable")  # a trial of all jobs has them in their order
    for (system, name), every in jobs.groupby(["together", "job"], sort=False):
        valid = every[every.valid.fillna(False).astype(bool)]
        doubtful = valid.alone.nunique() < 2
        own = every if doubtful else valid
        single, mixed = own[own.alone.astype(bool)], own[~own.alone.astype(bool)]
        alone, together, ideal_alone, ideal_together = (
            paired(list(trials.repeat), [float(value) for value in trials[column]])
            for column in ("iteration_s", "ideal_s")
            for trials in (single, mixed)
        )
        ratios = _ratios(ideal_together, ideal_alone)
        found.append(
            JobSlowdown(
                *(str(system), str(name), int(own.ranks.iloc[0])),
                estimate(list(alone.values()), least=0.0),
                estimate(list(together.values()), least=0.0),
                estimate(_ratios(together, alone), least=0.0),
                sum(ratios) / len(ratios) if ratios else math.nan,
                doubtful,
            )
        )
    return found


def _ratios(together: dict[int, float], alone: dict[int, float]) -> list[float]:
    """Return the ratios of the repeats that have both values."""
    return [one / alone[repeat] for repeat, one in together.items() if alone.get(repeat)]


def _text(found: Estimate) -> str:
    """Return an estimate and its confidence interval as text; a dash if it is unknown."""
    if not found.repeats:
        return "-"
    value, low, high = (three_figures(end) for end in found[:3])
    return value if found.repeats < 2 else f"{value} ({low}-{high})"


def text_of(run: Run) -> str:
    """Return the jobs of a run as a table; empty for other runs."""
    rows = [one.cells() for one in job_slowdowns(run)]
    return columns([list(TITLES), *rows], range(2, len(TITLES))) if rows else ""
