"""Reading of a run for its report: all readable records, and a list of the missing ones.

`pillarbox.experiments.runs.trials.records.load` refuses a damaged run. This module reads its intact
records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pillarbox.experiments.runs.plans.experiment import Experiment
from pillarbox.experiments.runs.plans.loading import experiment_of
from pillarbox.experiments.runs.plans.values import plain
from pillarbox.experiments.runs.trials import records, schema, store
from pillarbox.experiments.runs.trials.records import Run
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.topology import Topology

TABLES = ("trials", *schema.TABLES)
# Manifest fields that the report shows in addition to the plan: type, and type of values.
PARTS: dict[str, tuple[type, type]] = {
    "machine": (dict, object),
    "begun": (dict, object),
    "pillarbox": (dict, object),
    "systems": (dict, dict),
    "command_line": (list, str),
}


@dataclass
class RunContents:
    """The readable records of a run for its report, and sentences about missing records."""

    folder: Path
    manifest: dict[str, Any] = field(default_factory=dict)
    plan: Experiment | None = None
    records: list[dict[str, Any]] = field(default_factory=list)  # content of trial.json, per trial
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # sentences about missing records

    @property
    def name(self) -> str:
        """Name of the experiment; without a plan, name of the run's folder."""
        return self.plan.name if self.plan else self.folder.resolve().name

    @property
    def run(self) -> Run:
        """The run's records as a `Run` of `pillarbox.experiments.runs.trials.records`."""
        return Run(self.folder, self.manifest, tuple(self.records), self.plan)

    @property
    def systems(self) -> list[str]:
        """Names of the run's compared systems, in the plan's order."""
        planned = [system.name for system in self.plan.systems] if self.plan else []
        return list(dict.fromkeys([*planned, *(str(one["system"]) for one in self.records)]))

    @property
    def networks(self) -> dict[str, Topology]:
        """Topology of each compared system, by the system's name; empty without a plan."""
        return {one.name: one.topology for one in self.plan.systems} if self.plan else {}


def read(folder: Path) -> RunContents:
    """Return the readable records of a run; raise PillarboxError if the folder is not a run."""
    numbers = records.finished_trials(folder)
    require(
        (folder / records.MANIFEST).exists() or bool(numbers),
        f"{folder} is not a run: name a folder with a {records.MANIFEST} and trials, which "
        "`pillarbox run` creates",
    )
    found = RunContents(folder)
    file = folder / records.MANIFEST
    with _collecting_errors(found, file):
        found.manifest = store.read_table(file)
        _leave_out_damaged(found, file)
        version = found.manifest.get("schema_version")
        if isinstance(version, int) and version > schema.VERSION:
            found.missing.append(
                f"The records have version {version}, this Pillarbox reads {schema.VERSION}: newer "
                "columns are not shown."
            )
        records.bring_up_to_date(found.manifest)
        found.plan = experiment_of(found.manifest["plan"])
        found.manifest["plan"] = plain(found.plan)
    parts: dict[str, list[pd.DataFrame]] = {table: [] for table in TABLES}
    for number in numbers:
        _read_trial(found, number, parts)
    found.tables = {table: _concatenated(table, parts[table]) for table in TABLES}
    _note_missing_trials(found)
    return found


def _leave_out_damaged(found: RunContents, file: Path) -> None:
    """Remove the fields of a run's manifest that have a wrong type."""
    for part, (kind, inside) in PARTS.items():
        value = found.manifest.get(part, kind())
        values = value.values() if isinstance(value, dict) else value
        if not isinstance(value, kind) or not all(isinstance(one, inside) for one in values):
            del found.manifest[part]
            found.missing.append(f"{file} is damaged: {part} is left out.")


def _read_trial(found: RunContents, number: int, parts: dict[str, list[pd.DataFrame]]) -> None:
    """Add the readable records of a trial to the contents of its run."""
    folder = records.trial_folder(found.folder, number)
    file = folder / records.TRIAL_FILE
    with _collecting_errors(found, file):
        record = records.trial_record(found.folder, number)
        run = Run(found.folder, found.manifest, (record,), found.plan)
        parts["trials"].append(run.trials)
        found.records.append(record)
        for table in schema.TABLES:
            with _collecting_errors(found, folder / f"{table}.parquet"):
                parts[table].append(getattr(run, table))


@contextmanager
def _collecting_errors(found: RunContents, file: Path) -> Iterator[None]:
    """Convert an error in a record file to a sentence about missing records."""
    try:
        yield
    except PillarboxError as error:
        found.missing.append(f"{error}.")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        found.missing.append(f"{file} cannot be read: {type(error).__name__}: {error}.")


def _concatenated(table: str, parts: list[pd.DataFrame]) -> pd.DataFrame:
    whole = [part for part in parts if len(part)]
    return pd.concat(whole, ignore_index=True) if whole else records.frame(table, ())


def _note_missing_trials(found: RunContents) -> None:
    """Add a sentence about planned trials without records to a run's contents."""
    if found.plan is None:
        return
    planned, recorded = len(found.plan.systems) * found.plan.repeats, len(found.records)
    if recorded < planned:
        found.missing.append(
            f"{recorded} of {planned} planned trials have records: the run was stopped, or is "
            "still running."
        )
