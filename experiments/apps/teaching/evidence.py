"""Validation of the folder of a run that a student submitted.

Only JSON and CSV files of the folder are read (`places`), by submissions.py. A run is valid if its
plan equals the sheet's plan, its networks have the sheet's cables, its trials are those that the
plan draws, their figures match the tables of flows and cables, and their verdicts follow from their
readings. An invented run passes only if all of these parts are consistent with one another.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.submissions import Files
from pillarbox.experiments.models.workloads.flows import COMPLETED
from pillarbox.experiments.runs.plans.experiment import Experiment
from pillarbox.experiments.runs.plans.trials import Trial, blocks
from pillarbox.experiments.runs.plans.values import differences, plain
from pillarbox.experiments.runs.trials.manifest import network_facts
from pillarbox.experiments.runs.trials.records import MANIFEST, TRIAL_FILE
from pillarbox.experiments.runs.trust.readings import DurationStatistics, Readings
from pillarbox.experiments.runs.trust.verdict import judge
from pillarbox.topos.base.errors import PillarboxError

TABLES = ("flows", "links")
MOST_TABLE_BYTES, MOST_JSON_BYTES = 8_000_000, 1_000_000
MOST_COLUMNS = 100
MOST_REPEATS, MOST_SEED = 50, 1 << 62
SAME = (
    1e-3  # relative tolerance between two recorded copies of a value, which are rounded differently
)
# Bounds for a submitted run's bytes on all cables, as multiples of the payload. The byte count
# starts late, and includes headers and retransmissions.
SENT_LEAST, SENT_MOST = 0.8, 2.0
# Fields of an experiment plan that students may choose in any submitted run.
FREE = {"name", "about", "repeats", "seed", "precision", "most_repeats"}
SPREADS = ("round_trip", "lateness", "pacing")
Row = dict[str, Any]


class RequiredRun(NamedTuple):
    """Requirements of a student's run: the experiment plan, and fields that students choose."""

    experiment: Experiment
    free: Sequence[str]  # keys of the experiment plan that the student chooses
    ideals: dict[str, float]  # ideal completion time by system in seconds, at 1 bit/s and 1 byte
    sent: dict[str, float]  # payload bytes on all cables by system, if each flow carries 1 byte


class EvidenceTrial(NamedTuple):
    """One completed trial of a student's run."""

    system: str
    valid: bool
    completion_s: float
    ideal_s: float


class Evidence(NamedTuple):
    """A student's submitted run: cable rate, volume of each flow and completed trials."""

    rate_mbit: float
    volume_bytes: int
    trials: Sequence[EvidenceTrial]

    def trials_of(self, system: str, *, valid: bool) -> list[EvidenceTrial]:
        """Return the valid trials of a system (network and routing), or its invalid trials."""
        return [one for one in self.trials if one.system == system and one.valid is valid]


def run_file_limits(names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the file paths of a student's runs, with the files' maximum sizes in bytes."""
    return [
        *((f"{name}/{MANIFEST}", MOST_JSON_BYTES) for name in names),
        *((f"{name}/{table}.csv", MOST_TABLE_BYTES) for name in names for table in TABLES),
        *(
            (_trial_file(name, number), MOST_JSON_BYTES)
            for name in names
            for number in range(2 * MOST_REPEATS)
        ),
    ]


def read_submitted_run(files: Files, name: str, wanted: RequiredRun) -> Evidence:
    """Return a submitted run's trials; raise StudentError if the run violates a requirement."""
    place = f"the run's folder `{name}`"
    if not any(file.startswith(f"{name}/") for file in files):
        raise StudentError(f"{place} is missing next to the file: submit it too")
    try:
        return _Reader(files, name, wanted).evidence()
    except StudentError as mistake:
        raise StudentError(f"{place}: {mistake}") from None
    except PillarboxError as error:
        raise StudentError(f"{place}: {error}") from None
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise StudentError(f"{place} is not as `pillarbox run` writes it: {error!r:.80}") from None
    except (ValueError, ArithmeticError, RecursionError, MemoryError, csv.Error) as error:
        raise StudentError(f"{place} cannot be read: {error!r:.80}") from None


def trial_hashes(files: Files, names: Sequence[str]) -> set[str]:
    """Return hashes of the trials in a student's runs; equal hashes indicate a copied trial."""
    found: set[str] = set()
    for name in names:
        try:
            for number in range(2 * MOST_REPEATS):
                record = json.loads(_text(files, _trial_file(name, number)))
                seen = json.dumps([record["readings"], record["completion_s"]], sort_keys=True)
                found.add(hashlib.sha256(seen.encode()).hexdigest())
        except (StudentError, KeyError, TypeError, ValueError, RecursionError, MemoryError):
            continue  # The submitted run lacks a trial, or the trial's record is malformed.
    return found


def _text(files: Files, place: str) -> str:
    content = files.get(place, f"{place} is missing")
    if isinstance(content, str):
        raise StudentError(content)
    return content.decode("utf-8")


def _trial_file(name: str, number: int) -> str:
    return f"{name}/trials/{number:04d}/{TRIAL_FILE}"


class _Reader:
    """Reader of a submitted run; methods raise StudentError for the first violated requirement."""

    def __init__(self, files: Files, name: str, wanted: RequiredRun) -> None:
        self.files, self.name, self.wanted = files, name, wanted

    def evidence(self) -> Evidence:
        """Return a submitted run after all checks of its records."""
        manifest = json.loads(_text(self.files, f"{self.name}/{MANIFEST}"))
        experiment = self._experiment(manifest["plan"])
        for system in experiment.systems:
            if manifest["networks"][system.name] != network_facts(system.topology):
                raise StudentError(f"its {system.network} does not have the cables of this network")
        flows, links = (self._table(table) for table in TABLES)
        rate_mbit = number_of(experiment.systems[0].rate_mbit)
        volume_bytes = int(number_of(experiment.workload.volume_bytes))
        shown = []
        for trial in (trial for block in blocks(experiment) for trial in block):
            record = json.loads(_text(self.files, _trial_file(self.name, trial.number)))
            if record["status"] != COMPLETED:
                continue
            number = str(trial.number)
            shown.append(
                self._trial(
                    trial,
                    record,
                    [row for row in flows if row["trial"] == number],
                    [row for row in links if row["trial"] == number],
                    (rate_mbit, volume_bytes),
                )
            )
        return Evidence(rate_mbit, volume_bytes, shown)

    def _experiment(self, plan: Any) -> Experiment:
        """Return a run's plan; raise StudentError if a fixed field differs from the lab sheet."""
        wanted = self.wanted.experiment
        rate, volume = plan["systems"][0]["rate_mbit"], plan["workload"]["volume_bytes"]
        if "rate_mbit" in self.wanted.free:
            rate = number_of(rate)
            systems = tuple(replace(system, rate_mbit=rate) for system in wanted.systems)
            wanted = replace(wanted, systems=systems)
        if "volume_bytes" in self.wanted.free:
            workload = replace(wanted.workload, volume_bytes=int(number_of(volume)))
            wanted = replace(wanted, workload=workload)
        there, ours = (
            {key: value for key, value in one.items() if key not in FREE}
            for one in (plan, plain(wanted))
        )
        for key, mine, right in differences(there, ours):
            raise StudentError(
                f"its plan has {key} = {mine!r:.40}, and the sheet requires {right!r:.40}"
            )
        repeats, seed = plan["repeats"], plan["seed"]
        if not (isinstance(repeats, int) and 0 < repeats <= MOST_REPEATS):
            raise StudentError(f"{repeats!r:.20} repeats are not from 1 to {MOST_REPEATS}")
        if not (isinstance(seed, int) and abs(seed) < MOST_SEED):
            raise StudentError(f"{seed!r:.20} is not a valid seed")
        return replace(wanted, repeats=repeats, seed=seed)

    def _table(self, table: str) -> list[dict[str, str]]:
        place = f"{self.name}/{table}.csv"
        rows = csv.DictReader(io.StringIO(_text(self.files, place)))
        if len(rows.fieldnames or ()) > MOST_COLUMNS:  # limits the memory of each row
            raise StudentError(f"{place} has more than {MOST_COLUMNS} columns")
        return list(rows)

    def _trial(
        self,
        trial: Trial,
        record: Row,
        flows: list[dict[str, str]],
        links: list[dict[str, str]],
        asked: tuple[float, int],
    ) -> EvidenceTrial:
        """Return a submitted trial after checking its totals and its validity verdict."""
        (rate_mbit, volume_bytes), system = asked, trial.system.name
        if (record["system"], record["repeat"], record["seed"]) != (
            system,
            trial.repeat,
            trial.seed,
        ):
            raise StudentError(f"trial {trial.number} differs from the trial that its plan draws")
        took_s = number_of(record["completion_s"])
        ideal_s = self.wanted.ideals[system] * volume_bytes / (rate_mbit * 1e6)
        if not math.isclose(number_of(record["ideal_s"]), ideal_s, rel_tol=0.02):
            raise StudentError(
                f"ideal_s of trial {trial.number} differs from the ideal of these cables"
            )
        if took_s < ideal_s * 0.97:
            raise StudentError(f"{took_s:g} s is faster than these cables allow")
        self._check_totals(trial, record, flows, links, volume_bytes)
        seen = _readings(record["readings"], links)
        if seen.rate_bps != rate_mbit * 1e6:
            raise StudentError(f"trial {trial.number} ran at another rate")
        valid = judge(seen, number_of(record["ideal_bps"]), record["goodput_bps"]).valid
        if not valid is record["valid"] is record["verdict"]["valid"]:
            raise StudentError(
                f"the verdict on trial {trial.number} does not follow from its readings"
            )
        return EvidenceTrial(system, valid, took_s, ideal_s)

    def _check_totals(
        self,
        trial: Trial,
        record: Row,
        flows: list[dict[str, str]],
        links: list[dict[str, str]],
        volume_bytes: int,
    ) -> None:
        """Raise StudentError if a submitted trial's totals, flows and cable bytes disagree."""
        pairs = {(_server(row["source"]), _server(row["destination"])) for row in flows}
        network = trial.system.topology
        names = [network.address(server) for server in range(network.servers)]
        whole = [row for row in flows if row["status"] == COMPLETED]
        if pairs != {(a, b) for a in names for b in names if a != b} or len(whole) != len(pairs):
            raise StudentError(
                f"the flows of trial {trial.number} do not match the pairs of servers"
            )
        if any(int(row["delivered_bytes"]) != volume_bytes for row in whole):
            raise StudentError(f"a flow of trial {trial.number} delivered a different volume")
        took_s, goodput_bps = record["completion_s"], number_of(record["goodput_bps"])
        end_s = max(float(row["end_s"]) for row in whole)
        total_bps = len(whole) * volume_bytes * 8 / took_s
        same = (end_s, took_s), (goodput_bps, total_bps)
        if not all(math.isclose(*pair, rel_tol=SAME) for pair in same):
            raise StudentError(
                f"the totals of trial {trial.number} differ from the totals of its flows"
            )
        sent = sum(int(row["sent_bytes"]) for row in links)
        least = self.wanted.sent[trial.system.name] * volume_bytes
        if len(links) != 2 * network.cables or not least * SENT_LEAST <= sent <= least * SENT_MOST:
            raise StudentError(f"the cables of trial {trial.number} did not carry its flows")


def number_of(value: Any) -> float:
    """Return a number of a submitted run's record; raise StudentError unless it is above 0."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not 0 < value < 1e15:
        raise StudentError(f"{value!r:.40} is not a number above 0")
    return float(value)


def _server(name: str) -> str:
    """Return a server's address without the suffix of its network's kind."""
    address, _, kind = name.rpartition(".")
    return name if kind.isdecimal() else address


def _readings(plain_ones: Any, links: list[dict[str, str]]) -> Readings:
    """Return a trial's readings for the verdict, which needs only `conserved` of each cable."""
    spreads = {name: DurationStatistics(**plain_ones[name]) for name in SPREADS}
    kept = [{"conserved": float(row["conserved"]) if row["conserved"] else None} for row in links]
    return Readings(**{**plain_ones, **spreads, "links": kept})
