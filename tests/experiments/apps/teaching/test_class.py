"""A class, drawn: right, half right, wrong, hostile and copied; each gets its own, side by side."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from pillarbox.experiments.apps.teaching import cabling, grading_engine
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.cli.commands.grade_all import command
from tests.vagrant.labs.test_answers import LABS, WRONG, filled_in, model_of, wrong

KINDS = ("model", "partial", "wrong", "hostile", "copied")
HALF = "half_of_it"
SECRET = "sesame"
PARTIAL = f"""

def switch(n, k, address, port):
    return "{HALF}"


port_to = switch
"""
MOST = 95  # points of an answer that is right in part
HOSTILE = (
    "import os\nos._exit(0)\n",
    "import os\nwhile True:\n    os.fork()\n",
    "x = [0] * (1 << 40)\n",
    "def peers(:\n",
    "import os\nfor at in range(3, 32):\n    os.write(at, b'100')\n",
)


def partial_of(sheet: grading_engine.Sheet) -> str:
    """Return an answer that is right in part, with a mistake that costs something."""
    if sheet.number == 1:  # whose models differ
        return model_of(sheet) + PARTIAL
    mistakes = (name for number, name in WRONG if number == sheet.number)
    name = next(name for name in mistakes if sum(WRONG[sheet.number, name]["marks"]) < MOST)
    return filled_in(wrong(sheet.number, name), sheet)


def differ(one: grading_engine.Sheet, other: grading_engine.Sheet) -> bool:
    """Tell whether the model answer to one sheet is wrong for the other."""
    if one.number == 4:  # which needs level 2's port alone: two cablings have it in common
        return (
            len({cabling.cabling_of_sheet(sheet.values).port(2, 3) for sheet in (one, other)}) == 2
        )
    return model_of(one) != model_of(other)


def disguised(source: str) -> str:
    for name in ("digits", "level", "place", "label", "column", "number_", "found"):
        source = source.replace(name, f"{name[0]}_{name[1:]}")
    return "# All my own work.\n" + source.replace("    ", "  ")


def handed_in(folder: Path, lab: str, students: int) -> dict[str, tuple[str, str]]:
    """Write the class's files; return of whom each is what, and from whom it was copied."""
    draw = random.Random(students)
    made: dict[str, tuple[str, str]] = {}
    kinds = {f"s{number}": KINDS[number % len(KINDS)] for number in range(students)}
    sheets = {student: sheet_of(lab, student) for student in kinds}
    for student, kind in kinds.items():
        sheet = sheets[student]
        source, of = model_of(sheet), ""
        if kind == "partial":
            source = partial_of(sheet)
        elif kind == "wrong":
            source = (LABS / sheet.lab.FOLDER / "skeleton.py").read_text() + f"x = {student!r}\n"
        elif kind == "hostile":
            source = draw.choice(HOSTILE) + source
        elif kind == "copied":
            others = [other for other in kinds if differ(sheets[other], sheet)]
            of = draw.choice([other for other in others if kinds[other] == "model"])
            source = disguised(model_of(sheets[of]))
        (folder / f"{student}.py").write_text(source)
        made[student] = kind, of
    return made


@pytest.mark.parametrize(
    ("lab", "students"),
    [("1", 15), *(pytest.param(lab, 60, marks=pytest.mark.long) for lab in "1345")],
)
def test_each_of_a_class_gets_its_own(lab: str, students: int, tmp_path: Path) -> None:
    folder, out, word = tmp_path / "in", tmp_path / "out", tmp_path / "word"
    folder.mkdir()
    word.write_text(SECRET)
    made = handed_in(folder, lab, students)
    arguments = [lab, str(folder), "--out", str(out), "--secret-file", str(word)]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)
    assert done.return_value == 0, done.output
    lines = (out / "marks.csv").read_text().splitlines()
    rows = {row["student"]: row for row in csv.DictReader(lines)}
    assert rows.keys() == made.keys()
    parts = [check.name for check in sheet_of(lab, "s0").lab.CHECKS]
    for student, (kind, of) in made.items():
        row = rows[student]
        points = float(row["points"])
        assert points == pytest.approx(sum(float(row[part]) for part in parts))
        right = {
            "model": points == 100,
            "partial": 10 <= points < MOST,
            "wrong": points < 10,
            "hostile": points == 0,
            "copied": points < 100,  # it is for another draw, and named below
        }
        assert right[kind], (student, kind, row)
        named = {one.split(" (")[0] for one in row["like"].replace(") ", ")|").split("|")}
        assert not of or of in named, (student, of, row["like"])
        assert kind != "wrong" or not named - {"", *others_of(made, "wrong")}


def others_of(made: dict[str, tuple[str, str]], kind: str) -> set[str]:
    return {student for student, (one, _) in made.items() if one == kind}
