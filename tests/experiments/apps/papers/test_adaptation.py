"""Routing that adapts to a burst, in small; and beside what is possible."""

from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner

from pillarbox import topos
from pillarbox.experiments.apps.papers.ours import adaptation
from pillarbox.experiments.apps.papers.ours.adaptation import (
    BCUBE,
    CASES,
    DPILLAR,
    FAILING,
    FAIR_SHARE,
    FICONN,
    WITHOUT,
    measure,
)
from pillarbox.experiments.apps.papers.shared.figure import find
from pillarbox.experiments.cli.commands.gap import command
from pillarbox.experiments.models.comparison.throughput_gap import compute_throughput_gap
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.runs.reporting.reproduced.result import Settings
from pillarbox.topos.base.errors import PillarboxError


def test_the_random_part_lets_flows_settle(tmp_path: Path) -> None:
    quick = Settings(tmp_path, workers=1, quick=True, say=lambda _: None)
    found = adaptation.adaptation.reproduce(quick)
    drawn = {point.series for point in found.points}
    ficonn = {FICONN, FICONN + FAIR_SHARE}
    assert drawn == {DPILLAR, DPILLAR + WITHOUT, BCUBE, BCUBE + WITHOUT, *ficonn}
    last = f"round {adaptation.QUICK_ROUNDS}"
    moves = {
        name: find(found.rows, f"{name}: flows that move, share", last).ours or 0.0
        for name in (DPILLAR, DPILLAR + WITHOUT, FICONN)
    }
    assert moves[DPILLAR] < 0.2 < moves[DPILLAR + WITHOUT]
    assert moves[FICONN] > 0.2, "a third FiConn is drawn anew"
    with_, without = (
        find(found.rows, f"{name}: throughput", last).ours or 0.0
        for name in (DPILLAR, DPILLAR + WITHOUT)
    )
    assert with_ > 1.2 > without
    assert (find(found.rows, f"{FICONN}: throughput", last).ours or 0.0) > 1.5


@pytest.mark.parametrize("name", list(CASES))
def test_a_run_is_its_seeds(name: str) -> None:
    case = *adaptation.QUICK_NETWORKS[name], FAILING, 2, 1
    first, again, other = (measure((*case, run)) for run in (0, 0, 1))
    assert first == again != other
    assert first["cut_off"] < 0.05
    assert len(first["moved"]) == 2


def test_a_burst_is_from_one_group_to_another() -> None:
    network = topos.parse("bcube,4,2")
    sources, destinations = adaptation.burst_flows(network, numpy.random.default_rng(2))
    assert len(set(zip(sources.tolist(), destinations.tolist(), strict=True))) == 4 * 4
    assert not set(sources.tolist()) & set(destinations.tolist())
    assert {*(sources // 4)} == {sources[0] // 4}


def test_rows_tell_paths_apart() -> None:
    routes = Routes(numpy.array([0, 2, 2, 3]), numpy.array([5, 0, 7]))
    assert adaptation._link_rows(routes, 3).tolist() == [[6, 1, 0], [0, 0, 0], [8, 0, 0]]


def test_gap_shows_what_flows_come_to_after_rounds() -> None:
    bcube = topos.parse("bcube,4,1")
    pairs = [(server, (server + 5) % 16) for server in range(16)]
    plain = compute_throughput_gap(bcube, pairs, ["bsr", "bcube"])
    found = compute_throughput_gap(bcube, pairs, ["bsr", "bcube"], rounds=3)
    assert found.reached[:2] == plain.reached
    assert [one.routing for one in found.reached] == ["bsr", "bcube", "bsr, round 3"]
    assert plain.best_total
    assert plain.reached[0].total < found.reached[2].total <= plain.best_total.at_most
    with pytest.raises(PillarboxError, match="none of these routings of bcube,4,1 adapts"):
        compute_throughput_gap(bcube, pairs, ["bcube"], rounds=3)


def test_gap_takes_rounds_on_the_command_line() -> None:
    asked = ["ficonn,4,1", "--flows", "permutation", "--rounds", "2", "--fail", "kill 0.1"]
    done = CliRunner().invoke(command, asked)
    assert done.exit_code == 0, done.output
    assert "tar, round 2" in done.output
