"""pillarbox compare: searches against other searches, prices, and the papers' tables."""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import replace
from pathlib import Path

import networkx
import numpy
import pytest
from click.testing import CliRunner

from pillarbox import topos
from pillarbox.experiments.base import text
from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.models.comparison import (
    all_networks,
    network_measures,
    papers,
    path_metrics,
    prices,
    speedups,
    table_checks,
    tabulated,
)
from pillarbox.experiments.models.comparison import bisection as cuts
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import small
from pillarbox.topos.base.topology import Topology

SMALL = ["bcube,4,1", "dcell,3,1", "dpillar,4,3", "ficonn,4,1", "fattree,4", "tree,4,3"]
SMALL += [spec for spec in small() if spec not in SMALL]
PARTIAL = ["bcube,4,2,servers=32", "dcell,3,2,servers=41"]


def hop_graph(topology: Topology) -> networkx.Graph:
    return networkx.Graph(
        (server, peer)
        for server in range(topology.servers)
        for port in range(topology.ports)
        for peer in topology.peers(server, port)
    )


def node_graph(topology: Topology) -> networkx.Graph:
    return networkx.Graph((cable.a, cable.b) for cable in topology.links())


def run(*words: str):
    return CliRunner().invoke(cli, ["compare", *words])


# -- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*SMALL, *PARTIAL, "dpillar,8,2", "ficonn,4,2"])
def test_diameter_is_that_of_networkx(spec):
    topology = topos.parse(spec)
    assert path_metrics.diameter(topology).value == networkx.diameter(hop_graph(topology))


def test_a_large_network_is_not_searched_and_says_why():
    found = path_metrics.diameter(topos.parse("dpillar,48,4"))
    assert found.value is None
    assert "more than 4,096 servers" in found.note


@pytest.mark.parametrize("spec", [*SMALL, *PARTIAL])
def test_link_loads_are_networkx_betweenness(spec, monkeypatch):
    monkeypatch.setattr(path_metrics, "SOURCES", 5)
    topology = topos.parse(spec)
    servers = range(topology.servers)
    expected = networkx.edge_betweenness_centrality_subset(node_graph(topology), servers, servers)
    cables = topology.cable_arrays()
    ours = path_metrics.link_loads(topology)
    assert ours[0] == pytest.approx(ours[1])  # ways there are ways back
    for a, b, load in zip(cables.a.tolist(), cables.b.tolist(), ours.sum(axis=0), strict=True):
        # networkx halves what an undirected graph counts from both ends.
        assert load == pytest.approx(2 * expected.get((a, b), expected.get((b, a))))


def test_disjoint_paths_by_max_flow():
    assert path_metrics.disjoint_paths(topos.parse("bcube,4,2"))[:2] == (3, 3)
    assert path_metrics.disjoint_paths(topos.parse("dcell,4,1"))[:2] == (2, 2)
    ficonn = path_metrics.disjoint_paths(topos.parse("ficonn,4,1"))
    assert ficonn[:2] == (1, 1)
    assert ficonn.note == "all pairs"
    assert path_metrics.disjoint_paths(topos.parse("ficonn,8,2"))[:2] == (1, 2)
    assert path_metrics.disjoint_paths(topos.parse("ficonn,16,2")).least is None


# -- bisection -----------------------------------------------------------------------------------


def fewest_cut(topology: Topology) -> int:
    """Try every half of the servers; the switches' sides by minimum cut."""
    count = topology.servers
    graph = networkx.Graph()
    for cable in topology.links():
        graph.add_edge(cable.a, cable.b, capacity=1)
    least = topology.cables
    for half in itertools.combinations(range(1, count), count // 2):
        directed = graph.copy()
        for server in range(count):
            directed.add_edge("half" if server in half else "rest", server, capacity=10**6)
        least = min(least, networkx.minimum_cut_value(directed, "half", "rest"))
    return least


@pytest.mark.parametrize(
    "spec",
    ["bcube,3,1", "dcell,2,1", "dcell,2,1,servers=5", "dpillar,4,2", "tree,3,3", "ficonn,2,1"],
)
def test_bisection_is_the_least_of_all_halves(spec):
    topology = topos.parse(spec)
    found = cuts.bisection(topology, 5)
    assert found.exact == fewest_cut(topology), found


@pytest.mark.parametrize(
    "spec", ["bcube,4,1", "dpillar,4,3", "dpillar,8,2", "fattree,4", "tree,4,5"]
)
def test_integer_program_and_switch_sides_agree(spec):
    topology = topos.parse(spec)
    sides = cuts.bisection_by_switch_sides(topology)
    lower, upper = cuts.bisection_by_integer_program(topology, 0, topology.cables, 0.5)
    assert lower <= sides <= upper
    assert (
        cuts.bisection_bound_by_flows(topology) <= sides <= cuts.smallest_structured_cut(topology)
    )


def test_integer_program_proves_the_cut_of_a_dcell():
    assert cuts.bisection_by_integer_program(topos.parse("dcell,4,1"), 0, 30, 20) == (6, 6)


def test_switch_sides_survive_small_chunks(monkeypatch):
    monkeypatch.setattr(cuts, "CHUNK", 3)
    assert cuts.bisection_by_switch_sides(topos.parse("bcube,4,1")) == 8


def cut_of(topology: Topology, half: set[int]) -> int:
    """Count from the wiring alone, each switch on its better side (all cables end at one)."""
    cut = 0
    for switch in range(topology.switches):
        servers = [plug.node for _, plug in topology.neighbours(topology.servers + switch)]
        inside = sum(server in half for server in servers)
        cut += min(inside, len(servers) - inside)
    return cut


def test_departs_from_the_paper_bisection_of_bcube():
    # Liao 2012, Table 2 gives N / 2 = 32: three full rows, two of the eight columns, less a corner.
    topology = topos.parse("bcube,8,1")
    corner = {8 * row + c for row in range(7) for c in range(8 if row < 3 else 2)}
    assert len(corner) == topology.servers // 2
    assert cut_of(topology, corner) == cuts.bisection(topology, 0).exact == 28


def test_departs_from_the_paper_bisection_of_dpillar():
    # Liao 2012, Proposition 2.3 gives (n/2)^k = 64 for (16, 2).
    topology = topos.parse("dpillar,16,2")
    corner = {
        64 * column + 8 * row + c
        for column in range(2)
        for row in range(7)
        for c in range(8 if row < 3 else 2)
    }
    assert len(corner) == topology.servers // 2
    assert cut_of(topology, corner) == cuts.bisection(topology, 0).exact == 56


def test_cut_size_counts_cables_between_servers():
    topology = topos.parse("dcell,2,1")
    matrix = path_metrics.adjacency(topology)
    # Servers 0, 1 and 2: the switch of 2 and 3, and two of three cables between the cells.
    ends = [(c.a, c.b) for c in topology.links() if c.b < topology.servers]
    direct = sum((a < 3) != (b < 3) for a, b in ends)
    assert cuts.cut_size(topology, matrix, numpy.arange(3)) == direct + 1


def test_without_time_a_range_is_stated():
    found = cuts.bisection(topos.parse("bcube,4,2"), 0)
    assert found.exact is None
    assert str(found) == f"{found.lower} .. {found.upper}"
    assert found.lower <= 28 <= found.upper


# -- prices --------------------------------------------------------------------------------------


def test_the_smallest_sufficient_device_is_priced():
    bill = prices.network_bill(topos.parse("dcell,10,2,servers=110"), prices.LIAO)
    assert bill.switches_usd == 11 * 150
    assert "switch prices for 16 ports are used for 10 ports" in bill.remarks
    assert bill.nics_usd == 110 * 20


def test_what_is_not_listed_needs_an_option():
    topology = topos.parse("fattree,64")
    bill = prices.network_bill(topology, prices.LIAO)
    assert bill.network_usd is bill.total_usd is bill.total_w is None
    assert any("give --switch-price 64=NUMBER" in remark for remark in bill.remarks)
    found = json.loads(
        run("fattree,64", "--no-exact", "--json", "--switch-price", "64=900").output
    )["networks"][0]
    assert found["switches_usd"] == topology.switches * 900
    assert found["total_w"] is None


def test_a_price_without_a_size_is_for_all():
    found = json.loads(run("bcube,4,1", "--no-exact", "--json", "--switch-price", "7").output)[
        "networks"
    ][0]
    assert found["switches_usd"] == 8 * 7


# -- the command ---------------------------------------------------------------------------------


def test_json_has_the_numbers():
    first, second = json.loads(run("dpillar,8,2", "dcell,3,2,servers=41", "--json").output)[
        "networks"
    ]
    assert first["bisection_lower_cables"] == first["bisection_upper_cables"] == 16
    assert (first["diameter_bound_hops"]["value"], first["diameter_exact_hops"]) == (3, 2)
    assert first["network_usd"] == 8 * 50 + 64
    assert first["wrapped_butterfly"]["ports_per_node"] == 4
    assert second["bisection_formula_cables"]["value"] is None  # no bound is proven


def test_text_fits_120_columns_and_aligns():
    specs = SMALL[:6]  # more stand below
    result = run(*specs, "--no-exact")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= text.WIDTH
    starts = [lines[0].index(spec) for spec in specs]
    servers = next(line for line in lines if line.startswith("servers"))
    for start, spec in zip(starts, specs, strict=True):
        assert servers[start:].split()[0] == str(topos.parse(spec).servers)
    assert "not requested" in result.output


def test_more_networks_than_fit_stand_below():
    shown = text.side_by_side([("", [f"network {i}" for i in range(12)])])
    assert len(shown.split("\n\n")) == 2
    assert max(map(len, shown.splitlines())) <= text.WIDTH


def test_a_disproved_formula_is_said():
    assert "a bisection by 28 cables exists, fewer than N / 2" in run("bcube,8,1").output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), None),
        (("--json",), "at least one network"),
        (("bcube,4,1", "--papers"), "leave out the SPECs"),
    ],
)
def test_bad_input_is_a_usage_error(words, sentence):
    result = run(*words)
    assert result.exit_code == 2
    assert sentence is None or sentence in result.output


@pytest.mark.parametrize("entry", ["x=5", "8=", "8=cheap", "-3", "=4", "nan", "8=inf"])
def test_wrong_prices_say_how_to_write_them(entry):
    with pytest.raises(PillarboxError, match="write PORTS=NUMBER"):
        prices.updated_price_table({}, (entry,), "--switch-price")


def test_contrast_with_the_wrapped_butterfly():
    found = network_measures.butterfly_comparison(topos.parse("dpillar,8,2"))
    assert (found.butterfly.k, found.butterfly.nodes) == (4, 64)
    assert found.diameter_ratio == 2
    assert found.bisection_ratio == 1
    assert (
        network_measures.butterfly_comparison(topos.parse("dcell,3,2,servers=41")).bisection_ratio
        is None
    )


def test_the_largest_networks_are_compared_by_formula():
    found = json.loads(run("bcube,4,15", "dpillar,48,5", "--json").output)["networks"]
    assert [network["diameter_bound_hops"]["value"] for network in found] == [16, 9]
    assert [network["bisection_upper_cables"] for network in found] == [None, None]


# -- the papers' tables --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables():
    return {table.title.partition(":")[0]: table for table in papers.checked_paper_tables(5)}


def differing(table: papers.PaperTable) -> set[str]:
    return {check.what for check in table.checks if check.agrees is False}


def test_dpillar_table_1_agrees_to_the_dollar(tables):
    table = tables["DPillar, Table 1"]
    assert not differing(table)
    dollars = [check.ours for check in table.checks if check.what.endswith("network, $")]
    assert dollars == [14_848, 339_968, 1_410_048, 35_831_808]


def test_dpillar_table_2_differs_where_known(tables):
    assert differing(tables["DPillar, Table 2"]) == {
        "fattree,4 switches",
        "dpillar,4,3 switches",
        "bcube,8,1 bisection",
        "dpillar,16,2 bisection",
        "dpillar,8,2 disjoint paths",
    }


def test_bcube_table_1_differs_where_known(tables):
    assert differing(tables["BCube, Table 1"]) == {"tree,8,8 all-to-all (ABT)", "fattree,8 wires"}


def test_bcube_table_2_differs_in_the_trees_power_alone(tables):
    table = tables["BCube, Table 2"]
    assert differing(table) == {"Two-level tree: switches, kW"}
    wires = [check.ours for check in table.checks if check.what.endswith("wires")]
    assert wires == [2091, 10240, 3468, 8192]


def test_dcell_table_3_differs_where_known(tables):
    table = tables["DCell, Table 3"]
    assert differing(table) == {
        "torus,8 diameter",
        "tree,64,5 bisection",
        "tree,64,5 bottleneck",
        "fattree,64 bottleneck",
        "debruijn,4,2 bisection",
    }
    assert len(table.checks) == 9 * 4 + 2
    assert all(check.agrees is not None for check in table.checks)


def test_an_order_that_lacks_a_factor_is_not_one(monkeypatch):
    right = tabulated.ORDERS["O(N l)"]
    monkeypatch.setitem(tabulated.ORDERS, "O(N l)", (lambda nodes, _: nodes, right[1]))
    assert tabulated.table_cell_check("butterfly,4", "bottleneck").agrees is False


def test_a_bound_is_one_in_every_table_that_prints_it(tables):
    bounds = {
        name: [check.mark for check in table.checks if check.what == "dcell,4,1 bisection"]
        for name, table in tables.items()
    }
    assert bounds["DPillar, Table 2"] == bounds["DCell, Table 3"] == ["agree"]


def test_speed_ups_are_those_of_traffic(monkeypatch):
    bcube = topos.parse("bcube,4,1")
    everybody = range(1, bcube.servers)
    assert speedups.speedup_of_file_distribution(bcube, everybody) == 2
    plan = speedups.plan_of(bcube, 0, everybody)
    once = replace(plan, trees=(plan.trees[0], plan.trees[0]))  # two parts over the same links
    monkeypatch.setattr(speedups, "plan_of", lambda *_: once)
    assert speedups.speedup_of_file_distribution(bcube, everybody) == 1
    short = replace(plan, trees=(plan.trees[0][:-1], plan.trees[1]))  # one server gets half of it
    monkeypatch.setattr(speedups, "plan_of", lambda *_: short)
    assert speedups.speedup_of_file_distribution(bcube, everybody) == 0


@pytest.mark.parametrize(
    ("spec", "links"),
    [("dcell,4,1", 2), ("dcell,2,2", 3), ("bcube,3,1", 2), ("tree,2,2", 1), ("ficonn,4,1", 1)],
)
def test_no_trees_are_faster_than_the_best(spec, links):
    topology = topos.parse(spec)
    everybody = range(1, topology.servers)
    best = speedups.best_speedup_to_all(topology)
    assert best == links
    assert speedups.speedup_of_file_distribution(topology, everybody) <= best
    assert best <= speedups.speedup_to_one(topology)


def test_one_to_all_of_dcell_can_break_the_papers_bound(tables, monkeypatch):
    def mark_of_one_to_all():
        (check,) = [
            check
            for check in papers.check_bcube_table_1().checks
            if check.what == "dcell,4,1 one-to-all"
        ]
        return check.mark

    assert mark_of_one_to_all() == "agree"
    monkeypatch.setattr(speedups, "best_speedup_to_all", lambda _: 2.5)
    assert mark_of_one_to_all() == "differs"


def test_differences_are_errata_with_a_derived_value(tables):
    for name, table in tables.items():
        if name != "DPillar against the wrapped butterfly":  # an approximation for large n
            wrong = [check for check in table.checks if check.agrees is False]
            assert [check.mark for check in wrong] == ["erratum"] * len(wrong)


def test_every_difference_has_a_reason(tables):
    for table in tables.values():
        assert all(check.reason for check in table.checks if not check.agrees), table.title


def test_a_wrong_value_is_marked():
    assert papers.number_check("x", "14,848", 14_849).mark == "differs"
    assert papers.number_check("x", "20.8", 20.75).mark == "agree"
    assert papers.number_check("x", "20.8", 20.7).mark == "differs"
    assert table_checks.formula_check("x", "N", 8, 9, table_checks.AT_MOST).mark == "differs"
    assert table_checks.formula_check("x", "N", 8, 9, table_checks.AT_LEAST).mark == "agree"
    assert table_checks.formula_check("x", "O(N)", None, 9).mark == "not checked"


def test_papers_on_the_command_line(tables, monkeypatch):
    monkeypatch.setattr(papers, "checked_paper_tables", lambda seconds: [*tables.values()])
    shown = run("--papers").output
    assert max(map(len, shown.splitlines())) <= text.WIDTH
    assert "35,831,808  35,831,808  agree" in shown
    found = json.loads(run("--papers", "--json").output)["tables"]
    assert sum(len(table["checks"]) for table in found) > 100


def test_all_networks_as_text_json_and_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_networks, "SPECS", {16: ("bcube,4,1", "soon,4,1"), 8: ("tree,4,2",)})
    table = tmp_path / "all.csv"
    ran = CliRunner().invoke(cli, ["compare", "--all", "--csv", str(table)])
    assert ran.exit_code == 0, ran.output
    assert [line.split()[0] for line in ran.output.splitlines()[:4] if line] == [
        *("network", "bcube,4,1", "tree,4,2")
    ]
    as_json = json.loads(CliRunner().invoke(cli, ["compare", "--all", "--json"]).output)
    rows = as_json["networks"]
    assert [(row["spec"], row["size_class"], row["diameter_hops"]) for row in rows] == [
        ("bcube,4,1", 16, 2),
        ("tree,4,2", 8, 1),
    ]
    with table.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [{key: str(value) for key, value in row.items()} for row in rows] == [
        {key: value or "None" for key, value in row.items()} for row in written
    ]


@pytest.mark.parametrize(
    "words", [["--all", "bcube,4,1"], ["--all", "--papers"], ["bcube,4,1", "--csv", "x.csv"]]
)
def test_all_has_networks_of_its_own(words: list[str]) -> None:
    ran = CliRunner().invoke(cli, ["compare", *words])
    assert ran.exit_code == 2
    assert "--all" in ran.output
