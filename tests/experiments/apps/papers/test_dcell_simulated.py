"""DCell's simulated figures, in small: what is measured, what is claimed, what is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from pillarbox.experiments.apps.papers import figure
from pillarbox.experiments.apps.papers.dcell import failures, readings
from pillarbox.experiments.apps.papers.dcell import lengths as dcell_table1
from pillarbox.experiments.apps.papers.shared.figure import (
    Claim,
    Figure,
    find,
    verdict,
    with_paper_values,
)
from pillarbox.experiments.runs.reporting.reproduced.result import (
    AGREES,
    DIFFERS,
    ERRATUM,
    UNDECIDED,
    Point,
    Settings,
)
from pillarbox.topos.dcell import DCell


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, workers=1, quick=True, say=lambda _: None)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "NETWORKS", {"n = 4": "dcell,4,2"})
    monkeypatch.setattr(failures, "DESTINATIONS", 50)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("one", [failures.fig7, failures.fig8])
def test_no_routing_loses_less_than_shortest_paths(one: Figure, settings: Settings) -> None:
    found = one.reproduce(settings)
    for percent in failures.QUICK_PERCENT:
        spf, dfr, few = (
            find(found.points, series, percent).ours or 0.0
            for series in ("SPF, n = 4", "DFR, n = 4", "DFR, n = 4, retries 5")
        )
        assert spf <= dfr + 0.3  # percent: DFR's destinations are a sample
        assert dfr <= few
        if one is failures.fig7:  # a failed destination is a path failure
            assert spf == pytest.approx(percent, abs=1.0)
    assert {row.series for row in found.rows} >= {"SPF, n = 4", "DFR above SPF, n = 4"}


@pytest.mark.usefixtures("small")
def test_a_second_network_is_compared_with_the_first(settings: Settings) -> None:
    failures.NETWORKS["n = 5"] = "dcell,5,2"
    whole = replace(settings, quick=False, repeats=1)
    found = failures.fig7.reproduce(whole)
    assert {point.x for point in found.points} == set(failures.PERCENT)
    assert found.rows[-1].series == "DFR, n = 5 above n = 4"


def test_table_2_has_a_value_of_the_paper_in_every_row(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "TABLE2_NETWORK", "dcell,4,2")
    monkeypatch.setattr(failures, "DESTINATIONS", 200)
    found = failures.table2.reproduce(settings)
    assert len(found.points) == 31
    assert all(point.paper for point in found.points)
    assert find(found.points, "link failures, DFR", 8).paper == 13.73
    assert found.verdict == DIFFERS  # a DCell_2 has shorter paths
    assert found.reasons[0].startswith("node failures, DFR, 2: ours is 5.")
    for kind in ("node", "rack", "link"):
        dfr, spf = (find(found.points, f"{kind} failures, {r}", 20).ours for r in ("DFR", "SPF"))
        assert spf and dfr and spf < dfr


def test_every_reading_of_dfr_is_compared_with_every_figure(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "TABLE2_NETWORK", "dcell,4,2")
    monkeypatch.setattr(failures, "FIG9_QUICK_NETWORK", "dcell,5,2")
    monkeypatch.setattr(failures, "DESTINATIONS", 50)
    found = readings.readings.reproduce(settings)
    assert len(found.points) == 12 * len(readings.READINGS)
    hops = "Table 2: hops, 20 % of cables"
    ours = {reading: find(found.points, hops, reading).ours for reading in readings.READINGS}
    assert len(set(ours.values())) == len(ours), "two readings give the same paths"
    lost = [find(found.points, "Fig. 7: lost, %, 20 % of servers", name).ours for name in ours]
    assert lost[0] and lost[1] and lost[0] < lost[1]  # fewer retries lose more


def test_table_1_agrees_for_every_pair(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    papers = {spec: row for spec, row in dcell_table1.PAPERS.items() if spec.endswith(",2")}
    monkeypatch.setattr(dcell_table1, "PAPERS", papers)
    found = dcell_table1.table1.reproduce(settings)
    assert (found.verdict, len(found.points)) == (AGREES, 12)
    monkeypatch.setitem(papers, "dcell,4,2", (4.87, 1.27, 5.20, 1.42))
    assert dcell_table1.table1.reproduce(settings).reasons == (
        "dcell,4,2, DCellRouting, mean: ours is 5.162, the paper's 5.2 (tolerance 0.02).",
    )


def test_a_sample_of_sources_is_enough_for_dcell_routing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dcell_table1, "PAPERS", {"dcell,5,2": (5.22, 1.23, 5.50, 1.33)})
    monkeypatch.setattr(dcell_table1, "MOST_PAIRS", 0)
    monkeypatch.setattr(dcell_table1, "TASK_SOURCES", {"shortest": 8, "DCellRouting": 3})
    some = dcell_table1.table1.reproduce(settings)
    monkeypatch.setattr(dcell_table1, "MOST_PAIRS", 10**6)
    every = dcell_table1.table1.reproduce(settings)
    for column in dcell_table1.COLUMNS[2:]:
        ours = (find(one.points, "dcell,5,2", column).ours for one in (some, every))
        assert next(ours) == pytest.approx(next(ours), abs=1e-9)
    shortest = find(some.points, "dcell,5,2", "shortest, mean")
    assert shortest.low is not None
    assert shortest.high is not None
    assert shortest.low < 5.224 < shortest.high  # all pairs'
    assert find(every.points, "dcell,5,2", "shortest, mean").low is None


def test_partial_networks_hold_whole_racks_and_fail_by_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "FIG9_QUICK_NETWORK", "dcell,2,3")
    monkeypatch.setattr(failures, "DESTINATIONS", 200)
    whole = DCell(2, 3)
    assert failures.partial_dcell_spec(whole, 10) == "dcell,2,3,servers=180"
    assert failures.partial_dcell_spec(whole, 100) == "dcell,2,3"
    found = failures.fig9.reproduce(settings)
    assert {point.x for point in found.points} == set(failures.QUICK_DEPLOYED)
    assert find(found.points, "SPF, nodes", 100).ours == pytest.approx(5, abs=0.5)
    assert [(row.series, row.x, row.paper) for row in found.rows[:2]] == [
        ("DFR, nodes", "most", 6.0),
        ("SPF, nodes", "most", 5.0),
    ]


def test_a_bound_is_broken_by_what_is_above_it_for_sure() -> None:
    wide = Point("DFR", 20, ours=1.03, low=0.89, high=1.24, draws=5)
    sure = Point("DFR", 10, ours=1.02, low=0.99, high=1.06, draws=60)
    assert failures.deciding_point([wide, sure], 0.9) == sure
    assert failures.deciding_point([sure, wide], 1.1) == wide
    once = replace(sure, low=None, high=None, draws=1)
    assert Claim(failures.deciding_point([once], 2.0), 0.0, at_most=True, wanted=2.0).holds is None


def test_table_3_is_that_of_compare(settings: Settings) -> None:
    found = figure("dcell-table3").reproduce(settings)
    assert find(found.points, "hypercube,6", "degree, log2 N").ours == 6
    assert found.verdict == ERRATUM
    assert found.errata == ("Compared structures (Guo 2008, Table 3)",)
    assert found.reasons[0].startswith("torus,8 diameter")
    assert not any("Not checked" in note for note in found.notes)


def test_a_claim_is_near_or_a_bound_and_what_is_missing_does_not_hold() -> None:
    row = Point("DFR", 0.2, ours=21.0, paper=22.3)
    assert not Claim(row, 1.0).holds
    assert Claim(row, 1.5).holds
    assert Claim(row, 0.0, at_most=True).holds
    assert Claim(row, 0.0, at_least=True, wanted=20.0).holds
    lost = Claim(replace(row, ours=None), 100.0)
    assert verdict([lost]) == (
        DIFFERS,
        ("DFR, 0.2: ours is missing, the paper's 22.3 (tolerance 100).",),
    )
    of_draws = replace(row, low=20.0, high=22.0, draws=5)
    assert verdict([Claim(of_draws, 1.0)]) == (
        UNDECIDED,
        (
            "DFR, 0.2: ours is 21 (20 to 22), the paper's 22.3 (tolerance 1), not decided by 5 "
            "repeats.",
        ),
    )
    assert verdict([Claim(of_draws, 1.0), lost])[0] == DIFFERS
    alone = replace(row, draws=1)
    assert Claim(alone, 5.0).holds is None
    assert with_paper_values([row], {("DFR", 0.2): 5.0})[0].paper == 5.0
    assert with_paper_values([row], {("DFR", 0.4): 5.0}) == [row]
