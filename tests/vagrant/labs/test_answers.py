"""Model answers get full marks, wrong ones what they deserve, to the hundredth of a point."""

from pathlib import Path

import pytest

from experiments.grading import engine

ANSWERS = Path(__file__).parent / "answers"
LABS = Path(__file__).parents[3] / "vagrant" / "labs"
# A student of each lab, and what answers get, check by check.
STUDENTS = {1: "s0", 2: "s0", 3: "s0", 4: "s1", 5: "s0", 6: "s0", 7: "s0", 8: "s4"}
EXPECTED: dict[str, list[float]] = {
    "lab1/model_bcube": [20, 35, 20, 10, 15],
    "lab1/wrong_order": [13.5, 35, 20, 10, 11.25],
    "lab1/wrong_port": [20, 0, 20, 2, 11.25],
    "lab1/wrong_self": [20, 26.25, 20, 9.5, 13.75],
    "lab1/wrong_switch": [20, 35, 9.5, 10, 12.5],
    "lab1/wrong_table": [20, 35, 20, 10, 3.75],
    "lab2/model": [40, 15, 30, 15],
    "lab2/wrong_circle": [20, 2.5, 4.95, 2.94],
    "lab2/wrong_direction": [26.67, 10, 0, 0],
    "lab2/wrong_own": [13.33, 5, 6.12, 4.21],
    "lab2/wrong_ring": [37.33, 14.75, 13.33, 11.42],
    "lab2/wrong_symbol": [9.33, 0.25, 3.78, 0.31],
    "lab3/model": [20, 35, 15, 20, 10],
    "lab3/wrong_choice": [20, 35, 15, 8, 10],
    "lab3/wrong_detour": [16.67, 27.61, 13.33, 12, 7.71],
    "lab3/wrong_last": [20, 35, 15, 12, 10],
    "lab3/wrong_one": [6.67, 11.67, 5, 0, 2.5],
    "lab3/wrong_order": [10, 19.06, 6.67, 0, 4.79],
    "lab4/model": [10, 30, 10, 15, 20, 15],
    "lab4/wrong_back": [10, 30, 10, 15, 20, 14.5],
    "lab4/wrong_drop": [10, 30, 10, 15, 0, 0],
    "lab4/wrong_longest": [10, 30, 3, 9.5, 9.33, 6],
    "lab4/wrong_news": [6, 30, 10, 15, 20, 15],
    "lab4/wrong_one_end": [10, 10.18, 10, 15, 20, 15],
    "lab5/model": [35, 10, 10, 8, 7, 15, 15],
    "lab5/wrong_failed": [35, 10, 7.5, 8, 7, 15, 10],
    "lab5/wrong_most": [35, 10, 10, 2.67, 7, 9, 15],
    "lab5/wrong_neighbour": [24.06, 7.5, 10, 8, 7, 11, 9.17],
    "lab5/wrong_own": [35, 10, 10, 8, 3.5, 15, 15],
    "lab5/wrong_upwards": [10.55, 1.82, 10, 8, 7, 12.29, 6.98],
    "lab6/model": [25, 10, 6, 8, 8, 4, 4, 20, 15],
    "lab6/wrong_again": [25, 10, 4.93, 8, 8, 4, 4, 8.59, 15],
    "lab6/wrong_first": [25, 10, 6, 8, 8, 4, 0, 20, 15],
    "lab6/wrong_link": [18.75, 7.5, 3.87, 4, 5.87, 3.33, 0, 3.48, 15],
    "lab6/wrong_onward": [25, 10, 6, 8, 5.07, 4, 0, 5.56, 2.14],
    "lab6/wrong_straight": [25, 10, 6, 4, 8, 4, 4, 18, 15],
    "lab7/model": [20, 30, 15, 10, 15, 10],
    "lab7/wrong_belief": [20, 30, 15, 10, 0, 0],
    "lab7/wrong_headers": [20, 30, 5, 10, 5, 10],
    "lab7/wrong_inside": [20, 20, 15, 10, 15, 10],
    "lab7/wrong_relays": [10, 15, 5, 10, 10, 10],
    "lab7/wrong_valid": [20, 30, 15, 0, 10, 10],
    "lab8/model": [20, 20, 10, 15, 20, 15],
    "lab8/wrong_back": [13.33, 6.46, 10, 0, 5.15, 0],
    "lab8/wrong_claims": [20, 20, 10, 3.75, 20, 15],
    "lab8/wrong_number": [20, 20, 0.95, 15, 20, 15],
    "lab8/wrong_ring": [13.33, 12.92, 10, 0, 0.5, 0],
    "lab8/wrong_static": [20, 20, 10, 15, 20, 0],
}
# The other networks of lab 1, and of lab 3.
OTHERS = {"lab1/model_ficonn": "s1", "lab1/model_dcell": "s3", "lab1/model_dpillar": "s8"}
OTHERS |= {"lab6/model": "s1"}
OTHERS |= {"lab3/model": "s5", "lab4/model": "s0", "lab4/model_order": "s0", "lab5/model": "ada"}
OTHERS |= {"lab8/model": "s7"}


def marks(answer: str, student: str) -> list[float]:
    number = answer[3:].partition("/")[0]
    source = (ANSWERS / f"{answer}.py").read_text()
    report = engine.grade(engine.sheet_of(number, student), source)
    assert not report.notes
    return [mark.got for mark in report.marks]


@pytest.mark.parametrize("answer", EXPECTED)
def test_answer_gets_its_part(answer: str) -> None:
    assert marks(answer, STUDENTS[int(answer[3])]) == EXPECTED[answer]


@pytest.mark.parametrize(("answer", "student"), OTHERS.items())
def test_model_answer_gets_full_marks_for_other_draws(answer: str, student: str) -> None:
    assert sum(marks(answer, student)) == engine.WHOLE


def test_every_answer_is_tried_and_five_wrong_ones_a_lab() -> None:
    found = {str(file.relative_to(ANSWERS).with_suffix("")) for file in ANSWERS.rglob("*.py")}
    assert found == {*EXPECTED, *OTHERS}
    for number in STUDENTS:
        wrong = [name for name in EXPECTED if name.startswith(f"lab{number}/wrong")]
        assert len(wrong) == 5
        assert all(sum(EXPECTED[name]) < engine.WHOLE for name in wrong)


@pytest.mark.parametrize("number", STUDENTS)
def test_skeleton_can_be_graded_and_earns_little(number: int) -> None:
    sheet = engine.sheet_of(str(number), "ada")
    source = (LABS / sheet.lab.FOLDER / "skeleton.py").read_text()
    assert engine.grade(sheet, source).got < 10
