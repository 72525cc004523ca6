"""Live networks from graph files: relaying servers, routing switches, and loops of switches."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import networkx
import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.lab_network import switches_form_loops
from tests.experiments.labs import PLANES, lab_of, wait_until


def with_switches(edges: list[tuple[str, str]]) -> Any:
    """Return a graph whose nodes with names of capital letters are switches."""
    graph = networkx.Graph(edges)
    for name in graph:
        graph.nodes[name]["kind"] = "switch" if name.isupper() else "server"
    return graph


# Two pairs of switches, with relays between them; a and b have a cable to each other.
ISLANDS = [("A", "B"), ("C", "D"), ("a", "A"), ("b", "B"), ("c", "B"), ("c", "C"), ("d", "D")]
RELAYED = [*ISLANDS, ("a", "b"), ("d", "e")]
LOOP = [("A", "B"), ("B", "C"), ("C", "A")]
LEAF_SPINE = [(leaf, spine) for leaf in "ABC" for spine in "XY"]
SERVERS = [("a", "A"), ("b", "A"), ("c", "B"), ("d", "B"), ("e", "C"), ("f", "C")]


def spec_of(graph: Any, folder: Path) -> str:
    networkx.write_graphml(graph, folder / "net.graphml")
    return str(folder / "net.graphml")


@pytest.mark.parametrize(
    ("edges", "loops"),
    [
        (ISLANDS, False),
        ([*ISLANDS, ("C", "E"), ("E", "D")], True),  # fewer such cables than switches
        ([*LEAF_SPINE, *SERVERS], True),
        ([("a", "A"), ("b", "A")], False),
    ],
)
def test_loops_are_found_in_each_fabric_of_switches(
    edges: list[tuple[str, str]], loops: bool, tmp_path: Path
):
    topology = topos.parse(spec_of(with_switches(edges), tmp_path))
    assert switches_form_loops(topology) == loops


def lost_pings(lab: Any) -> int:
    """Return the number of pairs of servers between which a ping is lost."""
    from pillarbox.experiments.runs.control.queries import pingall

    found = pingall(lab)
    assert found["sent"] == lab.topology.servers * (lab.topology.servers - 1)
    return int(found["sent"] - found["received"])


@pytest.mark.few
@pytest.mark.root
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize(
    "graph",
    [networkx.petersen_graph(), with_switches(RELAYED)],
    ids=["servers", "servers and switches"],
)
def test_servers_relay_on_both_planes_and_survive_a_cut(graph: Any, plane: str, tmp_path: Path):
    with lab_of(spec_of(graph, tmp_path), tmp_path, plane=plane) as lab:
        assert not lost_pings(lab)
        cable = next(cable for cable in lab.topology.links() if cable.b < lab.topology.servers)
        lab.cut(cable.a, cable.b)
        wait_until(lambda: not lost_pings(lab), "every pair has a path around the cut")


@pytest.mark.root
def test_switches_route_if_servers_have_one_port(tmp_path: Path):
    spec = spec_of(with_switches([*LEAF_SPINE, *SERVERS]), tmp_path)
    with lab_of(spec, tmp_path) as lab:
        assert not lost_pings(lab)


@pytest.mark.root
def test_a_loop_of_switches_between_relays_carries_no_frame_twice(tmp_path: Path):
    graph = with_switches([*LOOP, ("a", "A"), ("b", "B"), ("a", "b")])
    with lab_of(spec_of(graph, tmp_path), tmp_path) as lab:
        assert not lost_pings(lab)
        with lab.host(0).live_namespace():
            ran = subprocess.run(
                ["ping", "-c", "3", "-i", "0.01", lab.topology.ip(1)],
                capture_output=True,
                text=True,
                timeout=20,
                check=True,
            )
        assert "DUP" not in ran.stdout
