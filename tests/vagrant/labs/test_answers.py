"""Model answers get full marks, wrong ones what they deserve, to the hundredth of a point."""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pillarbox.experiments.apps.teaching import cabling, grading_engine, marking, submissions
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.apps.teaching.similarity import (
    fingerprints,
    similar_by_submission,
    similar_pairs,
)
from tests.vagrant.labs.runs import model_runs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ANSWERS = Path(__file__).parent / "answers"
LABS = Path(__file__).parents[3] / "vagrant" / "labs"
# A student of each lab; what the model answer gets, test_sheets.py says.
STUDENTS = {1: "s0", 2: "s0", 3: "s0", 4: "s1", 5: "s0", 6: "s0", 7: "s0", 8: "s4", 10: "s1"}
# Each wrong answer is its lab's model with a few changes, or a file of its own.
WRONG: dict[tuple[int, str], dict[str, Any]] = {
    (number, name): mistake
    for number in STUDENTS
    for name, mistake in tomllib.loads((ANSWERS / f"lab{number}/wrong.toml").read_text()).items()
}
# The other networks of lab 1, and other draws of the rest.
DIRECTIONS = ("clockwise", "counter-clockwise")
OTHERS = {
    "lab1/model_ficonn": "s1",
    "lab1/model_dcell": "s3",
    "lab1/model_dpillar": "s8",
    "lab3/model": "s5",
    "lab4/model": "s0",
    "lab4/model_order": "s0",
    "lab5/model": "ada",
    "lab6/model": "s1",
    "lab8/model": "s7",
}


def model(answer: str) -> str:
    return (ANSWERS / f"{answer}.py").read_text()


def wrong(number: int, name: str) -> str:
    mistake = WRONG[number, name]
    if "file" in mistake:
        return (ANSWERS / f"lab{number}" / mistake["file"]).read_text()
    source = model(f"lab{number}/model")
    for old, new in mistake["changes"]:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def marks(number: int, student: str, source: str, beside: Path | None = None) -> list[float]:
    sheet, files = sheet_of(str(number), student), {}
    if beside:
        with submissions.open_submissions(beside) as folder:
            files = folder.contents(marking.further_file_limits(sheet))
    report = grading_engine.grade(sheet, source, files=files)
    assert not report.notes
    return [mark.got for mark in report.marks]


# Another network or another model each; other draws of the same, with --all.
ANEW = [answer for answer in OTHERS if not answer.endswith("/model")]


@pytest.mark.parametrize(
    ("answer", "student"),
    [
        pytest.param(*one, marks=[] if one[0] in ANEW else pytest.mark.long)
        for one in OTHERS.items()
    ],
)
def test_model_answer_gets_full_marks_for_other_draws(answer: str, student: str) -> None:
    sheet = sheet_of(answer[3], student)
    assert (
        sum(marks(int(answer[3]), student, filled_in(model(answer), sheet))) == grading_engine.WHOLE
    )


# One of each lab's; the others with --all.
FEW = [next(case for case in WRONG if case[0] == number) for number in STUDENTS]


@pytest.mark.parametrize(
    ("number", "name"),
    [pytest.param(*case, marks=[] if case in FEW else pytest.mark.long) for case in WRONG],
)
def test_wrong_answer_gets_its_part(number: int, name: str, tmp_path: Path) -> None:
    expected, student = WRONG[number, name]["marks"], STUDENTS[number]
    if number == 7:
        model_runs(tmp_path, sheet_of("7", student).values)
    assert marks(number, student, wrong(number, name), tmp_path) == expected
    assert sum(expected) < grading_engine.WHOLE


def test_every_file_is_tried_and_five_wrong_answers_a_lab() -> None:
    models = {f"lab{number}/model" for number in STUDENTS} | {*OTHERS}
    own = {
        f"lab{number}/{mistake['file'][:-3]}"
        for (number, _), mistake in WRONG.items()
        if "file" in mistake
    }
    found = {str(file.relative_to(ANSWERS).with_suffix("")) for file in ANSWERS.rglob("*.py")}
    assert found == models | own
    assert Counter(number for number, _ in WRONG) == dict.fromkeys(STUDENTS, 5)


@pytest.mark.parametrize("number", STUDENTS)
def test_skeleton_earns_nothing_until_it_is_filled_in(number: int) -> None:
    sheet = sheet_of(str(number), "ada")
    source = (LABS / sheet.lab.FOLDER / "skeleton.py").read_text()
    report = grading_engine.grade(sheet, "# mine\n" + source)
    assert report.got == 0
    assert report.marks[0].why == grading_engine.UNFILLED
    assert grading_engine.grade(sheet, source + "x = 1\n").got < 10


def model_of(sheet: grading_engine.Sheet) -> str:
    """Return the model answer with what the sheet has drawn for the student."""
    if sheet.number == 1:
        kind = sheet.values["network"].partition(",")[0]
        return model("lab1/model" if kind == "bcube" else f"lab1/model_{kind}")
    return filled_in(model(f"lab{sheet.number}/model"), sheet)


def filled_in(source: str, sheet: grading_engine.Sheet) -> str:
    """Return a model answer with the constants that stand on a sheet."""
    constants = {}
    if "direction" in sheet.values:
        constants["DIRECTION"] = str(DIRECTIONS.index(sheet.values["direction"]))
    if cabling.NAME in sheet.values:
        constants["FIRST, TURN"] = "{}, {}".format(*sheet.values[cabling.NAME])
    for name, value in constants.items():
        source, changed = re.subn(f"^{name} = .*$", f"{name} = {value}", source, flags=re.M)
        assert changed == 1, name
    return source


@pytest.mark.long
@pytest.mark.parametrize("number", [*range(1, 7), 10])
@pytest.mark.parametrize("student", [f"drawn{number}" for number in range(20)])
def test_every_students_model_answer_gets_full_marks(number: int, student: str) -> None:
    sheet = sheet_of(str(number), student)
    report = grading_engine.grade(sheet, model_of(sheet), "a word")
    assert report.got == grading_engine.WHOLE, report.marks


# Of five who hand in another's file, so many have their ports elsewhere. All are named; in lab 6
# that is all, since TOR and Algorithm 3 are the same for everyone.
@pytest.mark.parametrize(
    ("number", "fail"),
    [(3, 3), *(pytest.param(*one, marks=pytest.mark.long) for one in ((4, 3), (5, 4))), (6, 0)],
)
def test_copied_file_is_worth_little_or_is_named(number: int, fail: int) -> None:
    source = model_of(sheet_of(str(number), STUDENTS[number]))
    copiers = [f"copier{place}" for place in range(5)]
    sources = dict.fromkeys(copiers, f"# My own work.\n{source}") | {"author": source}
    sheet = sheet_of(str(number), "author")
    given = fingerprints(grading_engine.skeleton_of(sheet.lab))
    prints = {student: fingerprints(text) - given for student, text in sources.items()}
    named = similar_by_submission(similar_pairs(prints))
    assert all("author" in dict(named[student]) for student in copiers)
    got = [sum(marks(number, student, sources[student])) for student in copiers if fail]
    assert sum(points < 40 for points in got) == fail, got
