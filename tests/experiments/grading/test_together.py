"""A class: what is refused, what is written, and that no submission costs another its marks."""

import csv
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from experiments.commands.grade_all import command
from topos.base.errors import PillarboxError

ANSWERS = Path(__file__).parents[2] / "vagrant" / "labs" / "answers"
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
        "link": "it is a link",
        "linked": "it is a link",
        "inside": "its file is a link",
        "pipe": "it is no file",
        "'=1+1'": "no student's ID",
        "'<b>'": "no student's ID",
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
    with pytest.raises(PillarboxError, match="no word in"):
        grade_all(handed_in, "--secret-file", str(empty))
    for each in handed_in.iterdir():
        if each.name != "s0.py":
            each.rename(handed_in.parent / each.name)
    assert grade_all(handed_in, "--practice").return_value == 0
    page = handed_in.parent / "marks" / "students" / "s0.html"
    assert "this is practice" in page.read_text()
