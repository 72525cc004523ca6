"""A run as the report sees it: all of its records that can be read, and what is missing, in words.

Where `experiments.trials.runs.records.load` refuses a broken run, this shows what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.trials.loading import experiment_of
from experiments.trials.plans.experiment import Experiment
from experiments.trials.plans.values import plain
from experiments.trials.runs import records, schema, store
from experiments.trials.runs.records import Run
from topos.base.errors import PillarboxError, require
from topos.base.spec import parse
from topos.base.topology import Topology

TABLES = ("trials", *schema.TABLES)
# What the page shows of a manifest beside its plan: of which kind it is, and what is in it.
PARTS: dict[str, tuple[type, type]] = {
    "machine": (dict, object),
    "begun": (dict, object),
    "pillarbox": (dict, object),
    "systems": (dict, dict),
    "command_line": (list, str),
}


@dataclass
class RunContents:
    """What was found of a run."""

    folder: Path
    manifest: dict[str, Any] = field(default_factory=dict)
    plan: Experiment | None = None
    records: list[dict[str, Any]] = field(default_factory=list)  # trial.json of each trial
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # sentences

    @property
    def name(self) -> str:
        """The experiment's name, or the folder's."""
        return self.plan.name if self.plan else self.folder.resolve().name

    @property
    def run(self) -> Run:
        """The same as `experiments.trials.runs.records` has it."""
        return Run(self.folder, self.manifest, tuple(self.records))

    @property
    def systems(self) -> list[str]:
        """All systems, in the plan's order."""
        planned = [system.name for system in self.plan.systems] if self.plan else []
        return list(dict.fromkeys([*planned, *(str(one["system"]) for one in self.records)]))

    @property
    def networks(self) -> dict[str, Topology]:
        """The network of each system that is known."""
        return (
            {system.name: parse(system.network) for system in self.plan.systems}
            if self.plan
            else {}
        )


def read(folder: Path) -> RunContents:
    """Return what there is of a run, or raise PillarboxError where there is nothing of one."""
    numbers = records.finished_trials(folder)
    require(
        (folder / records.MANIFEST).exists() or bool(numbers),
        f"{folder} is no run: a run is a folder with a {records.MANIFEST} and trials, as "
        "`pillarbox run` makes it",
    )
    found = RunContents(folder)
    file = folder / records.MANIFEST
    with _noting(found, file):
        found.manifest = store.read_table(file)
        _leave_out_damaged(found, file)
        version = found.manifest.get("schema_version")
        if isinstance(version, int) and version > schema.VERSION:
            found.missing.append(
                f"The records are of version {version}, and this Pillarbox knows {schema.VERSION}: "
                "what is new in them is not shown."
            )
        records.bring_up_to_date(found.manifest)
        found.plan = experiment_of(found.manifest["plan"])
        found.manifest["plan"] = plain(found.plan)
    parts: dict[str, list[pd.DataFrame]] = {table: [] for table in TABLES}
    for number in numbers:
        _read_trial(found, number, parts)
    found.tables = {table: _joined(table, parts[table]) for table in TABLES}
    _count(found)
    return found


def _leave_out_damaged(found: RunContents, file: Path) -> None:
    """Take out of the manifest what is not of its kind."""
    for part, (kind, inside) in PARTS.items():
        value = found.manifest.get(part, kind())
        values = value.values() if isinstance(value, dict) else value
        if not isinstance(value, kind) or not all(isinstance(one, inside) for one in values):
            del found.manifest[part]
            found.missing.append(f"{file} is damaged: {part} is left out.")


def _read_trial(found: RunContents, number: int, parts: dict[str, list[pd.DataFrame]]) -> None:
    """Add what there is of one trial."""
    folder = records.trial_folder(found.folder, number)
    file = folder / records.TRIAL_FILE
    with _noting(found, file):
        record = records.told_by(found.folder, number)
        run = Run(found.folder, found.manifest, (record,))
        parts["trials"].append(run.trials)
        found.records.append(record)
        for table in schema.TABLES:
            with _noting(found, folder / f"{table}.parquet"):
                parts[table].append(getattr(run, table))


@contextmanager
def _noting(found: RunContents, file: Path) -> Iterator[None]:
    """Make a sentence of what is missing out of what cannot be read."""
    try:
        yield
    except PillarboxError as error:
        found.missing.append(f"{error}.")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        found.missing.append(f"{file} cannot be read: {type(error).__name__}: {error}.")


def _joined(table: str, parts: list[pd.DataFrame]) -> pd.DataFrame:
    whole = [part for part in parts if len(part)]
    return pd.concat(whole, ignore_index=True) if whole else records.frame(table, ())


def _count(found: RunContents) -> None:
    """Say so if trials that were planned are not there."""
    if found.plan is None:
        return
    planned, there = len(found.plan.systems) * found.plan.repeats, len(found.records)
    if there < planned:
        found.missing.append(
            f"{there} of {planned} planned trials are there: the run was stopped, or still goes on."
        )
