"""A class, drawn: right, half right, wrong, hostile and copied; each gets its own, side by side."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.commands.grade_all import command
from experiments.grading import engine

ANSWERS = Path(__file__).parents[2] / "vagrant" / "labs" / "answers" / "lab1"
KINDS = ("model", "partial", "wrong", "hostile", "copied")
HALF = "half_of_it"
PARTIAL = f"""

def switch(n, k, address, port):
    return "{HALF}"


port_to = switch
"""
WRONG = "def address(*_):\n    return [0]\n\n\nnumber = switch = peers = port_to = address\n"
HOSTILE = (
    "import os\nos._exit(0)\n",
    "import os\nwhile True:\n    os.fork()\n",
    "x = [0] * (1 << 40)\n",
    "def peers(:\n",
    "import os\nfor at in range(3, 32):\n    os.write(at, b'100')\n",
)


def model_of(student: str) -> str:
    kind = kind_of(student)
    return (ANSWERS / ("model.py" if kind == "bcube" else f"model_{kind}.py")).read_text()


def kind_of(student: str) -> str:
    return str(engine.sheet_of("1", student).values["network"]).partition(",")[0]


def disguised(source: str) -> str:
    for name in ("digits", "level", "place", "label", "column", "number_", "found"):
        source = source.replace(name, f"{name[0]}_{name[1:]}")
    return "# All my own work.\n" + source.replace("    ", "  ")


def handed_in(folder: Path, students: int) -> dict[str, tuple[str, str]]:
    """Write the class's files; return of whom each is what, and from whom it was copied."""
    draw = random.Random(students)
    made: dict[str, tuple[str, str]] = {}
    kinds = {f"s{number}": KINDS[number % len(KINDS)] for number in range(students)}
    for student, kind in kinds.items():
        source, of = model_of(student), ""
        if kind == "partial":
            source += PARTIAL
        elif kind == "wrong":
            source = WRONG
        elif kind == "hostile":
            source = draw.choice(HOSTILE) + source
        elif kind == "copied":
            others = [other for other in kinds if kind_of(other) != kind_of(student)]
            of = draw.choice([other for other in others if kinds[other] == "model"])
            source = disguised(model_of(of))
        (folder / f"{student}.py").write_text(source)
        made[student] = kind, of
    return made


@pytest.mark.parametrize("students", [15, pytest.param(60, marks=pytest.mark.long)])
def test_each_of_a_class_gets_its_own(students: int, tmp_path: Path) -> None:
    folder, out, word = tmp_path / "in", tmp_path / "out", tmp_path / "word"
    folder.mkdir()
    word.write_text("sesame")
    made = handed_in(folder, students)
    arguments = ["1", str(folder), "--out", str(out), "--secret-file", str(word)]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)
    assert done.return_value == 0, done.output
    lines = (out / "marks.csv").read_text().splitlines()
    rows = {row["student"]: row for row in csv.DictReader(lines)}
    assert rows.keys() == made.keys()
    parts = [check.name for check in engine.sheet_of("1", "s0").lab.CHECKS]
    for student, (kind, of) in made.items():
        row = rows[student]
        points = float(row["points"])
        assert points == pytest.approx(sum(float(row[part]) for part in parts))
        right = {
            "model": points == 100,
            "partial": 55 <= points < 80,
            "wrong": points < 10,
            "hostile": points == 0,
            "copied": points < 100,  # it is for another network, and named below
        }
        assert right[kind], (student, kind, row)
        named = {one.split(" (")[0] for one in row["like"].replace(") ", ")|").split("|")}
        assert not of or of in named, (student, of, row["like"])
        assert kind != "wrong" or not named - {"", *others_of(made, "wrong")}


def others_of(made: dict[str, tuple[str, str]], kind: str) -> set[str]:
    return {student for student, (one, _) in made.items() if one == kind}
