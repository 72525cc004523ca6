"""What simulated figures share: their tasks, done where the settings say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.analysis.simulator.sweeps import sweep
from experiments.reporting.reproduced.result import Settings

FOLDER = "tasks"  # of a figure's own, for what is finished


def swept(settings: Settings, measure: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    """Return what `measure` makes of each task (see `experiments.analysis.simulator.sweeps`)."""
    return sweep(
        measure,
        tasks,
        settings.folder / FOLDER,
        workers=settings.workers,
        scheduler=settings.scheduler,
        say=settings.say,
    )
