"""Labs whose files decide for routers of ours: on live networks, with real load on a cable."""

from pathlib import Path

import pytest

from pillarbox.experiments.apps.teaching import grading_engine, live_grading
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from tests.vagrant.labs.test_answers import model_of

ANSWERS = Path(__file__).parents[3] / "vagrant" / "labs" / "answers"
STAYS = """
def choose(paths, free_bps, using, own_bps):
    return using or 0
"""
ONLY_TOR = """
def choose(ficonn, server, destination, came, progress, backup_bps, switch_bps):
    return next_hop(ficonn, server, destination), progress
"""


def live_marks(lab: str, student: str, more: str = "") -> list[float]:
    sheet = sheet_of(lab, student)
    report = grading_engine.Report(sheet, [grading_engine.Mark("in memory", 0, 1, "")])
    live_grading.add_live(report, model_of(sheet) + more)
    return [mark.got for mark in report.marks[1:]]


@pytest.mark.root
@pytest.mark.parametrize(
    ("lab", "student", "more", "expected"),
    [
        # After the cut a flow's first packet is lost.
        pytest.param("5", "s1", "", [10, 10, 10], marks=pytest.mark.long),
        # Three first paths are the best.
        pytest.param("5", "s0", STAYS, [7.5, 0, 5], marks=pytest.mark.long),
        ("6", "s0", "", [10, 10, 10]),
        ("6", "s0", ONLY_TOR, [10, 0, 0]),
        ("10", "s1", "", [20]),
    ],
    ids=["5-model", "5-stays", "6-model", "6-only-tor", "10-model"],
)
def test_live(
    lab: str, student: str, more: str, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_grading, "RECOVERED_S", 30.0)  # only a guard, where answers are right
    if more:  # what does not come about is waited for to the end
        monkeypatch.setattr(live_grading, "SETTLE_SPARE_S", 1.5)
        monkeypatch.setattr(live_grading.LiveWork, "_round_s", 0.0)
    assert live_marks(lab, student, more) == expected


@pytest.mark.root
def test_two_students_routers_share_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_grading, "RECOVERED_S", 30.0)  # only a guard, where answers are right
    source = (ANSWERS / "lab2" / "model.py").read_text()
    sheets = {sheet_of("2", f"s{i}").values["direction"]: f"s{i}" for i in range(8)}

    def made(direction: str) -> tuple[grading_engine.Sheet, str]:
        turned = source.replace("DIRECTION = 1", f"DIRECTION = {int(direction != 'clockwise')}")
        return sheet_of("2", sheets[direction]), turned

    mine, his = made("clockwise"), made("counter-clockwise")

    def points(partner: live_grading.PartnerStudent) -> float:
        report = grading_engine.Report(mine[0], [grading_engine.Mark("in memory", 0, 1, "")])
        live_grading.add_live(report, mine[1], partner=partner)
        (mark,) = report.marks[1:]
        return mark.got

    assert points(live_grading.PartnerStudent(*his)) == 20
    # A partner who goes his own way by another's sheet: what begins in his half goes astray.
    monkeypatch.setattr(live_grading, "RECOVERED_S", 0.0)
    assert points(live_grading.PartnerStudent(his[0], mine[1])) < 20


@pytest.mark.long
@pytest.mark.root
@pytest.mark.parametrize("lab", ["2", "5", "6", "10"])
@pytest.mark.parametrize("student", [f"drawn{number}" for number in range(20)])
def test_every_students_model_answer_has_all_live_points(lab: str, student: str) -> None:
    points = [check.points for check in sheet_of(lab, student).lab.LIVE]  # type: ignore[attr-defined]
    assert live_marks(lab, student) == points
