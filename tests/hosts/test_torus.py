"""Routing in a torus: greedy paths, a disjoint path per port, and failures."""

import itertools
from collections import Counter

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.defaults import usual_routing
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.hosts.base.path import disjoint
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.torus import KeyRouting, key_path, nearer, path_set

SPECS = ["torus,3,3", "torus,4,2,3", "torus,6", "torus,2,2,2", "torus,5,4", "torus,2"]


def every_pair(torus: topos.Topology) -> itertools.permutations:
    return itertools.permutations(range(torus.servers), 2)


@pytest.mark.parametrize("spec", SPECS)
def test_key_routing_is_as_short_as_any(spec: str) -> None:
    torus = topos.parse(spec)
    for source, destination in every_pair(torus):
        path = key_path(torus, source, destination)
        path.nodes(torus)  # raises where a hop follows no cable
        shortest = shortest_path(torus, source, destination)
        assert shortest is not None
        assert (path.destination, len(path)) == (destination, len(shortest))


@pytest.mark.parametrize("spec", SPECS)
def test_there_is_a_disjoint_path_for_each_port(spec: str) -> None:
    torus = topos.parse(spec)
    for source, destination in every_pair(torus):
        paths = path_set(torus, source, destination)
        assert {path.steps[0].port for path in paths} == set(range(torus.ports))
        assert disjoint(torus, paths)
        assert len(paths[0]) == len(key_path(torus, source, destination))
        for path in paths:
            path.nodes(torus)
            assert (path.destination, len(set(path.servers))) == (destination, len(path) + 1)


@pytest.mark.parametrize("spec", ["torus,4,4", "torus,5,3", "torus,6,2"])
def test_nearer_neighbours_are_those_on_shortest_paths(spec: str) -> None:
    torus = topos.parse(spec)

    def distance(a: int, b: int) -> int:
        return len(key_path(torus, a, b))

    for source, destination in every_pair(torus):
        found = {step.peer for step in nearer(torus, source, destination)}
        far = distance(source, destination)
        around = (torus.peers(source, port)[0] for port in range(torus.ports))
        assert found == {peer for peer in around if distance(peer, destination) < far}


def test_even_rings_are_loaded_equally_in_both_directions() -> None:
    torus = topos.parse("torus,6")
    loads: Counter[tuple[int, int]] = Counter()
    for pair in every_pair(torus):
        loads.update(itertools.pairwise(key_path(torus, *pair).servers))
    # 9 hops from each server; were all ties broken alike, 6 would lead onwards and 3 back
    assert set(loads.values()) == {4, 5}


@pytest.mark.parametrize(
    ("failure", "servers"),
    [
        ("cut 0.0-1.0", "0.0 0.1 1.1 2.1"),  # the other coordinate first
        ("kill 1.0", "0.0 0.1 1.1 2.1"),
        ("kill 1.1", "0.0 1.0 2.0 2.1"),
    ],
)
def test_key_routing_takes_another_nearer_neighbour(failure: str, servers: str) -> None:
    torus = topos.parse("torus,5,5")
    ends = torus.server("0.0"), torus.server("2.1")
    (path,) = route(torus, "key", *ends, parse_failures(torus, [failure])).paths
    assert " ".join(map(torus.address, path.servers)) == servers


def test_key_routing_has_no_way_back_from_its_last_dimension() -> None:
    torus = topos.parse("torus,5,5")
    ends = torus.server("0.0"), torus.server("2.0")
    failures = parse_failures(torus, ["cut 0.0-1.0"])
    found = route(torus, "key", *ends, failures)
    assert (found.paths, found.dropped) == ([], "no neighbour of 0.0 that is nearer works")
    assert len(route(torus, "key", *ends, failures, several=True).paths) == 3
    assert route(torus, "shortest", *ends, failures).paths


def test_half_way_round_an_even_ring_both_directions_are_nearer() -> None:
    torus = topos.parse("torus,4,4")
    failures = parse_failures(torus, ["cut 0.0-1.0"])
    (path,) = route(torus, "key", torus.server("0.0"), torus.server("2.0"), failures).paths
    assert [torus.address(server) for server in path.servers] == ["0.0", "3.0", "2.0"]


def test_routers_go_the_way_that_is_computed_around_a_dead_server() -> None:
    torus = topos.parse("torus,5,3")
    net = MemoryNetwork(torus, lambda t, server: KeyRouting(t, server, timers=FAST))
    dead = torus.server("1.1")
    net.kill(dead)
    net.run(2 * FAST.neighbour_timeout_s)
    pairs = [pair for pair in every_pair(torus) if dead not in pair]
    trips = [net.send_udp(*pair) for pair in pairs]
    net.run(0.5)
    computed = [route(torus, "key", *pair, net.failures).paths for pair in pairs]
    assert [trip.path.servers if trip.arrived_s else () for trip in trips] == [
        paths[0].servers if paths else () for paths in computed
    ]
    assert 0 < sum(not paths for paths in computed) < 20


def test_labs_use_the_routing_that_goes_around_failures() -> None:
    assert usual_routing(topos.parse("torus,3,3")) == "shortest"
