"""A class: what is refused, what is written, and that no submission costs another its marks."""

import csv
import json
import os
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pillarbox.experiments.apps.teaching import grading_engine
from pillarbox.experiments.cli.commands.grade_all import command
from pillarbox.topos.base.errors import PillarboxError

ANSWERS = Path(__file__).parents[3] / "vagrant" / "labs" / "answers"
MODEL = (ANSWERS / "lab1" / "model.py").read_text()
CHECKS = ["addresses and numbers", "peers", "switches", "the port to a server"]


@pytest.fixture
def handed_in(tmp_path: Path) -> Path:
    folder = tmp_path / "handed in"
    folder.mkdir()
    (folder / "s0.py").write_text(MODEL)
    (folder / "thief.py").write_text("# mine\n" + MODEL.replace("digits", "places"))
    (folder / "in-a-folder").mkdir()
    (folder / "in-a-folder" / "work.py").write_text("import os\nos._exit(0)\n")
    (folder / "link.py").symlink_to(folder / "s0.py")
    (folder / "linked").symlink_to(folder / "in-a-folder")
    (folder / "inside").mkdir()
    (folder / "inside" / "work.py").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.py")
    (folder / "=1+1.py").write_text(MODEL)
    (folder / "<b>.py").write_text(MODEL)
    (folder / "two").mkdir()
    (folder / "two" / "a.py").touch()
    (folder / "two" / "b.py").touch()
    return folder


def grade_all(folder: Path, *options: str) -> Result:
    out = str(folder.parent / "marks")
    arguments = ["1", str(folder), "--out", out, *options]
    return CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)


def test_a_class_is_graded_and_written_down(handed_in: Path) -> None:
    word = handed_in.parent / "word"
    word.write_text("sesame\n")
    done = grade_all(handed_in, "--secret-file", str(word))
    assert done.return_value == 1  # some were refused
    marks = handed_in.parent / "marks"
    lines = (marks / "marks.csv").read_text().splitlines()
    rows = {row["student"]: row for row in csv.DictReader(lines)}
    assert len(rows) == 10
    assert rows["s0"]["points"] == "100.0"
    assert [rows["s0"][check] for check in CHECKS] == ["20.0", "35.0", "20.0", "10.0"]
    assert rows["s0"]["like"].startswith("thief (")
    assert rows["thief"]["like"].startswith("s0 (")
    assert rows["in-a-folder"]["points"] == "0.0"
    reasons = {
        "link": "the submission is a link",
        "linked": "the submission is a link",
        "inside": "work.py is a link",
        "pipe": "not a regular file",
        "'=1+1": "not a valid student ID",
        "<b>": "not a valid student ID",
        "two": "2 Python files, not one",
    }
    for student, reason in reasons.items():
        assert reason in rows[student]["remark"], student
    plain = json.loads((marks / "marks.json").read_text())
    assert plain["secret_used"] is True
    assert [{"s0", "thief"}] == [
        {pair["first"], pair["second"]} for pair in plain["similarity"]["pairs"]
    ]
    pages = sorted(page.stem for page in (marks / "students").iterdir())
    assert pages == ["in-a-folder", "inside", "link", "linked", "pipe", "s0", "thief", "two"]
    assert "these marks count" in (marks / "students" / "s0.html").read_text()
    whole = (marks / "class.html").read_text()
    assert "<b>" not in whole
    assert "70 % or more in common" in whole


def test_marks_that_count_need_the_secret(handed_in: Path) -> None:
    with pytest.raises(PillarboxError, match="need the teacher's secret"):
        grade_all(handed_in)
    empty = handed_in.parent / "empty"
    empty.touch()
    with pytest.raises(PillarboxError, match="is empty: write the secret"):
        grade_all(handed_in, "--secret-file", str(empty))
    for each in handed_in.iterdir():
        if each.name != "s0.py":
            each.rename(handed_in.parent / each.name)
    assert grade_all(handed_in, "--practice").return_value == 0
    page = handed_in.parent / "marks" / "students" / "s0.html"
    assert "this is practice" in page.read_text()


def test_late_days_cost_points_and_what_has_not_changed_keeps_its_marks(
    handed_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in handed_in.iterdir():
        if each.name not in ("s0.py", "thief.py"):
            each.rename(handed_in.parent / each.name)
    due = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    os.utime(handed_in / "s0.py", (due.timestamp(),) * 2)
    times = handed_in.parent / "times.csv"
    times.write_text("student,handed_in\nthief,2026-03-03T12:00:01Z\n")
    late = "--practice", "--due", due.isoformat(), "--times", str(times), "--per-day", "20"
    grade_all(handed_in, *late, "--free-days", "1")
    marks = handed_in.parent / "marks"
    first = rows_of(marks)
    assert (first["s0"]["points"], first["s0"]["remark"]) == ("100.0", "")
    assert first["thief"]["days_late"] == "3"
    assert first["thief"]["remark"] == "3 days late, 60% of the points count"

    def graded(*_: object, **__: object) -> None:
        raise PillarboxError("it is graded again")

    monkeypatch.setattr(grading_engine, "grade", graded)
    grade_all(handed_in, "--practice", "--changed")
    assert float(rows_of(marks)["thief"]["points"]) == float(first["thief"]["points"]) / 0.6
    (handed_in / "thief.py").write_text(MODEL)
    grade_all(handed_in, "--practice", "--changed")
    again = {student: row["remark"] for student, row in rows_of(marks).items()}
    assert again == {"s0": "", "thief": "refused: it is graded again"}
    with pytest.raises(PillarboxError, match="another lab, secret"):
        grade_all(handed_in, "--secret", "word", "--changed")


def rows_of(marks: Path) -> dict[str, dict[str, str]]:
    lines = (marks / "marks.csv").read_text().splitlines()
    return {row["student"]: row for row in csv.DictReader(lines)}
