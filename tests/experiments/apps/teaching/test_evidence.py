"""The runs of lab 7: what does not hold is named, and only a run that holds is worth points."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pillarbox.experiments.apps.teaching import grading_engine, marking, submissions
from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.evidence import trial_hashes
from pillarbox.experiments.apps.teaching.labs import lab7
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.apps.teaching.similarity import pairs_with_same_runs
from tests.vagrant.labs.runs import model_runs

SHEET = sheet_of("7", "s0")
TRIAL = "trials/0000/trial.json"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_runs(tmp_path_factory.mktemp("written"), SHEET.values)


@pytest.fixture
def runs(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "runs")


def read(folder: Path) -> submissions.Files:
    with submissions.open_submissions(folder) as opened:
        return opened.contents(marking.further_file_limits(SHEET))


def work(folder: Path) -> Any:
    return grading_engine.Work(SHEET, None, "", read(folder))  # type: ignore[arg-type]  # is not asked


def change(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))


def set_keys(folder: Path, file: str, **values: Any) -> None:
    told = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**told, **values}))


def faster(folder: Path) -> None:
    """All that says how long trial 0 took says less; the tables do not."""
    told = json.loads((folder / TRIAL).read_text())
    took_s = told["completion_s"] * 0.98
    set_keys(folder, TRIAL, completion_s=took_s, goodput_bps=told["goodput_bps"] / 0.98)


def idle(folder: Path) -> None:
    """A run that was not valid says that processors were idle, and not that it was valid."""
    told = json.loads((folder / TRIAL).read_text())
    set_keys(folder, TRIAL, readings={**told["readings"], "idle": 0.01})


def drop_cables(folder: Path) -> None:
    rows = list(csv.reader((folder / "links.csv").read_text().splitlines()))
    (folder / "links.csv").write_text("\n".join(",".join(row) for row in rows[:5]) + "\n")


def widen_table(folder: Path) -> None:
    """Put 400,000 columns in a table, each of whose rows would become that many keys."""
    names = ",".join(f"column{number}" for number in range(400_000))
    (folder / "flows.csv").write_text(names + "\n" + "1\n" * 1000)


def link_trial(folder: Path) -> None:
    (folder / TRIAL).rename(folder / "elsewhere.json")
    (folder / TRIAL).symlink_to(folder / "elsewhere.json")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda run: change(run, "manifest.json", '_bytes": 2000000', '_bytes": 9'), "volume"),
        (lambda run: change(run, "manifest.json", "bcube,3,1", "bcube,2,1"), "network"),
        (lambda run: change(run, "manifest.json", '"mtu": 1500', '"mtu": 9000'), "mtu"),
        (lambda run: change(run, "manifest.json", '"seed": 1', '"seed": 2'), "plan draws"),
        (lambda run: change(run, "manifest.json", '"servers": 9', '"servers": 8'), "the cables"),
        (lambda run: set_keys(run, TRIAL, completion_s=1.0), "faster"),
        (lambda run: set_keys(run, TRIAL, ideal_s=1.0), "ideal_s"),
        (lambda run: set_keys(run, TRIAL, valid=False), "verdict"),
        (lambda run: set_keys(run, TRIAL, readings=[]), "not as `pillarbox run` writes it"),
        (faster, "totals"),
        (idle, "verdict"),
        (drop_cables, "did not carry"),
        (link_trial, "is a link"),
        (widen_table, "more than 100 columns"),
        (lambda run: (run / TRIAL).write_text("[" * 100_000), "cannot be read"),
        (lambda run: (run / "flows.csv").unlink(), "flows.csv is missing"),
    ],
)  # fmt: skip
def test_a_run_that_does_not_hold_says_why(
    spoil: Callable[[Path], Any], says: str, runs: Path
) -> None:
    assert lab7.trial_durations_s(work(runs), "first", "network", valid=True) == [10.5]
    spoil(runs / "first")
    with pytest.raises(StudentError, match=f"folder `first`.*{says}"):
        lab7.submitted_run(work(runs), "first")


def test_without_its_run_nothing_was_measured(tmp_path: Path) -> None:
    with pytest.raises(StudentError, match="`first` is missing next to the file"):
        lab7.submitted_run(work(tmp_path), "first")


def test_the_same_run_of_two_students_is_named(runs: Path) -> None:
    one = trial_hashes(read(runs), lab7.RUNS)
    set_keys(runs / "first", TRIAL, completion_s=11.0)
    other = trial_hashes(read(runs), lab7.RUNS)
    assert (len(one), trial_hashes({}, lab7.RUNS)) == (4, set())
    assert pairs_with_same_runs({"ada": one, "bob": one, "eve": set()}) == [("ada", "bob", 1.0)]
    assert pairs_with_same_runs({"ada": one, "bob": other}) == [("ada", "bob", 0.75)]
