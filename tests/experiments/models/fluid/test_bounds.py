"""Optima of small networks that can be worked out by hand."""

import itertools
from typing import Any

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid import bounds, linear_program
from pillarbox.experiments.models.fluid.directed_links import working_links
from pillarbox.experiments.models.fluid.optimum_bounds import (
    Commodities,
    Optimum,
    shortest_path_lengths,
)
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.topos.base.errors import PillarboxError


def everyone(network: topos.Topology) -> list[tuple[int, int]]:
    return list(itertools.permutations(range(network.servers), 2))


def at_once(*asked: Any) -> float:
    return bounds.concurrent_flow(*asked).at_least


def at_least(*given: Any) -> float:
    return bounds.throughput(*given).at_least


@pytest.mark.parametrize(
    ("spec", "total"),
    [
        ("bcube,2,1", 6),  # Theorem 6 of Guo 2009: n / (n - 1) (N - 1)
        ("bcube,4,1", 20),
        ("tree,2,2", 3),  # 4 of the 12 flows cross each leaf's cable to the root
        ("tree,4,5", 380 / 64),
        ("fattree,4", 16),  # full bisection: every server's cable is full
        # A ring of six: 12 directed hops carry 12 flows over one, 12 over two, 6 over three.
        ("dcell,2,1", 30 / (54 / 12)),
    ],
)
def test_all_to_all(spec: str, total: float) -> None:
    network = topos.parse(spec)
    pairs = everyone(network)
    rate = at_once(network, pairs, 1e9)
    assert rate * len(pairs) == pytest.approx(total * 1e9, rel=1e-6)


def test_one_pair_gets_all_its_disjoint_paths() -> None:
    network = topos.parse("bcube,4,2")
    for solve in (at_once, at_least):
        assert solve(network, [(0, 63)], 1e9) == pytest.approx(3e9)


def test_two_flows_of_a_pair_have_half_each() -> None:
    network = topos.parse("tree,2,2")
    assert at_once(network, [(0, 3), (0, 3)], 1e9) == pytest.approx(5e8)


def test_throughput_serves_whom_it_can() -> None:
    network = topos.parse("tree,3,2")
    pairs = [(0, 3), (1, 3), (2, 1)]  # two share the last cable, one stays on its leaf
    assert at_once(network, pairs, 1e9) == pytest.approx(5e8)
    assert at_least(network, pairs, 1e9) == pytest.approx(2e9)


def test_failures_part_a_pair() -> None:
    network = topos.parse("tree,2,2")
    works = working_links(network, parse_failures(network, ["stop s2"]))
    pairs = [(0, 1), (0, 3)]
    assert at_once(network, pairs, 1e9, works) == pytest.approx(0, abs=1)
    assert at_least(network, pairs, 1e9, works) == pytest.approx(1e9)
    assert at_once(network, [], 1e9) == 0


@pytest.mark.parametrize("solve", [bounds.concurrent_flow, bounds.throughput])
def test_without_flows_or_links_there_is_no_rate(solve: Any) -> None:
    network = topos.parse("tree,2,2")
    none = numpy.zeros(len(working_links(network)), bool)
    assert solve(network, [], 1e9) == Optimum(0.0, 0.0)
    assert solve(network, [(0, 1)], 1e9, none) == Optimum(0.0, 0.0)
    assert solve(network, [(0, 1)], 0.0) == Optimum(0.0, 0.0)


def test_a_pair_without_a_path_makes_the_common_rate_0() -> None:
    network = topos.parse("tree,2,2")
    works = working_links(network, parse_failures(network, ["stop s2"]))
    found = bounds.concurrent_flow(network, [(0, 1), (0, 3)], 1e9, works)
    assert found == Optimum(0.0, 0.0)


def test_capacities_of_links_and_the_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    network = topos.parse("tree,2,2")
    capacity = numpy.full(len(working_links(network)), 4e6)
    capacity[0] = 1e6  # what server 0 sends
    found = bounds.throughput(network, [(0, 1), (1, 0)], capacity)
    assert (found.at_least, found.at_most) == (pytest.approx(5e6), pytest.approx(5e6))
    found = bounds.concurrent_flow(network, [(0, 1), (1, 0), (1, 0)], capacity)
    assert (found.at_least, found.at_most) == (pytest.approx(1e6), pytest.approx(1e6))
    assert bounds.MOST_VARIABLES == 1_000_000
    monkeypatch.setattr(bounds, "MOST_VARIABLES", 24)  # 2 sources x 12 links
    assert bounds.is_small_enough(network, [(0, 1), (1, 2), (1, 0)])
    assert not bounds.is_small_enough(network, [(0, 1), (1, 2), (2, 0)])
    with pytest.raises(PillarboxError, match=r"3 flows from 3 servers .* of 36 variables"):
        bounds.throughput(network, [(0, 1), (1, 2), (2, 0)], 1.0)


def test_sizes_beyond_the_limit_are_refused() -> None:
    network = topos.parse("bcube,8,2")
    with pytest.raises(PillarboxError, match="choose a smaller network or fewer sources"):
        at_once(network, everyone(network), 1e9)


@pytest.mark.parametrize("solve", [bounds.concurrent_flow, bounds.throughput])
@pytest.mark.parametrize("spec", ["dcell,3,1", "dpillar,4,2", "fattree,4"])
def test_both_solvers_find_the_same_and_print_nothing(
    solve: Any, spec: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    network = topos.parse(spec)
    pairs = everyone(network)
    exact = solve(network, pairs, 1e9)
    assert exact.gap == 0
    monkeypatch.setattr(linear_program, "MOST_EXACT", 0)
    near = solve(network, pairs, 1e9)
    assert near.at_least <= exact.at_most * (1 + 1e-9)
    assert near.at_most >= exact.at_least * (1 - 1e-9)
    assert near.gap < 1e-3
    assert capfd.readouterr().out == ""


def test_what_is_proven_does_not_depend_on_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    network = topos.parse("dcell,2,1")  # a ring of six
    pairs = everyone(network)
    random = numpy.random.default_rng(1)
    for solve in (bounds.concurrent_flow, bounds.throughput):
        exact = solve(network, pairs, 1.0)
        for _ in range(20):
            monkeypatch.setattr(
                bounds,
                "maximise",
                lambda cost, _balance, net, _seconds: (
                    random.random(len(cost)),
                    random.random(len(net.capacity)) + 0.01,
                ),
            )
            wild = solve(network, pairs, 1.0)
            monkeypatch.undo()
            assert 0 < wild.at_least <= exact.at_most * (1 + 1e-9)
            assert wild.at_most >= exact.at_least * (1 - 1e-9)


def test_ports_bound_what_a_solver_without_time_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    network = topos.parse("bcube,2,1")

    def nothing(cost: Any, _balance: Any, net: Commodities, _seconds: float) -> Any:
        return numpy.zeros(len(cost)), numpy.zeros(len(net.capacity))

    monkeypatch.setattr(bounds, "maximise", nothing)
    found = bounds.throughput(network, everyone(network), 1.0)
    assert (found.at_least, found.at_most) == (0.0, pytest.approx(8.0))  # 4 servers, 2 ports each
    found = bounds.concurrent_flow(network, everyone(network), 1.0)
    assert (found.at_least, found.at_most * 12) == (0.0, pytest.approx(6.0))  # 16 links, 32 / 12


def test_of_parallel_cables_the_shorter_one_counts() -> None:
    ends = numpy.array([0, 0]), numpy.array([1, 1])
    demand = numpy.array([[0.0, 1.0]])
    net = Commodities(*ends, numpy.ones(2), numpy.array([0]), demand)
    assert shortest_path_lengths(net, numpy.array([3.0, 2.0])).tolist() == [[0.0, 2.0]]


@pytest.mark.parametrize("part", [0.25, 1.0, 4.0])
def test_a_solution_is_scaled_until_a_link_is_full(
    part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = topos.parse("tree,2,2")
    pairs = [(0, 1), (2, 3)]

    def only_first(cost: Any, _balance: Any, net: Commodities, _seconds: float) -> Any:
        values, links = numpy.zeros(len(cost)), len(net.capacity)
        values[:links] = part * ((net.near == 0) | (net.far == 1))  # from 0 over a switch to 1
        values[-1] = part if len(cost) == 2 * links + 1 else 0.0  # the common rate
        return values, numpy.ones(links)

    monkeypatch.setattr(bounds, "maximise", only_first)
    found = bounds.throughput(network, pairs, 1e6)
    assert (found.at_least, found.at_most) == (pytest.approx(1e6), pytest.approx(2e6))
    found = bounds.concurrent_flow(network, pairs, 1e6)  # the deficit of (2, 3) is sent as well
    assert (found.at_least, found.at_most) == (pytest.approx(1e6), pytest.approx(1e6))
