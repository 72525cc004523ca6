"""Paths of subflows: disjoint, there and back over the same cables."""

from __future__ import annotations

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import end_of, links_of
from pillarbox.experiments.models.packets.subflow_paths import reversed_routes, subflow_paths
from pillarbox.hosts.base.algorithms import route
from pillarbox.topos.base.errors import PillarboxError

NETWORKS = [
    "bcube,4,1",
    "bcube,3,2",
    "dcell,4,1",
    "dpillar,4,2",
    "ficonn,4,1",
    "mesh,3,3",
    "rail,4,3",
]


@pytest.mark.parametrize("spec", NETWORKS)
def test_subflows_leave_by_different_ports_and_share_no_cable(spec: str) -> None:
    network = topos.parse(spec)
    pairs = [(a, b) for a in range(0, network.servers, 3) for b in range(network.servers) if a != b]
    found = subflow_paths(network, pairs, subflows=network.ports)
    assert found.counts.min() >= 1 and found.counts.max() >= 2
    row = 0
    for (source, destination), count in zip(pairs, found.counts.tolist(), strict=True):
        links = [
            found.routes.links[found.routes.starts[one] : found.routes.starts[one + 1]].tolist()
            for one in range(row, row + count)
        ]
        row += count
        firsts = [end_of(network, of_one[0]) for of_one in links]
        assert {node for node, _ in firsts} == {source}
        assert len(set(firsts)) == count
        # A FiConn server whose backup port is free is reached by one cable.
        common = 1 if spec.startswith("ficonn") else 0
        distinct = len({link for of_one in links for link in of_one})
        assert sum(map(len, links)) - distinct <= common
        lasts = {network.plug(*end_of(network, of_one[-1])).node for of_one in links}
        assert lasts == {destination}
    assert row == found.routes.flows == found.back.flows


@pytest.mark.parametrize("spec", NETWORKS)
def test_acks_return_on_the_same_cables(spec: str) -> None:
    network = topos.parse(spec)
    found = subflow_paths(network, [(0, network.servers - 1), (1, 0)], subflows=9)
    again = reversed_routes(network, found.back)
    assert (again.links == found.routes.links).all()
    assert (again.starts == found.routes.starts).all()
    for one in range(found.routes.flows):
        forth = found.routes.links[found.routes.starts[one] : found.routes.starts[one + 1]]
        back = found.back.links[found.back.starts[one] : found.back.starts[one + 1]]
        for there, here in zip(forth.tolist(), back.tolist()[::-1], strict=True):
            far = network.plug(*end_of(network, there))
            assert (far.node, far.port) == end_of(network, here)


def test_fewer_subflows_than_paths_take_the_first_ports_or_the_shortest_paths() -> None:
    bcube = topos.parse("bcube,3,2")
    neighbour = bcube.server("1.0.0")  # by port 2; the paths by other ports have three hops
    direct = links_of(bcube, route(bcube, "bcube", 0, neighbour).paths[0])
    one = subflow_paths(bcube, [(0, neighbour)], subflows=1, shortest=True)
    assert one.routes.links.tolist() == direct.tolist()
    for shortest, cables in ((True, [2, 6, 6]), (False, [6, 6, 2])):
        for many in (1, 2, 3):
            found = subflow_paths(bcube, [(0, neighbour)], subflows=many, shortest=shortest)
            assert numpy.diff(found.routes.starts).tolist() == cables[:many]
            ports = [
                end_of(bcube, int(first))[1]
                for first in found.routes.links[found.routes.starts[:-1]]
            ]
            assert ports == ([2, 0, 1] if shortest else [0, 1, 2])[:many]


@pytest.mark.parametrize("spec", ["tree,4,2", "fattree,4"])
def test_a_network_with_one_path_has_no_subflows(spec: str) -> None:
    with pytest.raises(PillarboxError, match="have one port: Multipath TCP needs"):
        subflow_paths(topos.parse(spec), [(0, 1)], subflows=2)


def test_a_connection_has_at_least_one_subflow() -> None:
    with pytest.raises(PillarboxError, match="at least 1 subflow, not 0"):
        subflow_paths(topos.parse("bcube,4,1"), [(0, 1)], subflows=0)
