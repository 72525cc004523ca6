"""Shortest paths by words of bits against the routers' own search."""

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import working_links
from pillarbox.experiments.models.simulator import breadth_first
from pillarbox.experiments.models.simulator.breadth_first import distances, mean_and_deviation
from pillarbox.hosts.base.failures import NONE, Failures, parse_failures
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.topos.base.spec import small

SPECS = ("bcube,4,1", "dcell,3,2,servers=41", "dpillar,4,3", "ficonn,4,2", "tree,4,3", "fattree,4")
SPECS += tuple(spec for spec in small() if spec not in SPECS)


def counted(network: topos.Topology, source: int, failures: Failures = NONE) -> list[int]:
    paths = [shortest_path(network, source, to, failures) for to in range(network.servers)]
    return numpy.bincount([len(path) for path in paths if path is not None]).tolist()


@pytest.mark.parametrize("spec", SPECS)
def test_counts_are_those_of_the_routers_search(spec: str) -> None:
    network = topos.parse(spec)
    sources = numpy.array([0, 7, network.servers - 1])
    for row, source in zip(distances(network, sources), sources.tolist(), strict=True):
        assert numpy.trim_zeros(row, "b").tolist() == counted(network, source)


@pytest.mark.parametrize("spec", SPECS)
def test_around_failures(spec: str) -> None:
    network = topos.parse(spec)
    stopped = ["stop s1"] if network.switches else []
    failures = parse_failures(network, [*stopped, f"kill {network.address(2)}"])
    found = distances(network, numpy.array([0]), working_links(network, failures))
    assert numpy.trim_zeros(found[0], "b").tolist() == counted(network, 0, failures)


@pytest.mark.parametrize(
    ("spec", "mean", "deviation"),
    [("dcell,4,2", 4.87, 1.27), ("dcell,5,2", 5.22, 1.23), ("dcell,6,2", 5.48, 1.18)],
)
def test_shortest_paths_of_dcell_as_in_the_paper(spec: str, mean: float, deviation: float) -> None:
    network = topos.parse(spec)  # Guo 2008, Table 1
    every = distances(network, numpy.arange(network.servers))  # more than a word has bits
    assert every.sum() == network.servers**2
    assert mean_and_deviation(every) == pytest.approx((mean, deviation), abs=0.005)


@pytest.mark.parametrize("count", [0, 1, 255, 256, 1000])
def test_bits_are_counted_beyond_what_a_byte_holds(count: int) -> None:
    words = numpy.random.default_rng(count).integers(0, 2**64, count, numpy.uint64)
    words[::3] = 2**64 - 1
    bits = [[int(word) >> bit & 1 for bit in range(breadth_first.SOURCES)] for word in words]
    expected = [sum(column) for column in zip(*bits, strict=True)] or [0] * breadth_first.SOURCES
    assert breadth_first._bit_counts(words).tolist() == expected
