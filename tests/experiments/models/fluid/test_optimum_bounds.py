"""Bounds of the optimum against exact values, on worked examples and all networks small enough."""

from __future__ import annotations

import itertools
from typing import Any

import networkx
import numpy
import pytest
from scipy.optimize import linprog

from pillarbox import topos
from pillarbox.experiments.models.fluid import bounds, linear_program
from pillarbox.experiments.models.fluid.optimum_bounds import (
    NO_LENGTH,
    Commodities,
    Optimum,
    candidate_link_lengths,
    repaired_flow,
    shortest_path_lengths,
)

# A line 0 - 1 - 2 of cables in both directions, and a node 3 without a cable to it.
NEAR, FAR = numpy.array([0, 1, 1, 2, 3]), numpy.array([1, 0, 2, 1, 0])


def line(demand: list[list[float]], sources: list[int], capacity: Any = 1.0) -> Commodities:
    full = numpy.broadcast_to(numpy.asarray(capacity, float), (5,)).copy()
    return Commodities(NEAR, FAR, full, numpy.array(sources), numpy.array(demand))


def test_bounds_that_cross_by_rounding_are_put_in_order() -> None:
    assert Optimum.between(1.0, 2.0) == Optimum(1.0, 2.0)
    assert Optimum.between(2.0, 1.0) == Optimum(1.0, 1.0)
    assert Optimum(2.0, 3.0) * 4 == Optimum(8.0, 12.0)


@pytest.mark.parametrize(
    ("at_least", "at_most", "gap"),
    [(1, 2, 0.5), (1, 1, 0), (0, 0, 0), (0, 1, 1), (1 - 0.9e-6, 1, 0), (1 - 1.1e-6, 1, 1.1e-6)],
)
def test_gap_is_relative_to_the_upper_bound(at_least: float, at_most: float, gap: float) -> None:
    assert Optimum(at_least, at_most).gap == pytest.approx(gap)


def test_incidence_is_what_enters_less_what_leaves() -> None:
    net = line([[0, 0, 1, 0]], [0])
    assert net.incidence.toarray().tolist() == [
        [-1, 1, 0, 0, 1],
        [1, -1, -1, 1, 0],
        [0, 0, 1, -1, 0],
        [0, 0, 0, 0, -1],
    ]


def test_lengths_tried_are_prices_all_links_and_the_ports_of_both_ends() -> None:
    net = line([[0, 0, 1, 0]], [0])
    prices, equal, senders, receivers = candidate_link_lengths(net, numpy.array([0.5, 0, 0, 2, 3]))
    assert prices.tolist() == [0.5, NO_LENGTH, NO_LENGTH, 2, 3]
    assert equal.tolist() == [1] * 5
    assert senders.tolist() == [1, NO_LENGTH, NO_LENGTH, NO_LENGTH, NO_LENGTH]
    assert receivers.tolist() == [NO_LENGTH, NO_LENGTH, 1, NO_LENGTH, NO_LENGTH]


def test_lengths_needed_are_those_of_shortest_paths_to_destinations() -> None:
    net = line([[0, 0, 1, 0], [1, 0, 0, 2]], [0, 2])
    found = shortest_path_lengths(net, numpy.array([1.0, 10.0, 100.0, 1000.0, 1.0]))
    assert found.tolist() == [[0, 0, 101, 0], [1010, 0, 0, numpy.inf]]


def test_deficits_are_sent_over_the_fewest_links() -> None:
    # The solver's flow brings 0.25 to node 1 and nothing to node 2; 0.75 is wanted there.
    flows, wanted = numpy.array([[0.25, 0, 0, 0, 0]]), numpy.array([[0, 0, 0.75, 0]])
    # Link 0, of node 0, carries 0.25 + 0.75; link 2, of node 1, carries 0.75.
    for capacity, most in (([1.0, 1.0, 0.5, 1.0, 1.0], 1.5), ([0.5, 1.0, 1.0, 1.0, 1.0], 2.0)):
        net = line([[0, 0, 2, 0]], [0], capacity)
        arrived, load = repaired_flow(net, flows, wanted)
        assert arrived.tolist() == [[0, 0.25, 0.75, 0]]
        assert load == pytest.approx(most)


def test_flows_below_zero_and_out_of_reach_are_left_out() -> None:
    net = line([[0, 1, 1, 0]], [0])
    flows = numpy.array([[0.5, -1.0, 0.5, 0.0, 9.0]])
    arrived, load = repaired_flow(net, flows, numpy.zeros((1, 4)))
    assert arrived.tolist() == [[0, 0, 0.5, 0]]
    assert load == 0.5
    arrived, load = repaired_flow(net, numpy.zeros((1, 5)), numpy.array([[5.0, 0.0, 0.0, 5.0]]))
    assert (arrived.tolist(), load) == ([[0, 0, 0, 0]], 0)  # the source, and what it cannot reach


def test_a_single_link_and_none() -> None:
    one = numpy.array([0]), numpy.array([1])
    net = Commodities(*one, numpy.array([0.5]), numpy.array([0]), numpy.array([[0.0, 1.0, 0.0]]))
    arrived, load = repaired_flow(net, numpy.zeros((1, 1)), net.demand)
    assert (arrived.tolist(), load) == ([[0, 1, 0]], 2.0)
    nothing = numpy.empty(0, int), numpy.empty(0, int)
    net = Commodities(*nothing, numpy.empty(0), numpy.array([0]), numpy.array([[0.0, 1.0]]))
    arrived, load = repaired_flow(net, numpy.zeros((1, 0)), net.demand)
    assert (arrived.tolist(), load) == ([[0, 0]], 0.0)


def exact_optima(topology: topos.Topology, pairs: list[tuple[int, int]]) -> tuple[float, float]:
    """Return the largest common rate and the largest sum of rates, over all simple paths.

    The program has a variable per path, so it has nothing in common with the one under test.
    """
    graph = networkx.Graph((cable.a, cable.b) for cable in topology.links())
    number = {hop: row for row, hop in enumerate([*graph.edges, *(e[::-1] for e in graph.edges)])}
    columns: list[tuple[int, list[int]]] = []
    for pair, (a, b) in enumerate(pairs):
        paths = networkx.all_simple_paths(graph, a, b)
        columns += [(pair, [number[hop] for hop in itertools.pairwise(path)]) for path in paths]
    load = numpy.zeros((len(number), len(columns) + 1))
    rate = numpy.zeros((len(pairs), len(columns) + 1))
    rate[:, -1] = -1
    for column, (pair, hops) in enumerate(columns):
        load[hops, column] = 1
        rate[pair, column] = 1
    common = linprog(
        [*[0] * len(columns), -1], load, numpy.ones(len(number)), rate, numpy.zeros(len(pairs))
    )
    total = linprog([*[-1] * len(columns), 0], load, numpy.ones(len(number)))
    return -common.fun, -total.fun


@pytest.mark.parametrize(
    "spec",
    [
        "bcube,2,0",
        "bcube,2,1",
        "bcube,3,1",
        "bcube,2,2",
        "dcell,2,1",
        "dcell,3,1",
        "dpillar,4,2",
        "ficonn,4,1",
        "ficonn,2,1",
        "tree,2,2",
        "tree,3,3",
    ],
)
def test_both_bounds_are_the_exact_optimum(spec: str) -> None:
    topology = topos.parse(spec)
    draw = numpy.random.default_rng(1)
    every = list(itertools.permutations(range(topology.servers), 2))
    pairs = [every[i] for i in draw.choice(len(every), min(8, len(every)), replace=False)]
    common, total = exact_optima(topology, pairs)
    for solve, exact in ((bounds.concurrent_flow, common), (bounds.throughput, total)):
        found = solve(topology, pairs, 1e6)
        assert found.at_least == pytest.approx(exact * 1e6, rel=1e-6)
        assert found.at_most == pytest.approx(exact * 1e6, rel=1e-6)


@pytest.mark.parametrize(("most", "solver"), [(24, "ipm"), (23, "pdlp")])
def test_programs_up_to_the_limit_are_solved_exactly(
    most: int, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert linear_program.MOST_EXACT == 30_000
    monkeypatch.setattr(linear_program, "MOST_EXACT", most)
    made, options = linear_program._silent_solver, {}

    def spied() -> Any:
        found = made()
        set_option = found.setOptionValue

        def remembered(name: str, value: Any) -> Any:
            options[name] = value
            return set_option(name, value)

        monkeypatch.setattr(found, "setOptionValue", remembered, raising=False)
        return found

    monkeypatch.setattr(linear_program, "_silent_solver", spied)
    tree = topos.parse("tree,2,2")  # 12 links
    found = bounds.throughput(tree, [(0, 1), (1, 0)], 1.0, seconds=7.0)
    assert found.at_most == pytest.approx(2.0, rel=1e-3)
    exact = solver == "ipm"
    assert options["solver"] == solver
    assert options["run_crossover"] == ("on" if exact else "off")
    assert options.get("kkt_tolerance") == (None if exact else 2e-5)
    assert options["time_limit"] == 7.0
