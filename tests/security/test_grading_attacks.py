"""Attacks on the marks of a class: links, text, size and shape of submissions."""

from __future__ import annotations

import ast
import csv
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pillarbox.experiments.apps.teaching import child, class_grading
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.cli.commands.grade import command as grade
from pillarbox.experiments.cli.commands.grade_all import command as grade_all
from pillarbox.experiments.runs.trials import store
from pillarbox.topos.base.errors import PillarboxError
from tests.security.hostile_class import SECRET
from tests.vagrant.labs.runs import model_runs
from tests.vagrant.labs.test_answers import model_of

MODEL = model_of(sheet_of("1", "s0"))


class EndedError(Exception):
    """The grader is interrupted."""


DROPS = """

class Drop:
    def __init__(self, packet):
        self.reason, self.packet = "\\ud800\\x1b[2J=cmd", packet


def send(self, packet, now):
    return [Drop(packet)]


DPillarSP.send = send
"""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "DECISION_S", 30.0)  # a busy machine's right answers are right
    monkeypatch.setattr(child, "PATIENCE_S", 300.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "word").write_text(SECRET + "\n")
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def graded(lab: str, folder: Path, *options: str) -> dict[str, dict[str, str]]:
    """Return the rows of marks.csv by file."""
    names = [str(folder), "--out", str(folder.parent / "out")]
    arguments = [lab, *names, "--secret-file", str(folder.parent / "word"), *options]
    CliRunner().invoke(grade_all, arguments, catch_exceptions=False, standalone_mode=False)
    return rows_of(folder)


def rows_of(folder: Path) -> dict[str, dict[str, str]]:
    lines = (folder.parent / "out" / "marks.csv").read_text(encoding="utf-8").splitlines()
    return {row["file"]: row for row in csv.DictReader(lines)}


@pytest.mark.parametrize("options", [[], ["--case", "1.1"], ["--json"]])
def test_a_link_to_the_secret_shows_nothing_of_it(folder: Path, options: list[str]) -> None:
    (folder / "mine.py").symlink_to(folder.parent / "word")
    (folder / "s0").mkdir()
    (folder / "s0" / "mine.py").symlink_to(folder.parent / "word")
    for file in (folder / "mine.py", folder / "s0", folder / "s0" / "mine.py"):
        with pytest.raises(PillarboxError, match="is a link") as raised:
            CliRunner().invoke(
                grade, ["1", "--student", "s0", str(file), *options], catch_exceptions=False
            )
        assert SECRET not in str(raised.value)


def test_a_run_behind_a_link_is_not_read(folder: Path) -> None:
    runs = model_runs(folder.parent / "teacher", sheet_of("7", "s0").values)
    (folder / "s0").mkdir()
    (folder / "s0" / "mine.py").write_text(model_of(sheet_of("7", "s0")))
    for name in ("first", "second"):
        (folder / "s0" / name).symlink_to(runs / name)
    assert float(graded("7", folder)["s0"]["points"]) == 80  # of what needs no run
    assert "cannot be read: Not a directory" in (folder.parent / "out" / "marks.json").read_text()


def test_a_table_of_400000_columns_costs_only_its_student(folder: Path) -> None:
    for student in ("s0", "wide2"):  # whose sheets are the same
        model_runs(folder / student, sheet_of("7", "s0").values)
        (folder / student / "mine.py").write_text(model_of(sheet_of("7", "s0")))
    names = ",".join(f"column{number}" for number in range(400_000))
    (folder / "wide2" / "first" / "flows.csv").write_text(names + "\n" + "1\n" * 1000)
    rows = graded("7", folder)
    assert float(rows["s0"]["points"]) == 100
    assert float(rows["wide2"]["points"]) < 100
    assert "has more than 100 columns" in (folder.parent / "out" / "marks.json").read_text()


def test_a_reason_that_is_no_text_costs_nobody_the_marks(folder: Path) -> None:
    (folder / "s0.py").write_text(model_of(sheet_of("2", "s0")))
    (folder / "drops.py").write_text(model_of(sheet_of("2", "drops")) + DROPS)
    rows = graded("2", folder)
    assert float(rows["s0.py"]["points"]) == 100
    assert float(rows["drops.py"]["points"]) < 100
    page = (folder.parent / "out" / "students" / "drops.html").read_text(encoding="utf-8")
    assert "\\ud800\\x1b[2J=cmd" in page
    assert "\x1b" not in page


def test_marks_stay_where_the_grader_is_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for student in ("s0", "s1", "s2"):
        (folder / f"{student}.py").write_text(model_of(sheet_of("1", student)))
    written = []

    def write_marks(made: class_grading.ClassMarks, out: Path) -> None:
        write(made, out)
        written.append(made)
        if len(written) == 2:
            raise EndedError

    write = class_grading.write_marks
    monkeypatch.setattr(class_grading, "write_marks", write_marks)
    with pytest.raises(EndedError):
        graded("1", folder, "--jobs", "1")
    points = [(row["points"], row["remark"]) for row in rows_of(folder).values()]
    assert points == [("100.0", ""), ("100.0", ""), ("0.0", "not graded yet")]
    monkeypatch.undo()
    asked: list[str] = []
    monkeypatch.setattr(
        class_grading.grading_engine, "grade", lambda sheet, *_, **__: asked.append(sheet)
    )
    rows = graded("1", folder, "--jobs", "1", "--changed")
    assert [row["points"] for row in rows.values()] == ["100.0", "100.0", "0.0"]
    assert "not graded: the grader cannot handle it" in rows["s2.py"]["remark"]


def test_what_is_removed_meanwhile_is_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for student in ("s0", "s1"):
        (folder / f"{student}.py").write_text(model_of(sheet_of("1", student)))
    write = class_grading.write_marks

    def write_marks(made: class_grading.ClassMarks, out: Path) -> None:
        write(made, out)
        (folder / "s1.py").unlink(missing_ok=True)

    monkeypatch.setattr(class_grading, "write_marks", write_marks)
    rows = graded("1", folder, "--jobs", "1")
    assert rows["s0.py"]["points"] == "100.0"
    assert (
        rows["s1.py"]["remark"]
        == "refused: the submission cannot be read: No such file or directory"
    )


def test_a_full_disk_is_a_sentence_and_leaves_the_marks_that_are_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "s0.py").write_text(MODEL)
    graded("1", folder)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "settle", full)
    with pytest.raises(PillarboxError, match=r"marks cannot be written .*No space left on device"):
        graded("1", folder)
    assert rows_of(folder)["s0.py"]["points"] == "100.0"


def test_two_entries_of_one_name_are_both_refused(folder: Path) -> None:
    (folder / "s0.py").write_text(MODEL)
    (folder / "s0").mkdir()
    (folder / "s0" / "mine.py").write_text(MODEL)
    remarks = [row["remark"] for row in graded("1", folder).values()]
    assert remarks == ["refused: s0 has submitted both a file and a folder"] * 2


def test_numbers_of_a_judge_are_checked() -> None:
    lab: Any = sheet_of("1", "s0").lab
    made = [{"got": 0.0, "why": "x\x1b", "wrong": []} for _ in lab.CHECKS]
    rest = {"notes": [], "digest": "", "changed_s": 0.0, "fingerprints": [], "runs": []}
    rest |= {"figures": {"score": 1.5}}
    assert class_grading.validated_marks({"marks": made, **rest}, lab).figures == {"score": 1.5}
    for figures in ({"score": float("nan")}, {"score": "1.5"}, [1.5], None):
        with pytest.raises(class_grading.judge.JudgeFailure, match="malformed answer"):
            class_grading.validated_marks({"marks": made, **rest, "figures": figures}, lab)
    assert class_grading.validated_marks({"marks": made, **rest}, lab).marks[0].why == "x\\x1b"
    for marks in (
        [{**made[0], "got": 21.0}, *made[1:]],
        [{**made[0], "got": float("nan")}, *made[1:]],
        [{**made[0], "got": "20"}, *made[1:]],
        made[1:],
        "marks",
        None,
    ):
        with pytest.raises(class_grading.judge.JudgeFailure, match="malformed answer"):
            class_grading.validated_marks({"marks": marks, **rest}, lab)
    with pytest.raises(class_grading.judge.JudgeFailure, match="malformed answer"):
        class_grading.validated_marks(json.loads('{"marks": [], "changed_s": Infinity}'), lab)


# -- one reader ------------------------------------------------------------------------------------

READS = {
    *("open", "read_text", "read_bytes", "iterdir", "glob", "rglob", "walk", "scandir", "listdir"),
    *("copy", "copy2", "copytree", "load"),
}
# Functions that read files of the teacher, of Pillarbox or of this process; * means all.
TEACHERS = {
    ("submissions", "*"),  # the one reader
    *((module, "*") for module in ("forbidden_actions", "layers", "release")),
    *(
        ("autograder", name)
        for name in ("write_autograder", "_open_private", "_pillarbox_files", "_sheet_text")
    ),
    ("class_network", "read_faults"),
    ("class_router", "ClassRouter"),  # what the command wrote into the lab's folder
    ("control_compiler", "_headers"),
    ("control_grading", "fingerprints_of_shipped_controls"),
    ("control_grading", "_measured"),  # measurements of its own child, in a folder of its own
    ("grading_engine", "skeleton_of"),
    ("lab4", "_surely_arrives"),  # `walk` of a network
    ("lateness", "times_of"),
    ("live_grading", "add_live"),  # marks of its own child, in a folder of its own
    ("grade", "secret_from_options"),
    ("judge", "_judge_process_main"),  # /dev/null
}


def test_students_files_are_opened_by_one_reader_alone() -> None:
    modules = [*(CHECKOUT / "experiments" / "apps" / "teaching").rglob("*.py")]
    modules += [*(CHECKOUT / "experiments" / "cli" / "commands").glob("grade*.py")]
    found = {(file.stem, where, line) for file in modules for where, line in _reads(file)}
    assert len(modules) > 20
    assert [one for one in sorted(found) if not {one[:2], (one[0], "*")} & TEACHERS] == [], (
        "read a student's file by pillarbox.experiments.apps.teaching.submissions"
    )


def _reads(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the function and the line of each call that may open a file or list a folder."""
    for top in ast.parse(file.read_text()).body:
        for node in ast.walk(top):
            if isinstance(node, ast.Call):
                called = node.func
                name = getattr(called, "attr", getattr(called, "id", ""))
                owner = getattr(getattr(called, "value", None), "id", "")
                if name in READS and owner not in ("json", "numpy"):
                    yield getattr(top, "name", ""), node.lineno
