"""Readers of the files of a run: its manifest, its trials, its records (see `_readers`)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from tests.benches._mutations import json_corpus

Plans: TypeAlias = Callable[[], tuple[bytes, ...]]  # returns the fuzzing corpus of plans


def manifest_corpus(plans_of: Plans) -> tuple[bytes, ...]:
    """Return run manifests in the current and the first format version, as a fuzzing corpus."""
    plans = [json.loads(plan) for plan in plans_of()]
    machine = {"kernel": "6.1.0", "processor": "a processor", "processors": 2}
    begun = {"wall": "2026-03-01T10:15:00"}
    current = {"schema_version": 4, "plan": plans[0], "machine": machine, "begun": begun}
    fault = {"kind": "cut", "what": ["0.0", "s0"], "at_s": 1.0, "until_s": None}
    drawn = {"kind": "server", "per_minute": 20, "lasting_s": 0.5}
    old = {"schema_version": 1, "plan": plans[0] | {"faults": [fault, drawn]}}
    return json_corpus(
        current, old, current | {"pillarbox": {"version": "0.1.0", "commit": "a" * 40}}
    )


@contextmanager
def manifest_reader() -> Iterator[Callable[[bytes], object]]:
    with _run_folder() as folder:

        def read(data: bytes) -> None:
            (folder / "manifest.json").write_bytes(data)
            read_run(folder)

        yield read


def trial_corpus() -> tuple[bytes, ...]:
    from pillarbox.experiments.runs.trust.readings import MachineReadings

    told = {"trial": 0, "system": "bcube,2,1 bsr", "repeat": 0, "valid": True, "seed": 1}
    told |= {"status": "completed", "reason": "", "flows": 12, "failed_flows": 0}
    told |= {"goodput_bps": 4e7, "ideal_bps": 5e7, "completion_s": 1.5, "fairness": 0.99}
    verdict = {"valid": True, "reasons": [], "warnings": [], "figures": {"conserved_median": 0.98}}
    readings = {
        "duration_s": 4.0,
        "machines": [asdict(MachineReadings(0)), asdict(MachineReadings(1, "x"))],
    }
    found = {"figures": 1.5}, {"warnings": 0}
    return json_corpus(
        told | {"verdict": verdict, "readings": readings},
        told | {"verdict": verdict, "valid": False},
        told | {"verdict": verdict, "ideal_bps": -0.0},
        *(told | {"verdict": verdict | one} for one in found),
    )


@contextmanager
def trial_reader(
    plans_of: Plans, use: Callable[[Path], object]
) -> Iterator[Callable[[bytes], object]]:
    with _run_folder() as folder:
        (folder / "manifest.json").write_bytes(manifest_corpus(plans_of)[0])
        file = folder / "trials" / "0000" / "trial.json"
        file.parent.mkdir()

        def read(data: bytes) -> None:
            file.write_bytes(data)
            use(folder)

        yield read


@contextmanager
def _run_folder() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "trials").mkdir()
        yield Path(folder)


def read_run(folder: Path) -> None:
    """Read a fuzzed experiment run's folder as `compare-runs` and `run --resume` do."""
    from pillarbox.experiments.runs.plans.loading import experiment_of
    from pillarbox.experiments.runs.plans.values import differences
    from pillarbox.experiments.runs.trials import records
    from pillarbox.experiments.runs.trials.summary import totals_text, verdict_text

    run = records.load(folder)
    experiment_of(run.manifest["plan"])
    list(differences(run.manifest, {"plan": {}}))
    for record in run.records:
        verdict_text(record), totals_text(record)


def report_run(folder: Path) -> None:
    """Read a possibly partial run as `report` does, and compare the run with itself."""
    from pillarbox.experiments.runs.reporting.report_page import _template_values
    from pillarbox.experiments.runs.reporting.run_reading import read
    from pillarbox.experiments.runs.trials import records
    from pillarbox.experiments.runs.trials.diff import difference, text_of

    _template_values(read(folder), [], [])
    run = records.load(folder)
    text_of(difference(run, run))


def flow_record_corpus() -> tuple[bytes, ...]:
    from pillarbox.experiments.runs.trials.records import frame

    row = {"trial": 0, "system": "a", "repeat": 0, "valid": True, "flow": 0, "source": "0.0"}
    row |= {"destination": "1.1", "tool": "generator", "status": "completed", "reason": ""}
    row |= {"start_s": 0.0, "delivered_bytes": 1000, "tries": 1, "path": "0.0 1.1"}
    rows = [row | {"flow": flow} for flow in range(3)]
    found = []
    for table in (frame("flows", rows), frame("flows", []), frame("events", [])):
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        found.append(buffer.getvalue())
    return tuple(found)


@contextmanager
def flow_record_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.runs.trials.records import Run, trial_folder

    with _run_folder() as folder:
        file = trial_folder(folder, 0) / "flows.parquet"
        file.parent.mkdir()

        def read(data: bytes) -> None:
            file.write_bytes(data)
            assert Run(folder, {}, ({"trial": 0},)).flows is not None

        yield read
