"""Exported networks, read back by each format's own reader or by one made from its description."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import networkx
import pytest
import yaml

from pillarbox import topos
from pillarbox.experiments.models import export
from pillarbox.experiments.models.export import Dimension, dimensions, format_of, network_file
from pillarbox.topos.base.errors import PillarboxError, UnsupportedError
from pillarbox.topos.base.graph import graph_network
from pillarbox.topos.base.graph_file import NamedFile

SPECS = ["bcube,4,1", "dcell,2,2", "dpillar,4,2", "ficonn,4,1", "tree,4,4", "fattree,4"]


def written(spec: str, file: Path, name: str | None = None) -> Path:
    file.write_text(network_file(topos.parse(spec), format_of(file, name)))
    return file


def wiring(topology: topos.Topology) -> Counter[tuple[str, str, int]]:
    """Return every cable by the names of its ends and its level."""
    name = topology.node_name
    return Counter((name(cable.a), name(cable.b), cable.level) for cable in topology.links())


def read_dot(text: str) -> networkx.Graph:  # type: ignore[type-arg]
    """Read the subset of the DOT language that is written: attributes are quoted strings."""
    graph = networkx.Graph()
    quoted = r'"(?:[^"\\]|\\.)*"'
    head, *statements, end = text.splitlines()
    assert re.fullmatch(rf"graph {quoted} {{", head)
    assert end == "}"
    for statement in statements:
        shape = rf"  (\w+)(?: -- (\w+))? \[((?:\w+={quoted}(?:, )?)*)\];"
        found = re.fullmatch(shape, statement)
        assert found, statement
        attributes = {
            key: re.sub(r"\\(.)", r"\1", value[1:-1])
            for key, value in re.findall(rf"(\w+)=({quoted})", found[3])
        }
        if found[2]:
            graph.add_edge(found[1], found[2], **attributes)
        else:
            graph.add_node(found[1], **attributes)
    return graph


READERS: dict[str, Any] = {
    "net.graphml": networkx.read_graphml,
    "net.json": lambda file: networkx.node_link_graph(json.loads(file.read_text()), edges="edges"),
    "net.dot": lambda file: read_dot(file.read_text()),
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", READERS)
def test_graph_formats_carry_nodes_cables_levels_and_addresses(
    spec: str, name: str, tmp_path: Path
):
    topology = topos.parse(spec)
    graph = READERS[name](written(spec, tmp_path / name))
    assert not graph.is_directed()
    assert list(graph) == [topology.node_name(node) for node in range(topology.nodes)]
    ends = Counter(
        (*sorted((a, b), key=topology.node), int(level))
        for a, b, level in graph.edges.data("level")
    )
    assert ends == wiring(topology)
    for server in range(topology.servers):
        known = {"address": topology.address(server), "ipv4": topology.ip(server)}
        assert graph.nodes[topology.node_name(server)] == {"kind": "server", **known}
    for switch in range(topology.switches):
        attributes = graph.nodes[f"s{switch}"]
        assert attributes == {"kind": "switch", "label": topology.switch_label(switch)}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("suffix", [".graphml", ".json", ".dot"])
def test_an_exported_network_read_again_has_the_same_numbers(
    spec: str, suffix: str, tmp_path: Path
):
    topology = topos.parse(spec)
    again = topos.parse(str(written(spec, tmp_path / f"net{suffix}")))
    assert (again.servers, again.switches, again.cables, again.ports, again.switch_ports) == (
        topology.servers,
        topology.switches,
        topology.cables,
        topology.ports,
        topology.switch_ports,
    )
    assert wiring(again) == wiring(topology)


def test_names_that_are_markup_survive(tmp_path: Path):
    strange = 'a<b>&"c"\\\'$x$'
    graph = networkx.Graph([(0, strange), (1, strange)])
    graph.nodes[strange]["kind"] = "switch"
    networkx.write_graphml(graph, tmp_path / "in.graphml")
    network = graph_network(NamedFile(str(tmp_path / "in.graphml"), ""))
    for name, reader in READERS.items():
        (tmp_path / name).write_text(network_file(network, format_of(Path(name), None)))
        assert reader(tmp_path / name).nodes["s0"]["label"] == strange


@pytest.mark.parametrize("spec", SPECS)
def test_ns3_reader_finds_every_cable(spec: str, tmp_path: Path):
    """ns-3's InetTopologyReader: counts, a skipped line for each node, `from to weight`."""
    topology = topos.parse(spec)
    lines = written(spec, tmp_path / "net.inet").read_text().splitlines()
    nodes, links = map(int, lines[0].split())
    assert nodes == topology.nodes
    assert [int(line.split()[0]) for line in lines[1 : 1 + nodes]] == list(range(nodes))
    cables = [tuple(map(int, line.split())) for line in lines[1 + nodes :]]
    assert len(cables) == links == topology.cables
    assert cables == [(cable.a, cable.b, 1) for cable in topology.links()]


def read_htsim(text: str) -> tuple[dict[str, int], list[dict[str, int]]]:
    """Read a .topo file as FatTreeTopology::load does: a header, then the tiers' settings."""
    header: dict[str, int] = {}
    tiers: list[dict[str, int]] = []
    for line in text.splitlines():
        words = line.split(" ")
        if words == [""] or words[0][0] == "#":
            continue
        if words[0].lower() == "tier":
            assert int(words[1]) == len(tiers)
            tiers.append({})
            continue
        values = tiers[-1] if tiers else header
        assert words[0].lower() not in values
        values[words[0].lower()] = int(words[1])
    return header, tiers


@pytest.mark.parametrize(
    ("spec", "counts"),
    [("fattree,4", [8, 8, 4]), ("fattree,6", [18, 18, 9]), ("fattree,4,levels=2", [4, 2])],
)
def test_htsim_builds_the_same_switches(spec: str, counts: list[int], tmp_path: Path):
    """The counts follow from the radices and the pods as FatTreeTopology computes them."""
    topology = topos.parse(spec)
    header, tiers = read_htsim(written(spec, tmp_path / "net.topo").read_text())
    nodes = header["nodes"]
    assert nodes == topology.servers
    assert nodes % header["podsize"] == header["podsize"] % tiers[0]["radix_down"] == 0
    assert header["tiers"] == len(tiers) == len(counts)
    found, links = [], nodes
    for tier in tiers:
        assert tier["downlink_speed_gbps"] > 0 < tier["downlink_latency_ns"]
        assert links % tier["radix_down"] == 0
        found.append(links // tier["radix_down"])
        links = found[-1] * tier.get("radix_up", 0)
    assert found == counts
    assert sum(found) == topology.switches
    assert links == 0  # the top tier has no uplinks


@pytest.mark.parametrize("spec", ["bcube,4,1", "tree,4,4", "fattree,4,levels=5"])
def test_htsim_refuses_other_networks(spec: str):
    with pytest.raises(UnsupportedError, match="htsim's format describes fat-trees"):
        network_file(topos.parse(spec), "htsim")


def test_astra_sim_reads_the_dimensions():
    """The keys and checks of NetworkParser: lists of one length, sizes above 1."""
    found = yaml.safe_load(network_file(topos.parse("bcube,3,2"), "astra-sim"))
    assert set(found) == {"topology", "npus_count", "bandwidth", "latency"}
    assert found["topology"] == ["Switch"] * 3
    assert found["npus_count"] == [3, 3, 3]
    assert all(value > 0 for value in (*found["bandwidth"], *found["latency"]))
    assert len(found["bandwidth"]) == len(found["latency"]) == 3


@pytest.mark.parametrize("spec", ["dcell,4,1", "fattree,4", "tree,4,4", "dpillar,4,2"])
def test_astra_sim_refuses_other_networks(spec: str):
    with pytest.raises(UnsupportedError, match="is a product of switches, rings and full meshes"):
        network_file(topos.parse(spec), "astra-sim")


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        (networkx.cycle_graph(5), [Dimension("Ring", 5, 0)]),
        (networkx.complete_graph(5), [Dimension("FullyConnected", 5, 0)]),
        (networkx.path_graph(5), None),
        (networkx.circulant_graph(8, [1, 3]), None),
    ],
)
def test_dimensions_are_found_in_the_wiring(graph: Any, wanted: Any, tmp_path: Path):
    networkx.write_graphml(graph, tmp_path / "net.graphml")
    assert dimensions(topos.parse(str(tmp_path / "net.graphml"))) == wanted


@pytest.mark.parametrize("spec", SPECS)
def test_containerlab_reads_nodes_and_links(spec: str, tmp_path: Path):
    """The keys of containerlab's topology definition; endpoints are `node:interface`."""
    topology = topos.parse(spec)
    found = yaml.safe_load(written(spec, tmp_path / "net.clab.yml").read_text())
    assert set(found) == {"name", "topology"}
    assert re.fullmatch(r"[a-z0-9-]+", found["name"])
    lab = found["topology"]
    assert set(lab) == {"defaults", "nodes", "links"}
    assert lab["defaults"] == {"kind": "linux", "image": export.IMAGE}
    assert list(lab["nodes"]) == [topology.node_name(node) for node in range(topology.nodes)]
    for node in lab["nodes"].values():
        assert set(node) == {"labels"}
        assert all(isinstance(value, str) for value in node["labels"].values())
    assert all(set(link) == {"endpoints"} for link in lab["links"])
    ends = [end for link in lab["links"] for end in link["endpoints"]]
    assert len(set(ends)) == len(ends) == 2 * topology.cables
    for link, cable in zip(lab["links"], topology.links(), strict=True):
        assert link["endpoints"] == [
            f"{topology.node_name(cable.a)}:eth{cable.a_port + 1}",
            f"{topology.node_name(cable.b)}:eth{cable.b_port + 1}",
        ]


def test_a_suffix_without_a_format_is_refused():
    with pytest.raises(PillarboxError, match="add --format with one of graphml, json"):
        format_of(Path("net.yml"), None)


def test_networks_above_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(export, "MOST_CABLES", 31)
    with pytest.raises(PillarboxError, match="has 32 cables; the maximum for an export is 31"):
        network_file(topos.parse("bcube,4,1"), "dot")


def test_levels_keep_their_relative_rates() -> None:
    rail = topos.parse("rail,8,4,rates=9:1")
    assert "bandwidth: [ 112.5, 12.5 ]" in network_file(rail, "astra-sim")
    edges = json.loads(network_file(rail, "json"))["edges"]
    assert {(edge["level"], edge["rate"]) for edge in edges} == {(0, 9), (1, 1)}
    assert "rate" not in json.loads(network_file(topos.parse("rail,8,4"), "json"))["edges"][0]
    tiers = network_file(topos.parse("fattree,4,rates=1:2:4"), "htsim")
    assert [line.split()[-1] for line in tiers.splitlines() if "speed" in line] == [
        "100",
        "200",
        "400",
    ]
