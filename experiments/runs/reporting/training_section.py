"""The report's table of training iterations: time, its parts, and the simulated time."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from pillarbox.experiments.runs.reporting.run_reading import RunContents
from pillarbox.experiments.runs.reporting.tables import Row, Table
from pillarbox.experiments.runs.trials.job_slowdowns import TITLES, slowdowns_in
from pillarbox.experiments.runs.trials.statistics import estimate
from pillarbox.experiments.runs.trials.summary import value_and_interval

PARTS = ("completion_s", "ideal_s", "compute_s", "exposed_s", "waiting_s")
COLUMNS = [
    *("system", "iteration, s", "simulated, s", "computation, s", "exposed communication, s"),
    *("waiting, s", "longest wait"),
]
NOTE = (
    "Means over trials; the parts are means over ranks. Exposed communication is time in which a "
    "rank does not compute and its data is on its way. Simulated is the time of the same "
    "iteration in the fluid model over the paths in use. The longest wait is the largest mean "
    "waiting time of one rank for another."
)

ABOUT_JOBS = (
    "Time of an iteration of each job, alone and together with the other jobs, on the same "
    "servers: means over valid trials. Simulated is the slowdown in the fluid model over the paths "
    "in use."
)


def iterations(found: RunContents) -> Table:
    """Return the report's table of training iterations, from each system's valid trials."""
    trials, ranks = found.tables["trials"], found.tables["ranks"]
    rows = []
    for system in found.systems if len(ranks) else ():
        completed = trials[(trials.system == system) & trials.compute_s.notna()]
        valid = completed[completed.valid.fillna(False).astype(bool)]
        shown = completed if valid.empty else valid
        if not shown.empty:
            own = ranks[(ranks.system == system) & ranks.trial.isin(shown.trial)]
            cells = [system, *_part_cells(shown), _longest_wait(own)]
            rows.append(Row(cells, doubtful=valid.empty))
    return Table(COLUMNS, rows, frozenset(range(1, len(PARTS) + 1)), NOTE)


def jobs(found: RunContents) -> Table:
    """Return the report's table of several jobs: iterations alone and together."""
    rows = [Row(one.cells(), one.doubtful) for one in slowdowns_in(found.tables["jobs"])]
    return Table(list(TITLES), rows, frozenset(range(2, len(TITLES))), ABOUT_JOBS)


def _part_cells(trials: pd.DataFrame) -> Iterator[str]:
    for part in PARTS:
        found = estimate(list(trials[part].dropna()), least=0.0)
        yield " ".join(filter(None, value_and_interval(found)))


def _longest_wait(ranks: pd.DataFrame) -> str:
    waits = ranks.dropna(subset=["waits_for"]).groupby(["rank", "waits_for"]).waits_for_s.mean()
    if waits.empty:
        return "-"
    rank, other = waits.idxmax()
    return f"rank {rank} for rank {other}, {waits.max():.3g} s"
