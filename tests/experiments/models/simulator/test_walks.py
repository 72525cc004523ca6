"""What flows meet on their way is what the routers' own paths would meet."""

from __future__ import annotations

import networkx
import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.simulator.failure_sets import FailedNodes, draw
from pillarbox.experiments.models.simulator.flow_arrays import random_flows
from pillarbox.experiments.models.simulator.hops import BLOCK
from pillarbox.experiments.models.simulator.paths import compiled_routings, lengths
from pillarbox.experiments.models.simulator.walks import (
    disconnected_flows,
    flows_forwarded,
    path_sets,
)
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.path import Path, switches_between

SETS = [
    (spec, name)
    for spec in ("dpillar,4,2", "dpillar,8,2", "dpillar,6,3", "dpillar,4,4")
    for name in ("sp-cw", "mp", "mp-ccw", "mp-both")
]


def meets(network: topos.Topology, broken: FailedNodes, path: Path) -> bool:
    """Tell whether a path has a failed server or switch on it."""
    if broken.servers[path.source]:
        return True
    for server, step in zip(path.servers, path.steps, strict=False):
        switches = [switch - network.servers for switch in switches_between(network, server, step)]
        if broken.servers[step.peer] or broken.switches[switches].any():
            return True
    return False


@pytest.mark.parametrize(("spec", "name"), SETS)
def test_sets_are_those_of_the_routers(spec: str, name: str) -> None:
    network = topos.parse(spec)
    random = numpy.random.default_rng(6)
    broken = draw(network, random, servers=0.2, switches=0.15)
    ends = random_flows(network.servers, 80, random)
    whole, found = path_sets(network, name, *ends), path_sets(network, name, *ends, broken)
    assert (whole.hops == found.hops).all() and (whole.works == (whole.hops > 0)).all()
    lost = 0
    for flow, (source, destination) in enumerate(zip(*(e.tolist() for e in ends), strict=True)):
        paths = route(network, name, source, destination, several="mp" in name).paths
        left = [len(path) for path in paths if not meets(network, broken, path)]
        lost += len(paths) - len(left)
        assert sorted(whole.hops[flow][whole.works[flow]].tolist()) == sorted(map(len, paths))
        assert sorted(found.hops[flow][found.works[flow]].tolist()) == sorted(left)
    assert lost > 0


def test_cables_between_servers_are_passed_too() -> None:
    dcell = topos.parse("dcell,4,1")
    nobody = draw(dcell, numpy.random.default_rng(1))
    only_switch = FailedNodes(nobody.servers, nobody.switches.copy(), nobody.cables)
    only_switch.switches[4] = True  # of DCell 4
    ends = [dcell.server("0.3")] * 2, [dcell.server("4.0"), dcell.server("4.1")]
    found = path_sets(dcell, "dcell", *map(numpy.array, ends), only_switch)
    assert found.hops.tolist() == [[1], [2]]
    assert found.works.tolist() == [[True], [False]]


def test_failed_cables_count_too() -> None:
    dcell = topos.parse("dcell,4,1")
    broken = draw(dcell, numpy.random.default_rng(1))
    cables = dcell.cable_arrays()
    broken.cables[(cables.a == dcell.server("0.3")) & (cables.b == dcell.server("4.0"))] = True
    ends = [numpy.array([dcell.server(one)]) for one in ("0.0", "4.3")]
    whole, found = path_sets(dcell, "dcell", *ends), path_sets(dcell, "dcell", *ends, broken)
    assert whole.works.all() and not found.works.any() and found.hops.tolist() == [[3]]


def test_a_tree_has_no_servers_to_pass() -> None:
    tree = topos.parse("tree,4,5")
    ends = numpy.array([0, 0]), numpy.array([1, 19])
    assert path_sets(tree, "", *ends).hops.tolist() == [[1], [1]]
    assert not flows_forwarded(tree, "", *ends, numpy.zeros(2, int)).any()


@pytest.mark.parametrize(("spec", "name"), [("dpillar,6,3", "mp"), ("bcube,4,2", "parallel")])
def test_forwarded_flows_are_those_of_the_paths(spec: str, name: str) -> None:
    network = topos.parse(spec)
    random = numpy.random.default_rng(2)
    sources, destinations = random_flows(network.servers, 200, random)
    choice = random.integers(0, compiled_routings(network)[name].choices(network), 200)
    found = flows_forwarded(network, name, sources, destinations, choice)
    hops = lengths(network, name, sources, destinations, choice)
    assert found.sum() == (hops - 1).sum()
    alone = [
        flows_forwarded(
            network, name, *(array[i : i + 1] for array in (sources, destinations, choice))
        )
        for i in range(200)
    ]
    assert (sum(alone) == found).all()
    for i in range(200):
        assert alone[i].max(initial=0) <= 1
        assert alone[i][[sources[i], destinations[i]]].sum() == 0


def test_each_of_many_flows_has_its_own_path() -> None:
    network = topos.parse("dpillar,8,2")
    random = numpy.random.default_rng(5)
    sources, destinations = random_flows(network.servers, BLOCK + 500, random)
    choice = random.integers(0, 4, len(sources))
    found = lengths(network, "mp", sources, destinations, choice)
    for number in range(4):
        own = choice == number
        alone = lengths(network, "mp", sources[own], destinations[own], number)
        assert (found[own] == alone).all()


@pytest.mark.parametrize("spec", ["dpillar,4,3", "bcube,2,3", "dcell,3,2"])
def test_what_is_parted_has_no_way(spec: str) -> None:
    network = topos.parse(spec)
    random = numpy.random.default_rng(3)
    broken = draw(network, random, servers=0.1, switches=0.4, cables=0.2)
    graph = networkx.Graph()
    graph.add_nodes_from(range(network.nodes))
    cables = network.cable_arrays()
    graph.add_edges_from(
        (a, b)
        for a, b, failed in zip(
            cables.a.tolist(), cables.b.tolist(), broken.cables.tolist(), strict=True
        )
        if not failed
    )
    dead = numpy.flatnonzero(numpy.concatenate([broken.servers, broken.switches]))
    graph.remove_nodes_from(dead.tolist())
    alive = numpy.flatnonzero(~broken.servers)
    sources, destinations = (alive[i] for i in random_flows(len(alive), 300, random))
    found = disconnected_flows(network, broken, sources, destinations)
    expected = [
        not networkx.has_path(graph, *ends)
        for ends in zip(sources.tolist(), destinations.tolist(), strict=True)
    ]
    assert found.tolist() == expected
    assert 0 < found.sum() < 300
