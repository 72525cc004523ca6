"""What a report tells of collective operations: how near to the bound, and by which step."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments import units
from experiments.reporting.run_reading import RunContents
from experiments.reporting.tables import Row, Table
from experiments.trials.runs.statistics import estimate
from experiments.trials.runs.summary import value_and_interval

COLUMNS = [
    "system", "time, s", "over the bound", "ideal", "steps", "transfers", "slowest step",
    "it took", "of which waiting",
]  # fmt: skip


def operations(found: RunContents) -> Table:
    """Return a row for each system: of its valid trials, or of all where none is."""
    transfers, trials = found.tables["transfers"], found.tables["trials"]
    rows = []
    for system in found.systems if len(transfers) else ():
        own = trials[(trials.system == system) & trials.completion_s.notna()]
        valid = own[own.valid.fillna(False).astype(bool)]
        shown = own if valid.empty else valid
        moved = transfers[(transfers.system == system) & transfers.trial.isin(shown.trial)]
        if not moved.empty:
            rows.append(Row([system, *_cells(shown, moved)], doubtful=valid.empty))
    return Table(COLUMNS, rows, frozenset(range(1, len(COLUMNS))), NOTE)


NOTE = (
    "Means. The bound is the least time that the ports of the servers allow, and the ideal what "
    "the same transfers take as fluids over the paths in use, over that bound. The slowest step is "
    "the one between whose first transfer that could begin and whose last arrival most time lies; "
    "waiting is how long after its first transfer the last one could begin."
)


def _cells(trials: pd.DataFrame, transfers: pd.DataFrame) -> Iterator[str]:
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
    """Return how long each step took, and its last transfer waited: means of the trials."""
    steps = transfers.groupby(["trial", "step"]).agg(
        first_s=("ready_s", "min"), last_s=("ready_s", "max"), end_s=("end_s", "max")
    )
    steps["took_s"] = steps.end_s - steps.first_s
    steps["waited_s"] = steps.last_s - steps.first_s
    return steps.groupby("step")[["took_s", "waited_s"]].mean()
