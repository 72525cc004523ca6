"""The figure of estimated slowdowns against packet simulation."""

from __future__ import annotations

from pathlib import Path

from pillarbox.experiments.apps.papers.ours.tails import CASES, QUICK_CASES, tails
from pillarbox.experiments.runs.reporting.reproduced.result import Settings
from pillarbox.topos.base.spec import parse


def test_cases_have_about_the_same_number_of_servers() -> None:
    assert all(190 <= parse(case.spec).servers <= 256 for case in CASES)


def test_estimates_follow_the_packet_simulation(tmp_path: Path) -> None:
    found = tails.reproduce(Settings(tmp_path, quick=True, workers=1, say=lambda _: None))
    points = list(found.points)
    assert {point.series for point in points} == {case.spec for case in QUICK_CASES}
    assert all(isinstance(point.x, float) and point.ours for point in points)
    # With few flows, 99th percentiles are those of one or two flows; medians are not.
    ratios = {(row.series, row.x): row.ours for row in found.rows}
    medians = [value for (_, x), value in ratios.items() if x == "median"]
    assert medians and all(value and 0.5 < value < 2 for value in medians)
