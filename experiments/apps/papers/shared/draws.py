"""Shared code of simulated figures: random draws of cases, run on processes or machines.

A measure is a function of a case and a random source that returns named numbers. Each run of a case
has its own random source, seeded by the figure's seed and the run's number.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy

from pillarbox.experiments.apps.papers.shared.figure import point
from pillarbox.experiments.models.simulator.sweeps import sweep
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings

FOLDER = "tasks"  # subfolder of a figure's folder for results of finished tasks
Found = dict[str, Any]  # results of a simulation run, by name


def task_results(
    settings: Settings, measure: Callable[[Any], Any], tasks: Sequence[Any]
) -> list[Any]:
    """Return the results of the simulation function `measure` for all tasks, run in parallel."""
    return sweep(
        measure,
        tasks,
        settings.tasks or settings.folder / FOLDER,
        workers=settings.workers,
        scheduler=settings.scheduler,
        say=settings.say,
        took=settings.tasks_s.append,
    )


def seeded_task_function(measure: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    """Turn a measure that takes (case..., random) into a task function of [case..., seed, run]."""

    @wraps(measure)
    def of_task(task: Sequence[Any]) -> Any:
        *case, seed, run = task
        return measure(*case, numpy.random.default_rng([seed, run]))

    return of_task


class Runs(NamedTuple):
    """The simulation runs of one case of a figure."""

    case: Any
    found: list[Any]

    def values(self, what: str | Callable[[Any], float | None]) -> list[float]:
        """Return the result of the given name from each simulation run that has one."""
        of_run = what if callable(what) else lambda found: found[what]
        return [value for found in self.found if (value := of_run(found)) is not None]

    def point(
        self,
        series: str,
        x: float | str,
        what: str | Callable[[Any], float | None],
        paper: float | None = None,
        **bounds: float,
    ) -> Point:
        """Return the mean of a number over the simulation runs as a point."""
        return point(series, x, self.values(what), paper, **bounds)


def values_by_run(of: Callable[..., float], *cases: Runs | tuple[Runs, str]) -> list[float]:
    """Return for each simulation run a function of several cases' results, such as their ratio.

    Runs with the same number have the same random source, so random effects common to all cases
    cancel. A case may be given with the name of the number that the function takes from it.
    """
    found = [
        case.found if isinstance(case, Runs) else [run[case[1]] for run in case[0].found]
        for case in cases
    ]
    return [of(*runs) for runs in zip(*found, strict=True) if None not in runs]


def simulation_run_count(settings: Settings, runs: int, quick: int) -> int:
    """Return the number of simulation runs of each case of a figure."""
    return settings.repeats or (quick if settings.quick else runs)


def simulation_runs(
    settings: Settings,
    measure: Callable[[Sequence[Any]], Any],
    cases: Iterable[tuple[Any, ...]],
    count: int | Sequence[int],
) -> list[Runs]:
    """Return `count` runs of each case (a tuple); `count` may be a number for each case.

    A case that occurs twice is run once, with the larger number of runs.
    """
    cases = list(cases)
    counts = [count] * len(cases) if isinstance(count, int) else count
    most: dict[tuple[Any, ...], int] = {}
    for case, runs in zip(cases, counts, strict=True):
        most[case] = max(runs, most.get(case, 0))
    tasks = [(*case, settings.seed, run) for case in most for run in range(most[case])]
    found = iter(task_results(settings, measure, tasks))
    runs_of = {case: list(itertools.islice(found, runs)) for case, runs in most.items()}
    return [Runs(case, runs_of[case]) for case in cases]


def drawn_note(settings: Settings, count: int) -> str:
    """Return the sentence about repeats and seed with which figures' notes begin."""
    return f"Mean of {count} runs and its 95 % confidence interval, seed {settings.seed}."
