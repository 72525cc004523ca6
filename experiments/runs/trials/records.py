"""Records of a run: written in the tables of `schema`, and loaded as pandas frames.

>>> from pillarbox import load                                           # doctest: +SKIP
>>> run = load("quick-20260301-101500-seed1")                            # doctest: +SKIP
>>> run.valid().flows.groupby("system").goodput_bps.describe()          # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas

from pillarbox.experiments.models.packets.packet_log import PacketLog
from pillarbox.experiments.runs.plans.experiment import Experiment
from pillarbox.experiments.runs.trials import packet_records, schema, store
from pillarbox.experiments.runs.trust.readings import MachineReadings
from pillarbox.hosts.base.fault_kinds import fault_kind
from pillarbox.hosts.base.faults import Fault
from pillarbox.topos.base.errors import PillarboxError, require

MANIFEST, TRIAL_FILE, TRIALS = "manifest.json", "trial.json", "trials"
REQUIRED = ("trial", "system", "repeat")  # Columns that have a value in every trial.
MOST_WHOLE = 2**63  # Upper bound for absolute values of integers in records.
# Column types by annotation of MachineReadings' fields; tuples are not checked.
MACHINE_KINDS: dict[Any, str] = {"int": "float64", "float": "float64", "str": "string"}


def columns(table: str) -> dict[str, str]:
    """Return the types of a table's columns by name, including the columns of schema.TRIAL."""
    specific = schema.TRIALS if table == TRIALS else schema.TABLES[table]
    return {**schema.TRIAL, **specific}


def frame(table: str, rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return rows as a pandas frame with the columns and types of a record table.

    Raises PillarboxError for unknown columns and wrong types; values that may be missing may be
    left out.
    """
    wanted = columns(table)
    rows = list(rows)
    if not rows:
        return pandas.DataFrame({name: pandas.Series(dtype=kind) for name, kind in wanted.items()})
    unknown = {name for row in rows for name in row if name not in wanted}
    require(not unknown, f"the table {table} has no column {', '.join(sorted(unknown))}")
    try:
        # Arrays of the final types: the conversion of a whole frame of objects is slow in pandas.
        filled = {
            name: pandas.array([_value_or_missing(row.get(name), kind) for row in rows], dtype=kind)
            for name, kind in wanted.items()
        }
    except (TypeError, ValueError, OverflowError) as error:
        raise PillarboxError(f"rows do not fit the table {table}: {error}") from None
    return pandas.DataFrame(filled)


def typed(table: str, found: pandas.DataFrame) -> pandas.DataFrame:
    """Return a pandas frame converted to the column types of its record table."""
    wanted = columns(table)
    added = [name for name in schema.LATER.get(table, ()) if name not in found]
    if added:
        found = found.assign(**{name: _value_or_missing(None, wanted[name]) for name in added})
    missing = [name for name in wanted if name not in found]
    require(not missing, f"the table {table} has no {', '.join(missing)}: it has another version")
    # Only columns of other types are converted: for pandas a conversion without change is slow.
    kinds = dict(zip(found.columns, map(str, found.dtypes), strict=True))
    other = {name: kind for name, kind in wanted.items() if kinds[name] != kind}
    found = found[list(wanted)]
    try:
        return found.astype(other) if other else found
    except (TypeError, ValueError, OverflowError) as error:
        raise PillarboxError(f"rows do not fit the table {table}: {error}") from None


def _value_or_missing(value: Any, kind: str) -> Any:
    """Return a record's value; None becomes its column type's missing value."""
    if value is not None:
        return value
    return float("nan") if kind == "float64" else pandas.NA


def write_trial(
    folder: Path,
    record: Mapping[str, Any],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    texts: Mapping[str, str],
    kind: str = "",
    packets: PacketLog | None = None,
) -> None:
    """Write the records of one trial; its folder appears only when it is complete.

    Parameters
    ----------
    folder : Path
        Folder of the trial, such as ``RUN/trials/0007``.
    record : mapping
        Content of trial.json.
    tables : mapping
        Rows by table, without the columns of schema.TRIAL, which are taken from `record`.
    texts : mapping
        Texts of further files by name; empty texts are not written.
    kind : str
        Kind of the trial's network, such as ``dcell``, for the full names of servers in tables.
    packets : PacketLog, optional
        Log of the trial's packets.
    """
    common = {name: record[name] for name in schema.TRIAL}
    frames = {
        table: frame(table, ({**common, **row} for row in tables.get(table, ())))
        for table in schema.TABLES
        if table not in schema.SOME_RUNS or tables.get(table)
    }
    unfinished = store.new_folder(folder)
    store.write_json(unfinished / TRIAL_FILE, record)
    for name, text in texts.items():
        if text:
            (unfinished / name).write_text(text + "\n", encoding="utf-8")
    for table, made in frames.items():
        named = full_names(made, table, kind) if kind else made
        named.to_parquet(unfinished / f"{table}.parquet", index=False)
    if packets is not None:
        packet_records.write_packets(unfinished / packet_records.FILE, packets)
    store.put_in_place(unfinished, folder)


def write_combined(run: Run, *, plain_csv: bool = False) -> None:
    """Write each table of all trials as one Parquet file and one CSV file.

    Both have full names of servers. `plain_csv` writes short addresses in CSV, which many programs
    read as numbers.
    """
    named, short = replace(run, full_names=True), replace(run, full_names=False)
    for table in (TRIALS, *schema.TABLES):
        found: pandas.DataFrame = getattr(named, table)
        if table in schema.SOME_RUNS and found.empty:
            continue
        read: pandas.DataFrame = getattr(short, table) if plain_csv else found
        for suffix, write in (("parquet", found.to_parquet), ("csv", read.to_csv)):
            store.write_by(run.folder / f"{table}.{suffix}", partial(write, index=False))


def full_names(found: pandas.DataFrame, table: str, kind: str) -> pandas.DataFrame:
    """Return a table in which servers have full names, ``1.10.dcell``.

    A short address is a number to most programs: pandas reads 1.10 as 1.1. Names of switches and
    full names stay as they are.
    """
    return _replace_in_addresses(found, table, r"(?<!\S)(\d[\d.]*)(?!\S)", rf"\1.{kind}")


def short_names(found: pandas.DataFrame, table: str) -> pandas.DataFrame:
    """Return a table in which servers have short addresses, ``1.10``, as topologies write them."""
    return _replace_in_addresses(found, table, r"(?<=\d)\.[^\W\d]\w*(?!\S)", "")


def _replace_in_addresses(
    found: pandas.DataFrame, table: str, pattern: str, by: str
) -> pandas.DataFrame:
    """Return a table with a pattern replaced in all columns that contain addresses."""
    names = schema.ADDRESSES.get(table, ())
    changed = {name: found[name].str.replace(pattern, by, regex=True) for name in names}
    return found.assign(**changed)


@dataclass(frozen=True)
class Run:
    """A finished or unfinished run of an experiment: its manifest, trial records and result tables.

    `trials` has a row for each trial; schema.py describes `flows`, `intervals`, `links`, `events`,
    `transfers`, `classes` and `subflows`. Tables are read on first access.
    """

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    # Content of trial.json of each trial, in the order of trial numbers.
    records: tuple[dict[str, Any], ...] = field(repr=False)
    # None if the manifest is damaged: only tables with short names can then be read.
    experiment: Experiment | None = field(default=None, repr=False)
    # True: tables have full server names, 1.10.dcell; False: short addresses, 1.10.
    full_names: bool = False

    @property
    def plan(self) -> Experiment:
        """The run's experiment, whose systems know their networks."""
        assert self.experiment is not None
        return self.experiment

    def valid(self) -> Run:
        """Return the run with only the trials that their verdicts call valid."""
        return replace(self, records=tuple(one for one in self.records if one["valid"]))

    def of(self, system: str) -> Run:
        """Return the run with the trials of one system only."""
        return replace(self, records=tuple(one for one in self.records if one["system"] == system))

    @property
    def systems(self) -> list[str]:
        """The names of the systems, in the order of the plan."""
        return [system.name for system in self.plan.systems]

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each system's network, such as ``dcell``."""
        return {system.name: system.topology.kind for system in self.plan.systems}

    @cached_property
    def trials(self) -> pandas.DataFrame:
        """Table of trials: one row for each trial, with its totals."""
        wanted = columns(TRIALS)
        return frame(TRIALS, ({name: one.get(name) for name in wanted} for one in self.records))

    @cached_property
    def flows(self) -> pandas.DataFrame:
        """Table of flows: one row for each flow."""
        return self._table("flows")

    @cached_property
    def intervals(self) -> pandas.DataFrame:
        """Table of intervals: one row for each flow and time interval."""
        return self._table("intervals")

    @cached_property
    def links(self) -> pandas.DataFrame:
        """Table of links: one row for each direction of each cable."""
        return self._table("links")

    @cached_property
    def events(self) -> pandas.DataFrame:
        """Table of events: one row for each fault and repair."""
        return self._table("events")

    @cached_property
    def transfers(self) -> pandas.DataFrame:
        """Table of transfers: one row for each transfer of a collective operation."""
        return self._table("transfers")

    @cached_property
    def ranks(self) -> pandas.DataFrame:
        """Table of ranks: one row for each rank of a training iteration."""
        return self._table("ranks")

    @cached_property
    def nodes(self) -> pandas.DataFrame:
        """Table of nodes: one row for each node of a training iteration's trace."""
        return self._table("nodes")

    @cached_property
    def jobs(self) -> pandas.DataFrame:
        """Table of jobs: one row for each of several jobs in one network."""
        return self._table("jobs")

    @cached_property
    def classes(self) -> pandas.DataFrame:
        """Table of classes: one row for each size class of arriving flows."""
        return self._table("classes")

    @cached_property
    def subflows(self) -> pandas.DataFrame:
        """Table of subflows: one row for each subflow of Multipath TCP and interval."""
        return self._table("subflows")

    def _table(self, table: str) -> pandas.DataFrame:
        kinds = self.kinds if self.full_names else {}
        parts = [
            self._trial_table(one["trial"], table, kinds.get(one.get("system", "")))
            for one in self.records
        ]
        whole = [part for part in parts if len(part)]
        return pandas.concat(whole, ignore_index=True) if whole else frame(table, ())

    def _trial_table(self, trial: int, table: str, kind: str | None) -> pandas.DataFrame:
        """Return a trial's table; servers have full names if the kind of the network is given."""
        file = trial_folder(self.folder, trial) / f"{table}.parquet"
        if table in schema.SOME_RUNS and not file.exists():
            return frame(table, ())
        read = store.read_parquet(file)
        try:
            found = typed(table, read)
            return full_names(found, table, kind) if kind else short_names(found, table)
        except (LookupError, NotImplementedError, TypeError, ValueError) as error:
            raise PillarboxError(f"{file} cannot be read: {error}") from None


def trial_folder(run: Path, trial: int) -> Path:
    """Return the folder of a trial's records in a run's folder."""
    return run / "trials" / f"{trial:04d}"


def finished_trials(run: Path) -> Sequence[int]:
    """Return the numbers of the trials that have records in a run's folder, ascending."""
    found = (run / "trials").glob(f"[0-9]*/{TRIAL_FILE}")
    return sorted(int(file.parent.name) for file in found if file.parent.name.isdecimal())


def load_with_full_names(path: Path | str) -> Run:
    """Load the records of a run's finished trials, with full names of servers, as pandas frames.

    Full names are those of the run's files, ``1.10.dcell``. Raises PillarboxError if the folder is
    not a run, or if its records have a newer version.
    """
    return replace(load(path), full_names=True)


def load(path: Path | str, experiment: Experiment | None = None) -> Run:
    """Load the records of a run's finished trials, with short addresses of servers.

    A process that has the run's experiment passes it; else it is read from the manifest. Raises
    PillarboxError if the folder is not a run, or if its records have a newer version.
    """
    from pillarbox.experiments.runs.plans.loading import experiment_of
    from pillarbox.experiments.runs.plans.values import plain

    folder = Path(path)
    require(
        (folder / MANIFEST).is_file(),
        f"{folder} is not a run: choose a folder with a {MANIFEST}, as `pillarbox run` writes it",
    )
    manifest = store.read_table(folder / MANIFEST)
    version = manifest.get("schema_version")
    require(
        isinstance(version, int) and version <= schema.VERSION,
        f"{folder} has records of version {version}, newer than the {schema.VERSION} that this "
        "Pillarbox reads: update Pillarbox",
    )
    bring_up_to_date(manifest)
    # Adds default values and checks all types.
    experiment = experiment or experiment_of(manifest["plan"])
    records = tuple(trial_record(folder, n) for n in finished_trials(folder))
    return Run(folder, manifest | {"plan": plain(experiment)}, records, experiment)


def trial_record(run: Path, trial: int) -> dict[str, Any]:
    """Return the checked content of a trial's trial.json."""
    file = trial_folder(run, trial) / TRIAL_FILE
    found = store.read_json(file)
    record = dict(found) if isinstance(found, dict) else {}
    missing = [name for name in schema.TRIAL if name not in record]
    require(not missing, f"{file} has no {', '.join(missing)}")
    require(record["trial"] == trial, f"{file} belongs to another trial: {record['trial']!r:.20}")
    for name, kind in columns(TRIALS).items():
        value = record.get(name)
        known = _has_type(kind, value) or (value is None and name not in REQUIRED)
        require(known, f"{file} is damaged: {name} is {value!r:.40}")
    found = {**dict.fromkeys(columns(TRIALS)), "verdict": {"reasons": []}, "readings": {}, **record}
    _check_verdict(file, found["verdict"])
    _check_readings(file, found["readings"])
    return found


def _check_verdict(file: Path, verdict: Any) -> None:
    """Raise PillarboxError if the reasons, warnings or figures of a verdict have wrong types."""
    whole = isinstance(verdict, dict) and "reasons" in verdict
    require(whole, f"{file} is damaged: its verdict has no reasons")
    for name in ("reasons", "warnings"):
        texts = verdict.get(name, [])
        listed = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        require(listed, f"{file} is damaged: the verdict's {name} are {texts!r:.40}, not texts")
    figures = verdict.get("figures", {})
    measured = isinstance(figures, dict) and all(
        number is None or _has_type("float64", number) for number in figures.values()
    )
    require(measured, f"{file} is damaged: the verdict's figures are {figures!r:.40}, not numbers")


def _check_readings(file: Path, readings: Any) -> None:
    """Raise PillarboxError if a trial's readings of machines are incomplete."""
    require(isinstance(readings, dict), f"{file} is damaged: its readings are {readings!r:.40}")
    machines = readings.get("machines", [])
    whole = isinstance(machines, list) and all(_is_machine(machine) for machine in machines)
    require(whole, f"{file} is damaged: its readings of machines are {machines!r:.40}")
    timed = not machines or _has_type("float64", readings.get("duration_s"))
    require(timed, f"{file} is damaged: its readings have no duration_s")


def _is_machine(value: Any) -> bool:
    """Return True if a value of JSON has all readings of a machine."""
    return isinstance(value, dict) and all(
        _has_type(MACHINE_KINDS[one.type], value.get(one.name))
        for one in fields(MachineReadings)
        if one.type in MACHINE_KINDS
    )


def _has_type(kind: str, value: Any) -> bool:
    """Return True if a value of JSON has the type of a column."""
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    fits = isinstance(value, int) and abs(value) < MOST_WHOLE
    return fits or (kind == "float64" and isinstance(value, float))


def bring_up_to_date(manifest: dict[str, Any]) -> None:
    """Convert a manifest of an older version of the records to this version, in place.

    In version 1 each fault of the plan was a table of its parts.
    """
    require(isinstance(manifest.get("plan"), dict), "the run's manifest has no plan")
    if manifest.get("schema_version") != 1:
        return
    try:
        for fault in manifest["plan"].get("faults", []):
            kind = fault.pop("kind")
            if "what" in fault:
                moments = fault.pop("at_s"), fault.pop("until_s", None)
                fault["fault"] = str(Fault(kind, tuple(fault.pop("what")), *moments))
            else:
                fault["fault"] = fault_kind(kind).words
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PillarboxError(f"a fault in the run's manifest is damaged: {error!r:.80}") from None
    manifest["schema_version"] = schema.VERSION
