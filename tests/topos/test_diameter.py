"""The exact diameter: of networks with all shapes of meeting points, and of one in two parts."""

from __future__ import annotations

import networkx
import pytest

from pillarbox import topos
from pillarbox.topos.base.diameter import diameter
from pillarbox.topos.base.topology import Topology

SPECS = [spec for kind in topos.kinds() for spec in topos.network(kind).examples]


def hops_by_networkx(topology: Topology) -> int:
    graph = networkx.Graph()
    graph.add_nodes_from(range(topology.servers))
    for server in range(topology.servers):
        for port in range(topology.ports):
            graph.add_edges_from((server, peer) for peer in topology.peers(server, port))
    return networkx.diameter(graph)


@pytest.mark.parametrize("spec", SPECS)
def test_it_is_networkx_diameter(spec: str) -> None:
    topology = topos.parse(spec)
    if topology.servers > 1:
        assert diameter(topology) == hops_by_networkx(topology)


def test_servers_without_a_path_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = topos.parse("bcube,2,1")
    cabled = type(topology).neighbours

    def half(self: Topology, node: int) -> object:
        return ((port, plug) for port, plug in cabled(self, node) if plug.level == 0)

    monkeypatch.setattr(type(topology), "neighbours", half)
    assert diameter(topology) is None
