"""Every directed link has one number, and a path's links are its cables in its order."""

import itertools
import random

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    cabled_links,
    end_of,
    link_at,
    link_count,
    links_of,
    name_of,
    routes_of,
    working_links,
)
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.topos.base.errors import PillarboxError

SPECS = ("dpillar,4,2", "dcell,3,2,servers=41", "bcube,4,2,servers=32", "ficonn,4,2", "tree,4,3")
SPECS += ("fattree,4",)


@pytest.mark.parametrize("spec", SPECS)
def test_numbers_are_dense_and_name_the_cabled_ports(spec: str) -> None:
    network = topos.parse(spec)
    seen = {
        link_at(network, node, port): (node, port, plug.node)
        for node in range(network.nodes)
        for port, plug in network.neighbours(node)
    }
    assert sorted(seen) == cabled_links(network).tolist()
    assert len(seen) == 2 * network.cables
    assert max(seen) < link_count(network)
    for link, (node, port, far) in seen.items():
        assert end_of(network, link) == (node, port)
        name = name_of(network, link)
        assert network.plug(network.node(name.from_node), name.port).node == far
        assert network.plug(node, port).node == far


@pytest.mark.parametrize("spec", SPECS)
def test_links_of_a_path_join_its_nodes(spec: str) -> None:
    network = topos.parse(spec)
    pairs = list(itertools.permutations(range(network.servers), 2))
    for algorithm in algorithms(network):
        for source, destination in random.Random(1).sample(pairs, 20):
            for path in route(network, algorithm, source, destination).paths:
                nodes = [source]
                for link in links_of(network, path).tolist():
                    node, port = end_of(network, link)
                    assert node == nodes[-1]
                    nodes.append(network.plug(node, port).node)
                assert nodes == path.nodes(network)


def test_arrays_of_ports_give_arrays_of_links() -> None:
    network = topos.parse("bcube,4,1")
    nodes = numpy.array([0, 15, 16, 23])
    links = [int(link_at(network, node, 1)) for node in nodes.tolist()]
    assert link_at(network, nodes, 1).tolist() == links


def test_a_flow_without_a_path_has_no_links() -> None:
    network = topos.parse("bcube,4,1")
    routes = routes_of(network, [None, route(network, "bcube", 0, 1).paths[0], None])
    assert isinstance(routes, Routes)
    assert routes.starts.tolist() == [0, 0, 2, 2]
    assert routes_of(network, []).flows == 0


def test_failures_take_both_directions() -> None:
    network = topos.parse("dcell,4,1")
    texts = ["stop s1", "cut 0.3-4.0", "cut 0.0-s0", "kill 2.2"]
    works = working_links(network, parse_failures(network, texts))
    broken = {
        name_of(network, link)[:2] for link in cabled_links(network).tolist() if not works[link]
    }
    assert {("0.3", "4.0"), ("4.0", "0.3"), ("0.0", "s0"), ("s0", "0.0")} <= broken
    assert len(broken) == 2 * (4 + 1 + 1 + 2)


def test_what_is_no_cable_is_refused_with_a_sentence() -> None:
    network = topos.parse("bcube,4,1")
    over_a_switch = parse_failures(network, ["cut 0.0-0.1"])
    with pytest.raises(PillarboxError, match=r"no cable between 0\.0 and 0\.1"):
        working_links(network, over_a_switch)
