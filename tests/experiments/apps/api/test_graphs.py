"""networkx graphs as networks, and networks as networkx graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import pytest

import pillarbox
from pillarbox import topos
from pillarbox.experiments.apps.api.graphs import graph_file_text
from pillarbox.topos.base.errors import PillarboxError


def written(graph: Any, folder: Path) -> topos.Topology:
    file = folder / "graph.json"
    file.write_text(graph_file_text(graph))
    return topos.parse(str(file))


@pytest.mark.parametrize("spec", ["bcube,4,1", "dcell,2,2", "fattree,4,rates=1:2:4"])
def test_a_network_is_the_same_after_two_conversions(spec: str, tmp_path: Path) -> None:
    topology = topos.parse(spec)
    graph = pillarbox.graph(spec)
    assert graph.nodes["h0"] == {
        "kind": "server",
        "address": topology.address(0),
        "ipv4": topology.ip(0),
    }
    again = written(graph, tmp_path)
    name = topology.node_name
    for one, other in zip(again.links(), topology.links(), strict=True):
        assert {again.node_name(one.a), again.node_name(one.b)} == {name(other.a), name(other.b)}
        assert one.level == other.level


def test_names_of_nodes_are_of_any_type(tmp_path: Path) -> None:
    network = written(networkx.grid_2d_graph(2, 3), tmp_path)
    assert network.names == ("(0, 0)", "(0, 1)", "(0, 2)", "(1, 0)", "(1, 1)", "(1, 2)")
    assert written(networkx.Graph([(frozenset({1}), Path("b"))]), tmp_path).servers == 2


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (networkx.DiGraph([(0, 1)]), "is a directed graph"),
        (networkx.MultiGraph([(0, 1), (0, 1)]), "has parallel cables"),
        (networkx.Graph([(0, 0)]), "cable"),
        (5, "a network is a text such as 'bcube,4,1' or a networkx graph, not a int"),
    ],
)
def test_objects_that_are_no_network_are_refused(graph: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(PillarboxError, match=reason):
        written(graph, tmp_path)


@pytest.mark.root
def test_a_graph_is_a_running_lab() -> None:
    with pillarbox.lab(networkx.path_graph(3)) as lab:
        assert lab.path("0", "2").servers == ["0", "1", "2"]
        file = Path(lab.network)
        assert file.exists()
    del lab
    assert not file.exists()
