"""Forwarding entries of bridges whose cables form loops, and the ports without broadcasts."""

from itertools import pairwise

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.lab_network import fdb_entries, ports_without_floods
from pillarbox.hosts.base.algorithms import route

SPECS = ["domains,4,2", "domains,3,4", "domains,2,4,spines=1", "domains,3,3,spines=2"]


@pytest.mark.parametrize("spec", SPECS)
def test_entries_are_the_paths_of_the_routing(spec: str) -> None:
    network = topos.parse(spec)
    ports = {(switch, mac): port for switch, port, mac in fdb_entries(network)}
    for a in range(network.servers):
        for b in set(range(network.servers)) - {a}:
            (path,) = route(network, "spread", a, b).paths
            step = path.steps[0]
            for switch, onward in pairwise((*step.via, b)):
                port = ports[switch, network.mac(b, step.port)]
                assert network.plug(switch, port).node == onward


@pytest.mark.parametrize("spec", [*SPECS, "tree,4,4", "fattree,4"])
def test_broadcasts_reach_every_switch_by_one_path(spec: str) -> None:
    network = topos.parse(spec)
    closed = set(ports_without_floods(network))
    between = {
        frozenset((cable.a, cable.b))
        for cable in network.links()
        if cable.a >= network.servers and (cable.a, cable.a_port) not in closed
    }
    for cable in network.links():
        ends = {(cable.a, cable.a_port), (cable.b, cable.b_port)}
        assert not ends & closed or ends <= closed
    joined = {switch: {switch} for switch in range(network.servers, network.nodes)}
    for a, b in map(tuple, between):
        assert joined[a] is not joined[b], "a loop"
        joined[a] |= joined[b]
        for switch in joined[b]:
            joined[switch] = joined[a]
    whole = {frozenset(cables) for cables in _fabrics(network)}
    assert {frozenset(group) for group in joined.values()} == whole


def _fabrics(network: topos.Topology) -> list[set[int]]:
    """Return the sets of switches that cables join."""
    found: list[set[int]] = []
    for switch in range(network.servers, network.nodes):
        if any(switch in fabric for fabric in found):
            continue
        fabric, queue = {switch}, [switch]
        for at in queue:
            for _, plug in network.neighbours(at):
                if plug.node >= network.servers and plug.node not in fabric:
                    fabric.add(plug.node)
                    queue.append(plug.node)
        found.append(fabric)
    return found


def test_switches_of_servers_with_one_port_route_where_cables_form_loops() -> None:
    assert list(fdb_entries(topos.parse("fattree,4"))) == []
    assert list(fdb_entries(topos.parse("tree,4,4"))) != []
