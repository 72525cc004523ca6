"""Joint tables of readings: which reading is nearest, and whether the one in use is."""

import pytest

from pillarbox.experiments.apps.papers.shared.figure import Claim
from pillarbox.experiments.apps.papers.shared.joint_table import joint_table, relative_deviation
from pillarbox.experiments.runs.reporting.reproduced.result import AGREES, DIFFERS, UNDECIDED, Point


def claim(ours: float, spread: float = 0.0, paper: float = 4.0, **bounds: bool) -> Claim:
    of_draws = {"low": ours - spread, "high": ours + spread, "draws": 5} if spread else {}
    return Claim(Point("hops", "steady", ours, paper, **of_draws), 0.1, **bounds)  # type: ignore[arg-type]


def test_deviations_are_relative_to_the_paper_and_0_where_the_claim_holds() -> None:
    assert [relative_deviation(claim(ours)) for ours in (4.0, 6.0, 3.0)] == [0.0, 0.5, 0.25]
    assert relative_deviation(claim(1.0, at_most=True)) == 0.0
    assert relative_deviation(claim(5.0, at_most=True)) == 0.25
    # where the paper has 0, in tolerances
    assert relative_deviation(claim(0.3, paper=0.0)) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("near", "far", "word"),
    [
        (claim(5.0), claim(6.0), AGREES),
        (claim(6.0), claim(5.0), DIFFERS),
        (claim(5.0, 0.6), claim(5.5, 0.6), UNDECIDED),
    ],
)
def test_the_reading_in_use_agrees_if_no_other_is_nearer(
    near: Claim, far: Claim, word: str
) -> None:
    by_reading = {name: {"Fig. 1": [one]} for name, one in (("ours", near), ("other", far))}
    made = joint_table(by_reading, "ours", ["note"], ["reason"])
    rows = [(row.series, row.x) for row in made.points]
    assert rows == [("Fig. 1: hops, steady", "ours"), ("Fig. 1: hops, steady", "other")]
    assert made.judged
    assert made.judged[0] == word
    assert len(made.judged[1]) == 2 + 2 and made.judged[1][-1] == "reason"
