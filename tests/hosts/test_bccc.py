"""Routing in BCCC: shortest paths digit by digit, and two disjoint paths."""

import itertools

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.defaults import usual_routing
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.hosts.base.path import disjoint
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.hosts.bccc import bccc_path, path_set

SPECS = ["bccc,2,1", "bccc,3,1", "bccc,2,2", "bccc,4,0"]


@pytest.mark.parametrize("spec", SPECS)
def test_routing_is_as_short_as_any(spec: str) -> None:
    bccc = topos.parse(spec)
    lengths = set()
    for source, destination in itertools.permutations(range(bccc.servers), 2):
        path = bccc_path(bccc, source, destination)
        path.nodes(bccc)  # raises where a hop follows no cable
        shortest = shortest_path(bccc, source, destination)
        assert shortest is not None
        assert (path.destination, len(path)) == (destination, len(shortest))
        lengths.add(len(path))
    assert max(lengths) == bccc.diameter_bound().value


@pytest.mark.parametrize(
    ("source", "destination", "servers"),
    [
        ("0.0.0.0", "0.0.0.2", "0.0.0.0 0.0.0.2"),  # the same crossbar
        ("0.0.0.1", "0.1.0.1", "0.0.0.1 0.1.0.1"),  # the same level switch
        # the source's digit first, the destination's last
        ("0.0.0.0", "1.1.1.2", "0.0.0.0 0.0.1.0 0.0.1.1 0.1.1.1 0.1.1.2 1.1.1.2"),
        # from place 0 to place 0: all digits, and back (the diameter, 6)
        ("0.0.0.0", "1.1.1.0", "0.0.0.0 0.0.1.0 0.0.1.2 1.0.1.2 1.0.1.1 1.1.1.1 1.1.1.0"),
    ],
)
def test_worked_paths(source: str, destination: str, servers: str) -> None:
    bccc = topos.parse("bccc,2,2")
    path = bccc_path(bccc, bccc.server(source), bccc.server(destination))
    assert " ".join(map(bccc.address, path.servers)) == servers


@pytest.mark.parametrize("spec", SPECS)
def test_two_paths_share_no_server_and_no_switch(spec: str) -> None:
    bccc = topos.parse(spec)
    for source, destination in itertools.permutations(range(bccc.servers), 2):
        paths = path_set(bccc, source, destination)
        assert len(paths) == bccc.disjoint_paths().value
        assert disjoint(bccc, paths)
        assert paths[0] == bccc_path(bccc, source, destination)
        for path in paths:
            nodes = path.nodes(bccc)
            assert (path.destination, len(set(nodes))) == (destination, len(nodes))


def test_a_stopped_switch_leaves_the_second_path() -> None:
    bccc = topos.parse("bccc,3,1")
    ends = bccc.server("0.0.0"), bccc.server("2.1.0")
    failures = parse_failures(bccc, ["stop s0"])  # the source's level switch
    assert route(bccc, "bccc", *ends, failures).dropped == "switch s0 has failed"
    (path,) = route(bccc, "bccc", *ends, failures, several=True).paths
    assert path == path_set(bccc, *ends)[1]


def test_labs_use_the_routing_that_goes_around_failures() -> None:
    assert usual_routing(topos.parse("bccc,3,1")) == "shortest"
