"""What a lab sheet shows is what its commands print, and what it says to run can be run."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pillarbox.experiments.apps.teaching import marking
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.cli.main import cli
from tests.vagrant.labs.runs import model_runs

ROOT = Path(__file__).parents[3]
LABS = ROOT / "vagrant" / "labs"
ANSWERS = Path(__file__).parent / "answers"
MARKED = marking.validated_marks
SHEETS = {folder.name: (folder / "README.md").read_text() for folder in LABS.glob("[0-9]*")}
SHOWN = [
    (name, *part.partition("\n")[::2])
    for name, sheet in sorted(SHEETS.items())
    for block in re.findall(r"```console\n(.*?)```", sheet, re.DOTALL)
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
]
# Whose the model answer of each lab is, and what it gets, check by check.
STUDENTS = {1: "s0", 2: "s0", 3: "s0", 4: "s1", 5: "s0", 6: "s0", 7: "s0", 8: "s4", 10: "s1"}
MODELS = {
    1: [20, 35, 20, 10, 15],
    2: [40, 15, 30, 15],
    3: [20, 35, 15, 20, 10],
    4: [10, 25, 10, 15, 25, 15],
    5: [35, 10, 10, 8, 7, 15, 15],
    6: [25, 10, 6, 8, 8, 4, 4, 20, 15],
    7: [20, 30, 15, 10, 15, 10],
    8: [20, 20, 10, 15, 20, 15],
    10: [60, 25, 15],
}


def pillarbox(command: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "pillarbox"
    result = CliRunner().invoke(cli, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), command
    return result.output


@pytest.mark.parametrize(("sheet", "command", "output"), SHOWN)
def test_command_prints_what_the_sheet_shows(
    sheet: str, command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pillarbox(command) == output


@pytest.mark.parametrize("number", MODELS)
def test_student_gets_from_the_skeleton_to_full_marks(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded: list[marking.Marked] = []

    def marked(*arguments: Any) -> marking.Marked:
        graded.append(MARKED(*arguments))
        return graded[0]

    student = STUDENTS[number]
    lab = sheet_of(str(number), student).lab
    sheet = SHEETS[lab.FOLDER]
    (copied,) = re.findall(r"`cp (vagrant/\S+) mine.py`", sheet)
    assert ROOT / copied == LABS / lab.FOLDER / "skeleton.py"
    (command,) = re.findall(r"^(pillarbox grade .* mine.py)$", sheet, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(marking, "validated_marks", marked)
    Path("mine.py").write_bytes((ANSWERS / f"lab{number}" / "model.py").read_bytes())
    if number == 7:
        model_runs(tmp_path, sheet_of("7", student).values)
    told = pillarbox(command.replace("ID", student))
    assert told.split()[-3:] == ["100", "of", "100"]
    (report,) = graded
    assert not report.notes
    assert [mark.got for mark in report.marks] == MODELS[number]


@pytest.mark.parametrize("name", SHEETS)
def test_sheet_has_what_a_lab_needs(name: str) -> None:
    sheet = SHEETS[name]
    assert "**Read first**" in sheet
    assert "**Expected picture**" in sheet
    assert sheet.count("**Question") >= 2
    for link in re.findall(r"\]\(([^)#]+)\)", sheet):
        assert (LABS / name / link).exists(), link


def test_no_sheet_shows_ports_of_mininet_in_the_answer_of_load() -> None:
    """`load` names servers by their addresses."""
    for sheet in LABS.glob("*/README.md"):
        assert not re.search(r"^h\d+-eth\d", sheet.read_text(), re.MULTILINE), sheet
