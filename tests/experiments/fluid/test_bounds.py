"""Optima of small networks that can be worked out by hand."""

import itertools

import pytest

import topos
from experiments.fluid import bounds
from experiments.fluid.links import working_links
from hosts.base.failures import parse_failures
from topos.base.errors import TopologyError


def everyone(network: topos.Topology) -> list[tuple[int, int]]:
    return list(itertools.permutations(range(network.servers), 2))


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
    rate = bounds.concurrent_flow_bps(network, pairs, 1e9)
    assert rate * len(pairs) == pytest.approx(total * 1e9, rel=1e-6)


def test_one_pair_gets_all_its_disjoint_paths() -> None:
    network = topos.parse("bcube,4,2")
    for solve in (bounds.concurrent_flow_bps, bounds.throughput_bps):
        assert solve(network, [(0, 63)], 1e9) == pytest.approx(3e9)


def test_two_flows_of_a_pair_have_half_each() -> None:
    network = topos.parse("tree,2,2")
    assert bounds.concurrent_flow_bps(network, [(0, 3), (0, 3)], 1e9) == pytest.approx(5e8)


def test_throughput_serves_whom_it_can() -> None:
    network = topos.parse("tree,3,2")
    pairs = [(0, 3), (1, 3), (2, 1)]  # two share the last cable, one stays on its leaf
    assert bounds.concurrent_flow_bps(network, pairs, 1e9) == pytest.approx(5e8)
    assert bounds.throughput_bps(network, pairs, 1e9) == pytest.approx(2e9)


def test_failures_part_a_pair() -> None:
    network = topos.parse("tree,2,2")
    works = working_links(network, parse_failures(network, ["switch:s2"]))
    pairs = [(0, 1), (0, 3)]
    assert bounds.concurrent_flow_bps(network, pairs, 1e9, works) == pytest.approx(0, abs=1)
    assert bounds.throughput_bps(network, pairs, 1e9, works) == pytest.approx(1e9)
    assert bounds.concurrent_flow_bps(network, [], 1e9) == 0


def test_sizes_beyond_the_limit_are_refused() -> None:
    network = topos.parse("bcube,8,2")
    with pytest.raises(TopologyError, match="choose a smaller network or fewer sources"):
        bounds.concurrent_flow_bps(network, everyone(network), 1e9)
