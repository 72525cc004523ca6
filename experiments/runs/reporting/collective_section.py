"""The report's table of collective operations: time over the bound, and the slowest step."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from pillarbox.experiments.base import units
from pillarbox.experiments.models.workloads.workload import TRAINING
from pillarbox.experiments.runs.reporting.run_reading import RunContents
from pillarbox.experiments.runs.reporting.tables import Row, Table
from pillarbox.experiments.runs.trials.statistics import estimate
from pillarbox.experiments.runs.trials.summary import value_and_interval

COLUMNS = [
    "system", "time, s", "time / bound", "ideal / bound", "steps", "transfers", "slowest step",
    "step time", "waiting time",
]  # fmt: skip


def operations(found: RunContents) -> Table:
    """Return the report's table of collective operations, from each system's valid trials."""
    transfers, trials = found.tables["transfers"], found.tables["trials"]
    rows = []
    training = found.plan is not None and found.plan.workload.pattern == TRAINING
    for system in found.systems if len(transfers) and not training else ():
        completed = trials[(trials.system == system) & trials.completion_s.notna()]
        valid = completed[completed.valid.fillna(False).astype(bool)]
        shown = completed if valid.empty else valid
        moved = transfers[(transfers.system == system) & transfers.trial.isin(shown.trial)]
        if not moved.empty:
            rows.append(Row([system, *_operation_cells(shown, moved)], doubtful=valid.empty))
    return Table(COLUMNS, rows, frozenset(range(1, len(COLUMNS))), NOTE)


NOTE = (
    "Means. The bound is the minimum time that the servers' ports allow. The ideal is the time of "
    "the same transfers in the fluid model over the paths in use. The time of a step is from the "
    "moment at which its first transfer can begin to its last arrival. The waiting time is from "
    "the moment at which the first transfer can begin to that of the last one."
)


def _operation_cells(trials: pd.DataFrame, transfers: pd.DataFrame) -> Iterator[str]:
    over = trials.bound_bps / trials.goodput_bps
    ideal = trials.bound_bps / trials.ideal_bps
    for values in (trials.completion_s, over, ideal):
        yield " ".join(filter(None, value_and_interval(estimate(list(values.dropna()), least=0.0))))
    yield str(transfers.step.nunique())
    yield str(transfers.transfer.nunique())
    steps = by_step(transfers)
    number = int(steps.took_s.idxmax())
    yield str(number)
    yield units.time(float(steps.took_s[number]))
    yield units.time(float(steps.waited_s[number]))


def by_step(transfers: pd.DataFrame) -> pd.DataFrame:
    """Return the mean duration and waiting time of each step of a collective operation."""
    steps = transfers.groupby(["trial", "step"]).agg(
        first_s=("ready_s", "min"), last_s=("ready_s", "max"), end_s=("end_s", "max")
    )
    steps["took_s"] = steps.end_s - steps.first_s
    steps["waited_s"] = steps.last_s - steps.first_s
    return steps.groupby("step")[["took_s", "waited_s"]].mean()
