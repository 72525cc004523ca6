"""`pillarbox simulate`: flows under load, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner, Result

from pillarbox.experiments.cli.commands.simulate import CONTROLS
from pillarbox.experiments.cli.main import cli
from pillarbox.topos.base.errors import PillarboxError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *arguments], catch_exceptions=False)


def test_slowdowns_grow_with_the_load() -> None:
    loads = ["--load", "0.2", "--load", "0.7", "--count", "2000"]
    found = json.loads(run("bcube,4,1", *loads, "--json").stdout)
    low, high = found["simulations"]
    assert [one["load"] for one in (low, high)] == [0.2, 0.7]
    assert low["slowdown"][-1]["sizes"] == "all"
    assert 1 < low["slowdown"][-1]["mean"] < high["slowdown"][-1]["mean"]
    assert high["loads"]["offered"] == pytest.approx(0.7, rel=0.1)
    assert sum(row["flows"] for row in low["slowdown"][:-1]) == low["counted"] < low["flows"]


def test_the_same_seed_is_the_same_flows() -> None:
    asked = ["dcell,4,1", "--count", "1000", "--load-of", "servers", "--load", "0.1", "--json"]
    one, same, other = (
        json.loads(run(*asked, "--seed", seed).stdout)["simulations"][0]["slowdown"]
        for seed in ("1", "1", "2")
    )
    assert one == same != other


def test_a_lone_flow_of_a_trace_is_not_slowed_down(tmp_path: Path) -> None:
    trace = tmp_path / "flows.csv"
    trace.write_text("time_s,source,destination,bytes\n0,0.0,3.3,5000\n9,1.0,2.0,70000\n")
    said = run("bcube,4,1", "--trace", str(trace)).stdout
    assert "all              2     0     1" in said
    assert "2 flows (2 evaluated)" in said


def test_small_flows_wait_in_tcps_queues(tmp_path: Path) -> None:
    sizes = tmp_path / "two.cdf"
    sizes.write_text("5000 0\n5001 0.8\n300000 0.801\n300001 1\n")
    asked = ["tree,4,2", "--count", "600", "--sizes", str(sizes), "--rate-mbit", "100", "--tcp"]
    found = json.loads(run(*asked, "--json").stdout)["simulations"]
    fluid, tcp = (one["slowdown"] for one in found)
    assert [one["of"] for one in found] == ["fluid", "TCP"]
    assert [row["flows"] for row in tcp] == [row["flows"] for row in fluid]
    assert tcp[0]["p99"] > 2 * fluid[0]["p99"]  # below 10 kB
    assert "Load 0.5, TCP: offered" in run(*asked).stdout


def test_a_smaller_network_estimates_tails() -> None:
    asked = ["bcube,4,1", "--sizes", "100000", "--count", "2000", "--ecn"]
    asked += ["--smaller", "bcube,3,1", "--events", "2e6"]
    found = json.loads(run(*asked, "--json").stdout)
    fluid, estimate = found["simulations"]
    assert (fluid["of"], estimate["of"]) == ("fluid", "estimate")
    assert estimate["smaller"] == "bcube,3,1" and estimate["events"] <= 2e6
    assert estimate["packet_simulations"] > 1 and estimate["samples"] > 500
    assert "fewer than 5,000 flows" in run(*asked).stdout
    assert estimate["slowdown"][-1]["p99"] > fluid["slowdown"][-1]["p99"]
    assert "packets were simulated in bcube,3,1" in run(*asked).stdout


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_flows_are_written_to_a_file(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"flows.{suffix}"
    asked = ["bcube,4,1", "--load", "0.3", "--load", "0.5", "--count", "600", "--sizes", "50000"]
    said = run(*asked, "--tcp", "--out", str(file), "--json").stdout
    flows = pandas.read_csv(file) if suffix == "csv" else pandas.read_parquet(file)
    assert flows["source"].str.fullmatch(r"\d\.\d\.bcube").all()
    for one in json.loads(said)["simulations"]:
        own = flows[(flows["load"] == one["load"]) & (flows["of"] == one["of"])]
        assert len(own) == one["flows"]
        slowdown = own["slowdown"][own["measured"]]
        assert len(slowdown) == one["counted"]
        assert slowdown.mean() == pytest.approx(one["slowdown"][-1]["mean"])
        assert (own["completion_s"] > 0).all()


def test_an_overload_is_named() -> None:
    said = run("tree,4,4", "--flows", "hotspot", "--load", "0.9", "--count", "2000").stdout
    assert "busiest link is overloaded" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bcube,4,1", "--routing", "ospf"], "no routing 'ospf'"),
        (["bcube,4,1", "--sizes", "huge"], "no distribution of sizes 'huge'"),
        (["bcube,4,1", "--flows", "circle"], "no traffic pattern 'circle'"),
        (["bcube,4,1", "--sizes", "data-mining", "--count", "100"], "use at least --count"),
        (["bcube,4,1", "--load", "0.5", "--trace", "no.csv"], "leave --load out"),
        (["bcube,4,1", "--trace", "no.csv"], "cannot be read"),
        (["bcube,4,1", "--tcp", "--bytes", "9", "--load", "0.5"], "leave --load, --trace"),
        (["bcube,4,1", "--queue", "long"], "'long' is no length of a queue"),
        (["bcube,4,1", "--ecn"], "--ecn marks packets, .*: add --tcp"),
        (["bcube,4,1", "--smaller", "bcube,3,1", "--bytes", "9"], "needs arriving flows"),
        (["bcube,4,1", "--smaller", "bcube,3,1", "--trace", "no.csv"], "needs random flows"),
        (["bcube,4,1", "--smaller", "bcube,4,1"], "fewer servers than bcube,4,1"),
        (["bcube,4,1", "--smaller", "tree,2,2"], "is of another kind than bcube,4,1"),
        (["bcube,4,1", "--smaller", "bcube,3,1,rates=9:1"], "is of another kind than bcube,4,1"),
        (
            ["bcube,4,1", "--smaller", "bcube,3,1", "--transport", "mptcp"],
            "does not simulate Multipath TCP",
        ),
        (
            ["bcube,4,1", "--smaller", "bcube,3,1", "--events", "100000"],
            "choose a smaller network",
        ),
        (["bcube,4,1", "--tcp", "--subflows", "2"], "add --transport mptcp"),
        (["tree,4,2", "--transport", "mptcp"], "have one port: Multipath TCP needs"),
        (["bcube,4,1", "--out", "flows.xlsx"], r"ends in \.csv or \.parquet, not flows\.xlsx"),
        (["bcube,4,1", "--out", "no/flows.csv"], "cannot be written"),
        (["bcube,4,1", "--bytes", "9", "--out", "flows.csv"], "leave --beside and --bytes out"),
        (["--beside", "run", "--out", "flows.csv"], "leave --beside and --bytes out"),
        (["--beside", "run", "--transport", "mptcp"], "leave --transport out"),
        (["--beside", "run", "--smaller", "bcube,3,1"], "leave --smaller out"),
    ],
)
def test_what_cannot_be_simulated_is_said(arguments: list[str], sentence: str) -> None:
    with pytest.raises(PillarboxError, match=sentence):
        run(*arguments)


def test_flows_that_begin_at_once_end_later_by_tcp() -> None:
    asked = ["tree,4,2", "--bytes", "300000", "--rate-mbit", "100", "--queue", "5 packets"]
    found = json.loads(run(*asked, "--tcp", "--json").stdout)
    fluid, tcp = found["bulk"]
    assert (fluid["of"], tcp["of"]) == ("fluid", "TCP")
    assert fluid["last_s"] < tcp["last_s"]
    assert tcp["of fluid"] == pytest.approx(fluid["last_s"] / tcp["last_s"])
    assert tcp["drops"] >= found["dropped"][0]["drops"] > 0
    assert "Largest packet losses:" in run(*asked, "--tcp").stdout


@pytest.mark.parametrize("congestion", CONTROLS)
def test_marks_take_the_place_of_drops(congestion: str) -> None:
    asked = ["tree,4,2", "--bytes", "3000000", "--rate-mbit", "100", "--json", "--tcp"]
    dropped, marked = (
        json.loads(run(*asked, "--congestion", congestion, *ecn).stdout)["bulk"][1]
        for ecn in ([], ["--ecn"])
    )
    # A control by delay loses packets in slow start only.
    assert marked["drops"] <= (20 if congestion == "delay" else dropped["drops"] / 10)


def test_an_unknown_control_is_told() -> None:
    said = CliRunner().invoke(cli, ["simulate", "bcube,4,1", "--tcp", "--congestion", "bbr"])
    assert "'bbr' is not one of 'cubic', 'reno', 'dctcp', 'delay', 'scalable'" in said.output
    assert said.exit_code == 2


def test_multipath_tcp_uses_the_paths_of_both_ports() -> None:
    one_to_one = ["bcube,4,1", "--flows", "one-to-one", "--bytes", "3000000", "--rate-mbit", "100"]
    asked = [*one_to_one, "--transport", "mptcp", "--json"]
    fluid, both = json.loads(run(*asked).stdout)["bulk"]
    _, one = json.loads(run(*asked, "--subflows", "1").stdout)["bulk"]
    assert (fluid["of"], both["of"]) == ("fluid", "MPTCP")
    assert 1.7 < both["of fluid"] < 2.01
    assert both["goodput_bps"] > 1.7 * one["goodput_bps"]


def test_arriving_flows_by_multipath_tcp() -> None:
    asked = [
        "bcube,4,1",
        "--count",
        "300",
        "--sizes",
        "100000",
        "--rate-mbit",
        "100",
        "--load",
        "0.2",
    ]
    fluid, several = json.loads(run(*asked, "--transport", "mptcp", "--json").stdout)["simulations"]
    assert (fluid["of"], several["of"]) == ("fluid", "MPTCP")
    assert several["counted"] == fluid["counted"]
    assert several["slowdown"][-1]["lost"] == 0
    assert several["slowdown"][-1]["median"] < fluid["slowdown"][-1]["median"]
    assert "Load 0.2, MPTCP: offered" in run(*asked, "--transport", "mptcp").stdout
