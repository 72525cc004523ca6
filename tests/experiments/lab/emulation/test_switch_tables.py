"""Tables of switches that route: packets that follow them take the computed paths."""

from __future__ import annotations

import random

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.switch_tables import Table, adapts, tables
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.topos.base.topology import Topology

FATTREES = ["fattree,4", "fattree,6", "fattree,4,levels=2", "fattree,4,levels=5"]


def ways(topology: Topology, found: list[Table], source: int, destination: int) -> set[tuple]:
    """Return all ways, as nodes passed, that the tables allow."""
    first = topology.server_plug(source, 0).node
    complete, pending = set(), [(source, first)]
    while pending:
        way = pending.pop()
        if way[-1] == destination:
            complete.add(way)
            continue
        assert way[-1] >= topology.servers, f"{way} leads to a wrong server"
        assert len(way) < 2 * topology.switches, f"{way} goes in circles"
        switch = way[-1] - topology.servers
        ports = found[switch].get(destination, ())
        pending += [(*way, topology.switch_plug(switch, port).node) for port in ports]
    return complete


def pairs(topology: Topology, most: int = 300) -> list[tuple[int, int]]:
    every = [(a, b) for a in range(topology.servers) for b in range(topology.servers) if a != b]
    return random.Random(1).sample(every, min(most, len(every)))


@pytest.mark.parametrize(
    ("spec", "routing"),
    [*[(spec, "two-level") for spec in FATTREES], ("tree,3,4", "bridge"), ("tree,3,1", "bridge")],
)
def test_one_way_is_the_computed_path(spec: str, routing: str) -> None:
    topology = topos.parse(spec)
    found = tables(topology, routing)
    assert not adapts(topology, routing)
    for source, destination in pairs(topology):
        (path,) = route(topology, routing, source, destination).paths
        assert ways(topology, found, source, destination) == {tuple(path.nodes(topology))}


def all_computed(topology: Topology, source: int, destination: int, failures: Failures) -> set:
    """Return the nodes of each hashed way that works, by asking for many flows' paths."""
    from pillarbox.hosts.fattree import hashed_path

    paths = [hashed_path(topology, source, destination, flow) for flow in range(99)]
    return {tuple(path.nodes(topology)) for path in paths if not failures.first_on(topology, path)}


@pytest.mark.parametrize("spec", ["fattree,4", "fattree,6", "fattree,4,levels=2"])
def test_equal_cost_ways_are_all_the_hashed_paths_that_work(spec: str) -> None:
    topology = topos.parse(spec)
    draw = random.Random(7)
    cables = [frozenset((c.a, c.b)) for c in topology.links()]
    switches = range(topology.servers, topology.nodes)
    some = Failures(frozenset(draw.sample(switches, 2)), frozenset(draw.sample(cables, 6)))
    for failures in (NONE, some):
        found = tables(topology, "hashed", failures)
        for source, destination in pairs(topology, 60):
            reachable = ways(topology, found, source, destination)
            first = topology.server_plug(source, 0).node
            if first in failures.nodes or {source, first} in failures.links:
                continue  # what a switch without power has in its table does not matter
            assert reachable == all_computed(topology, source, destination, failures)


def test_with_every_failure_known_longer_ways_are_taken() -> None:
    topology = topos.parse("fattree,4")
    # One edge switch has lost its first cable up, another pod's its second: no five switches join.
    failures = Failures(links=frozenset({frozenset((16, 24)), frozenset((18, 27))}))
    assert route(topology, "hashed", 0, 4, failures).paths == []
    assert ways(topology, tables(topology, "hashed", failures), 0, 4) == set()
    longer = ways(topology, tables(topology, "shortest", failures), 0, 4)
    assert longer and {len(way) for way in longer} == {9}


@pytest.mark.parametrize("spec", [*FATTREES, "fattree,16", "tree,3,4"])
def test_no_two_switches_or_servers_have_one_address(spec: str) -> None:
    topology = topos.parse(spec)
    addresses = [topology.ipv4(server) for server in range(topology.servers)]
    addresses += [topology.switch_ipv4(switch) for switch in range(topology.switches)]
    assert len(set(addresses)) == topology.nodes
