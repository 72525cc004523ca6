"""`pillarbox gap`: rates over routings' paths beside the optimum."""

from __future__ import annotations

import json
from itertools import permutations

import pytest
from click.testing import CliRunner, Result

from pillarbox import topos
from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.models.comparison.throughput_gap import compute_throughput_gap
from pillarbox.experiments.models.fluid import linear_program
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.topos.base.errors import PillarboxError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["gap", *arguments], catch_exceptions=False)


def test_one_order_of_digits_is_the_best_for_all_to_all_in_bcube() -> None:
    bcube = topos.parse("bcube,3,1")
    found = compute_throughput_gap(bcube, list(permutations(range(9), 2)), ["bcube", "bsr"])
    one, several = found.reached
    assert one.throughput == pytest.approx(3 / 2 * 8)  # Guo 2009, Theorem 6
    assert found.best_throughput
    assert found.best_throughput.at_least == pytest.approx(one.throughput)
    assert one.worst_flows == one.mean_flows == 6
    assert several.throughput < one.throughput  # detours
    assert several.worst_flows > several.mean_flows > one.mean_flows


def test_no_routing_is_above_the_optimum() -> None:
    dpillar = topos.parse("dpillar,4,2")
    found = compute_throughput_gap(dpillar, list(permutations(range(8), 2)))
    assert {one.routing for one in found.reached} >= {"sp-cw", "mp", "shortest"}
    assert found.best_total
    assert found.best_throughput
    for one in found.reached:
        assert one.throughput <= one.total + 1e-9
        assert one.total <= found.best_total.at_most + 1e-6
        assert one.throughput <= found.best_throughput.at_most + 1e-6


def test_failures_are_known_to_all() -> None:
    bcube = topos.parse("bcube,4,1")
    failures = parse_failures(bcube, ["stop s0", "stop s4"])  # all that 0.0 has
    pairs = [(0, 5), (6, 9), (1, 10)]
    found = compute_throughput_gap(bcube, pairs, ["bcube", "bsr"], failures)
    assert found.flows == 2
    assert [one.flows for one in found.reached] == [2, 2]
    assert found.best_throughput
    assert found.best_throughput.at_most == pytest.approx(2.0)  # 0.1 has one port left


def test_the_table_says_where_and_how_much() -> None:
    told = run("tree,2,2", "--routing", "bridge").output.splitlines()
    assert told[0].split()[:3] == ["routing", "flows", "total"]
    # 8 of 12 flows cross the root, 4 each way: 4 / 4 of a link, the others take what is left.
    row = told[1].split()
    assert row[:2] == ["bridge", "12"]
    assert told[2].split()[:2] == ["optimum", "12"]
    assert "s0 > s2" in told[1]
    assert row[5] == "1"  # of the ABT's optimum


def test_routing_that_loses_flows_has_no_share_of_the_abt() -> None:
    done = run("dcell,4,1", "--fail", "cut 0.3-4.0", "--routing", "dcell", "--routing", "dfr")
    dcell, dfr = (line.split() for line in done.output.splitlines()[1:3])
    assert (dcell[1], dcell[5]) == ("348", "-")
    assert (dfr[1], float(dfr[5])) == ("380", pytest.approx(0.978, abs=0.001))
    assert "loses flows although a path exists" in " ".join(done.output.split())


def test_json_and_what_is_too_large() -> None:
    told = json.loads(run("bcube,2,1", "--json").output)
    assert told["best_throughput"]["at_most"] == pytest.approx(6.0)
    names = ["bcube", "bsr", "spray", "shortest"]
    assert [one["routing"] for one in told["reached"]] == names
    text = run("bcube,4,4", "--flows", "permutation", "--routing", "bcube").output
    assert "The optimum is missing" in text


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(PillarboxError, match="bcube,4,1 has no routing 'tor': there are bcube"):
        run("bcube,4,1", "--routing", "tor")
    with pytest.raises(PillarboxError, match="no traffic pattern 'all-for-all'"):
        run("bcube,4,1", "--flows", "all-for-all")


def test_between_two_servers_the_paths_are_counted() -> None:
    told = json.loads(run("dpillar,8,2", "0.0.0", "0.3.3", "--json").output)
    counts = {one["routing"]: (one["paths"], one["by_link"]) for one in told["known"]}
    # The n / 2 paths of one direction share the source's port (Liao 2012, section 4.1).
    assert (counts["sp-cw"], counts["mp"], counts["mp-both"]) == ((1, 1), (4, 1), (8, 2))
    assert (told["by_link"], told["by_node"]) == (2, 2)
    lines = run("bcube,4,1", "0.0", "2.3", "--fail", "stop s4").output.splitlines()
    assert lines[-5].split() == ["any", "path", "-", "-", "1", "1"]


def test_between_takes_two_servers_and_no_flows() -> None:
    for wrong in (["0.0"], ["0.0", "0.1", "--flows", "burst"]):
        with pytest.raises(PillarboxError, match=r"gap takes no server \(whole network\), or two"):
            run("bcube,4,1", *wrong)


def test_counting_bounds_what_programs_find() -> None:
    found = compute_throughput_gap(
        topos.parse("tree,2,2"), list(permutations(range(4), 2)), ["bridge"]
    )
    assert {limit.name: round(limit.throughput, 6) for limit in found.limits} == {
        "links": 3.6,
        "ports": 4.0,
        "bisection": 3.0,  # the root's cable decides
    }
    assert found.best_throughput
    assert found.best_throughput.at_most == pytest.approx(3.0)


def test_a_gap_of_the_optimum_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_program, "MOST_EXACT", 0)
    monkeypatch.setattr(linear_program, "NEAR", 0.01)
    told = " ".join(run("dcell,3,1", "--routing", "dcell").output.split())
    assert "The optimum of the ABT is known within" in told
