"""FiConn's simulated figures, in small: what is measured, what is claimed, what is told."""

from pathlib import Path

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.apps.papers.ficonn import flows, readings, size
from pillarbox.experiments.apps.papers.ficonn.flows import TAR, TOR, FlowDraw, RoundSample
from pillarbox.experiments.apps.papers.shared.figure import Figure, find
from pillarbox.experiments.runs.reporting.reproduced.result import AGREES, DIFFERS, Settings
from pillarbox.topos.ficonn import FiConn

SMALL = FiConn(8, 2)  # 11 FiConn_1s of 40 servers


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(flows, "NETWORK", SMALL.spec)
    return Settings(tmp_path, workers=1, quick=True, repeats=2, say=lambda _: None)


def test_fig_4_counts_and_grows_along_a_line(settings: Settings) -> None:
    found = size.fig4.reproduce(settings)
    assert found.verdict == AGREES
    assert [row.ours for row in found.rows[:2]] == [361_200, 3_553_776]
    assert find(found.points, "n = 16", 0).ours == pytest.approx(numpy.log10(numpy.log10(16)))
    assert ("n = 48", 2) in (every := {(point.series, point.x) for point in found.points})
    assert ("n = 48", 3) not in every  # more servers than addresses


def test_traffic_is_the_papers() -> None:
    random = numpy.random.default_rng(1)
    sources, destinations = flows.random_traffic(SMALL, random)
    assert sorted([*sources, *destinations]) == list(range(SMALL.servers))
    sources, destinations = flows.burst_traffic(SMALL, random)
    assert len(set(zip(sources.tolist(), destinations.tolist(), strict=True))) == 40 * 40
    ends = [numpy.unique(end // 40) for end in (sources, destinations)]
    assert [len(members) for members in ends] == [1, 1]
    assert ends[0] != ends[1]


def test_a_burst_by_tor_has_one_link_and_by_tar_those_of_its_ficonn_1(settings: Settings) -> None:
    found = flows.fig8.reproduce(settings)
    times = [point.x for point in found.points if point.series == TOR]
    assert times == [30, 60, 90, 120]
    for x in times:
        assert find(found.points, TOR, x).ours == pytest.approx(1.0, abs=1e-9)
        ours = find(found.points, TAR, x).ours
        assert ours
        assert 2 < ours <= 10  # level-2 links of a FiConn_1
    assert found.verdict == DIFFERS  # nobody reaches 99.5 in so small a network


@pytest.mark.parametrize("one", [flows.fig7, flows.fig9])
def test_paths_of_tar_are_longer(one: Figure, settings: Settings) -> None:
    found = one.reproduce(settings)
    tor, tar = (find(found.points, name, 120).ours for name in (TOR, TAR))
    assert tor and tar and tor < tar
    *rounds, row = found.rows
    assert (row.series, row.x, row.ours and row.ours > 0) == ("hops more than TOR", "steady", True)
    assert [row.x for row in rounds] == [f"after {time} s" for time in (30, 60, 90, 120)]
    assert rounds[-1].ours == pytest.approx(tar - tor)


def test_random_traffic_goes_better_by_tor(settings: Settings) -> None:
    found = flows.fig6.reproduce(settings)
    tor, tar = (find(found.points, name, 30).ours for name in (TOR, TAR))
    assert tor and tar and tar < tor <= SMALL.servers / 2
    ahead = find(found.rows, "TOR ahead, %", "after 30 s")
    assert (ahead.paper, ahead.ours and ahead.ours > 0) == (8.5, True)


def test_every_reading_of_tar_is_compared_with_all_four_figures(settings: Settings) -> None:
    found = readings.readings.reproduce(settings)
    rows = {(point.series, point.x) for point in found.points}
    assert len(rows) == len(found.points) == 6 * len(flows.READINGS_OF_TAR)
    assert {series.split(":")[0] for series, _ in rows} == {"Fig. 6", "Fig. 7", "Fig. 8", "Fig. 9"}
    hops = "Fig. 9: hops more than TOR, steady"
    longer = {reading: find(found.points, hops, reading).ours for reading in flows.READINGS_OF_TAR}
    # Counters that only grow let fewer flows bypass.
    fewer, more = longer["as printed, fair share"], longer["until either, fair share"]
    assert fewer and more and fewer < more
    assert len(set(longer.values())) == len(longer), "two readings give the same paths"


def test_steady_is_the_mean_of_the_last_rounds() -> None:
    rounds = [RoundSample(value, value) for value in (9.0, 1.0, 2.0, 3.0)]
    run = FlowDraw(1, RoundSample(10.0, 10.0), rounds)

    def value(tor: RoundSample, tar: RoundSample) -> float:
        return tor.hops - tar.hops

    first, steady = (flows.tor_tar_comparison([run], "x", value, at, 0.0) for at in (True, False))
    assert (first.ours, steady.ours) == (1.0, 8.0)
    assert topos.parse(flows.NETWORK).servers == 74_528


def test_paths_settle_when_they_stay_near_the_steady_length() -> None:
    def settled(*hops: float) -> int:
        rounds = [RoundSample(1.0, value) for value in hops]
        return flows.settling_time_s([FlowDraw(1, RoundSample(1.0, 6.0), rounds)])

    assert settled(9.0, 8.0, 7.0, 7.1, 6.9) == 90
    assert settled(7.0, 7.1, 6.9) == 30
