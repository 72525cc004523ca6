"""BCube's figures and tables of the simulator, at sizes that a test can wait for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from pillarbox.experiments.apps.papers import figure
from pillarbox.experiments.apps.papers.bcube import degradation as bcube_fig8
from pillarbox.experiments.apps.papers.ours import six
from pillarbox.experiments.apps.papers.shared import degradation
from pillarbox.experiments.apps.papers.shared.degradation import SERVERS, SWITCHES, measure
from pillarbox.experiments.apps.papers.shared.draws import Runs
from pillarbox.experiments.apps.papers.shared.figure import find, verdict
from pillarbox.experiments.runs.reporting.reproduced.result import (
    AGREES,
    CLAIM_HOLDS,
    DIFFERS,
    ERRATUM,
    UNDECIDED,
    Point,
    Settings,
)


def settings_in(folder: Path) -> Settings:
    return Settings(folder, workers=1, quick=True, say=lambda _: None)


def test_throughput_is_that_of_the_busiest_link() -> None:
    # Guo 2009, Theorem 6, holds for one order of digits; on random paths of the set it is less.
    found = measure(("bcube,4,2", "bcube", SERVERS, 0.0, 1, 0))
    assert found == {"abt": pytest.approx(4 / 3 * 63), "lost": 0.0}
    assert measure(("bcube,4,2", "bsr", SERVERS, 0.0, 1, 0))["abt"] < found["abt"]


def test_flows_that_are_cut_off_are_counted_apart() -> None:
    # Of four leaves one fails: the others' servers still have 12 x 11 flows of 16 x 15.
    found = measure(("tree,4,4", "bridge", SWITCHES, 0.2, 1, 0))
    whole, left = 16 * 15, 12 * 11
    assert found["lost"] in (1.0, pytest.approx(1 - left / whole))  # 1 if it is the root


def test_no_failures_are_the_same_for_both_kinds(tmp_path: Path) -> None:
    networks = {"B": ("bcube,4,1", "bsr")}
    runs = degradation.runs_of(settings_in(tmp_path), networks, (0.0, 0.2), 2)
    assert [(one.kind, one.share) for one in runs] == [
        *((SERVERS, share) for share in (0.0, 0.2)),
        *((SWITCHES, share) for share in (0.0, 0.2)),
    ]
    assert runs[0].runs == runs[2].runs
    assert runs[1].runs != runs[3].runs
    assert len(list(tmp_path.rglob("*.json"))) == 6  # tasks
    assert runs[3].throughput(2.0).ours == pytest.approx(2 * numpy.mean(runs[3].runs.values("abt")))


@pytest.mark.parametrize(
    ("routers", "plain", "whole", "word"),
    [
        (800.0, 700.0, 2006.0, AGREES),
        (1100.0, 750.0, 2006.0, AGREES),
        (1100.0, 400.0, 2006.0, DIFFERS),
        (800.0, 1100.0, 2006.0, DIFFERS),
        (1100.0, 750.0, 1800.0, DIFFERS),
    ],
)
def test_fig_8_compares_the_plain_search(
    routers: float, plain: float, whole: float, word: str
) -> None:
    points = [
        Point(f"{degradation.BCUBE}, {SERVERS}", 0.0, whole, 2006.0),
        Point(f"{degradation.BCUBE}, {SWITCHES}", 20.0, routers, 765.0),
        Point(f"{bcube_fig8.PLAIN}, {SWITCHES}", 20.0, plain, 765.0),
    ]
    assert verdict(bcube_fig8._throughput_claims(points))[0] == word


def test_what_is_not_drawn_is_decided_by_its_value() -> None:
    # Guo 2009, section 6: 298 Gbit/s by DCellRouting, to the flow.
    assert [claim.holds for claim in bcube_fig8._dcell_routing_claims()] == [True] * 4


def test_six_networks_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("dpillar,4,2", "dcell,4,1", "bcube,4,1", "ficonn,4,1", "tree,4,4", "fattree,4")
    networks = six.QUICK_SAME_SIZE.items()
    of_each = {name: (spec, how) for spec, (name, (_, how)) in zip(small, networks, strict=True)}
    monkeypatch.setattr(six, "QUICK_SAME_SIZE", of_each)
    found = six.degradation.reproduce(replace(settings_in(tmp_path), repeats=2))
    assert len(found.points) == 6 * len(six.SHARES)
    assert all(0 <= (one.ours or 0) <= 4 for one in found.points)
    assert found.verdict in (CLAIM_HOLDS, DIFFERS, UNDECIDED)
    assert found.rows[0].draws == 2
    assert sum("per 1000 $" in row.series for row in found.rows) == 18
    assert sum("cut off" in row.series for row in found.rows) == 12


def test_networks_of_the_same_price_are_within_what_is_said() -> None:
    for name in six.SAME_PRICE:
        usd = six.cost_usd(six.SAME_PRICE, name)
        assert usd == pytest.approx(six.BUDGET_USD, rel=six.OFF), name


def test_what_a_thousand_dollars_carry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        six.DCELL: ("dcell,4,1", "dfr"),
        six.BCUBE: ("bcube,4,1", "bsr"),
        six.FATTREE: ("fattree,4", "any"),
    }
    monkeypatch.setattr(six, "SAME_PRICE", small)
    found = six.equal_cost.reproduce(settings_in(tmp_path))
    # 8 switches at 50 $, 32 cables at 1 $ and no cards: two ports are on board.
    assert find(found.rows, six.BCUBE, "price, $").ours == 432
    server, dollars = (
        find(found.rows, f"{six.BCUBE}, {SERVERS}: {what}", 0.0).ours or 0.0
        for what in ("a server", "per 1000 $")
    )
    assert server * 16 == pytest.approx(dollars * 0.432)
    assert found.verdict in (CLAIM_HOLDS, DIFFERS, UNDECIDED)


@pytest.mark.parametrize(("bcube", "ahead"), [(3.0, True), (1.9, False), (1.0, False)])
def test_ahead_is_ahead_of_both(bcube: float, ahead: bool) -> None:
    values = {six.BCUBE: bcube, six.FATTREE: 2.0, six.DCELL: 0.5}
    runs = [
        degradation.Failing(name, SWITCHES, six.LAST, Runs((), [{"abt": value * 10}] * 3))
        for name, value in values.items()
    ]
    assert six.bcube_ahead_claim(runs, lambda _: 0.1).holds is ahead


def test_tables_have_the_papers_errata(tmp_path: Path) -> None:
    first, second = (figure(f"bcube-table{i}").reproduce(settings_in(tmp_path)) for i in (1, 2))
    assert [reason.partition(":")[0] for reason in first.reasons] == [
        "tree,8,8 all-to-all (ABT)",
        "fattree,8 wires",
    ]
    assert [reason.partition(":")[0] for reason in second.reasons] == ["Two-level tree"]
    assert first.verdict == second.verdict == ERRATUM
    assert len(first.errata) == 2 and len(second.errata) == 1
    assert len(second.points) == 32
