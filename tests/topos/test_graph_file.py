"""Networks from GraphML, DOT and JSON files: the same graph as networkx's, or one sentence."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.hosts.base.algorithms import SHORTEST, algorithms, route
from pillarbox.topos.base import graph_file
from pillarbox.topos.base.check import problems
from pillarbox.topos.base.dot_file import MOST_DEFAULTS, MOST_ESCAPES, parse_dot
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError
from pillarbox.topos.base.graph import MOST_PORTS, Graph

GraphOf = Any  # networkx.Graph, which has no type parameters at run time


def write(graph: GraphOf, file: Path) -> Path:
    """Write a graph as networkx does."""
    if file.suffix == ".json":
        file.write_text(json.dumps(networkx.node_link_data(graph, edges="edges")))
    elif file.suffix in (".dot", ".gv"):
        file.write_text(dot_text(graph))
    else:
        networkx.write_graphml(graph, file)
    return file


def dot_text(graph: GraphOf) -> str:
    """Return a graph in DOT, with some of the ways to write an attribute."""
    rows = ["strict graph /* comment */ G {"]
    for name, data in graph.nodes(data=True):
        rows.append(f'"{name}" ' + "".join(f'[{key}="{one}"]' for key, one in data.items()))
    for a, b, data in graph.edges(data=True):
        given = "; ".join(f"{key} = {one}" for key, one in data.items())
        rows.append(f'"{a}":n -- "{b}" [{given}]; // cable')
    return "\n".join([*rows, "}"])


def network_of(graph: GraphOf, suffix: str = ".json") -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        found = topos.parse(str(write(graph, Path(folder, f"net{suffix}"))))
    assert isinstance(found, Graph)
    return found


def graph_of(network: topos.Topology) -> GraphOf:
    graph = networkx.Graph()
    for node in range(network.nodes):
        graph.add_node(node, kind="switch" if node >= network.servers else "server")
    graph.add_edges_from((cable.a, cable.b, {"level": cable.level}) for cable in network.links())
    return graph


@st.composite
def graphs(draw: st.DrawFn) -> GraphOf:
    """Draw a connected graph of at least two servers, and of switches."""
    nodes = draw(st.integers(2, 14))
    graph = networkx.Graph()
    switches = draw(st.sets(st.integers(0, nodes - 1), max_size=nodes - 2))
    for node in draw(st.permutations(range(nodes))):
        graph.add_node(f"n{node}", kind="switch" if node in switches else "host")
    level = st.integers(0, 3)
    for node in range(1, nodes):
        graph.add_edge(f"n{node}", f"n{draw(st.integers(0, node - 1))}", level=draw(level))
    ends = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    for a, b in draw(st.lists(ends.filter(lambda pair: pair[0] != pair[1]), max_size=10)):
        graph.add_edge(f"n{a}", f"n{b}", level=draw(level))
    return graph


def same(found: GraphOf, wanted: GraphOf) -> bool:
    return bool(
        networkx.is_isomorphic(
            found,
            wanted,
            node_match=lambda a, b: (a["kind"] == "switch") == (b["kind"] == "switch"),
            edge_match=lambda a, b: a["level"] == b["level"],
        )
    )


@given(graphs(), st.sampled_from(graph_file.SUFFIXES))
def test_network_is_the_graph_of_the_file_and_keeps_the_contract(graph: GraphOf, suffix: str):
    network = network_of(graph, suffix)
    assert same(graph_of(network), graph)
    assert problems(network) == []
    assert set(network.names) == set(graph)


@given(graphs())
def test_shortest_paths_are_as_long_as_networkxs(graph: GraphOf):
    network = network_of(graph)
    hops = networkx.DiGraph()  # a step to a server is one hop; a step to a switch costs nothing
    for a, b in graph.edges:
        hops.add_edge(a, b, weight=int(graph.nodes[b]["kind"] != "switch"))
        hops.add_edge(b, a, weight=int(graph.nodes[a]["kind"] != "switch"))
    lengths = dict(networkx.all_pairs_dijkstra_path_length(hops))
    longest = 0
    for source in range(network.servers):
        for destination in range(network.servers):
            (path,) = route(network, SHORTEST, source, destination).paths
            wanted = lengths[network.names[source]][network.names[destination]]
            assert len(path.steps) == wanted
            longest = max(longest, wanted)
    assert network.diameter_bound().value == longest


def test_a_graph_without_kinds_has_servers_only_that_relay():
    network = network_of(networkx.petersen_graph(), ".graphml")
    assert (network.servers, network.switches, network.ports, network.cables) == (10, 0, 3, 15)
    assert (network.kind, list(algorithms(network))) == ("graph", [SHORTEST])
    assert network.address(9) == "9"
    assert network.server("9") == network.node("h9") == 9


def test_names_of_nodes_are_labels(tmp_path: Path):
    graph = networkx.Graph([("web", "rack 1"), ("db", "rack 1"), ("rack 1", "rack 2")])
    for name in ("rack 1", "rack 2"):
        graph.nodes[name]["type"] = "Switch"
    network = topos.parse(str(write(graph, tmp_path / "named.graphml")))
    assert network.layout().labels == {0: "web", 1: "db"}
    assert [network.switch_label(switch) for switch in (0, 1)] == ["rack 1", "rack 2"]
    assert network.switches_interconnect
    assert not network_of(networkx.path_graph(3)).switches_interconnect


def test_nodes_that_are_tuples_are_read_from_both_formats():
    grid = networkx.grid_2d_graph(3, 3)
    wanted = [f"({a}, {b})" for a, b in grid]
    assert list(network_of(grid).names) == list(network_of(grid, ".graphml").names) == wanted


def test_json_of_earlier_networkx_has_links(tmp_path: Path):
    file = tmp_path / "net.json"
    file.write_text(json.dumps(networkx.node_link_data(networkx.cycle_graph(5), edges="links")))
    assert topos.parse(str(file)).cables == 5


def test_defaults_of_graphml_keys_apply(tmp_path: Path):
    file = tmp_path / "net.graphml"
    file.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        '<key id="k" for="node" attr.name="kind"><default>switch</default></key>'
        '<key id="l" for="edge" attr.name="level"><default>2</default></key><graph>'
        '<node id="a"><data key="k">host</data></node><node id="b"><data key="k">host</data></node>'
        '<node id="s"/><edge source="a" target="s"/>'
        '<edge source="b" target="s"><data key="l">1</data></edge></graph></graphml>'
    )
    network = topos.parse(str(file))
    assert (network.servers, network.switches) == (2, 1)
    assert [cable.level for cable in network.links()] == [2, 1]


DOT = """
# preprocessor line
Graph "a network" {
    graph [label="ignored"]; rankdir = LR
    node [kind=switch] edge [level=2]
    s;
    subgraph cluster_1 {
        node [kind=host] edge [level=1]
        -1.5 -- s:port:n -- "two" + " words";
    }
    { node [kind=host]; b\xe4r [shape=box] }
    b\xe4r -- s -- t
    t -- "q\\"\\\nr" [level="0",]
}
"""


MANY_ATTRIBUTES = " ".join(f"a{number}=1" for number in range(MOST_DEFAULTS + 1))


def test_statements_of_dot(tmp_path: Path):
    (tmp_path / "net.gv").write_text(DOT)
    network = topos.parse(str(tmp_path / "net.gv"))
    assert isinstance(network, Graph)
    assert network.names == ("-1.5", "two words", "b\xe4r", "s", "t", 'q"r')
    assert network.servers == 3
    ends = [
        (network.names[cable.a], network.names[cable.b], cable.level) for cable in network.links()
    ]
    assert sorted(ends) == [
        ("-1.5", "s", 1),
        ("b\xe4r", "s", 2),
        ("s", "t", 2),
        ("t", 'q"r', 0),
        ("two words", "s", 1),
    ]


def test_dot_file_at_its_limits_is_read():
    attributes = " ".join(f"a{number}=1" for number in range(MOST_DEFAULTS))
    found = parse_dot(f'graph {{ edge [{attributes}] "{MOST_ESCAPES * chr(92) * 2}" -- b }}')
    assert len(found.edges[0][2]) == MOST_DEFAULTS


# -- the spec --------------------------------------------------------------------------------------


def test_spec_names_the_same_network_in_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(networkx.cycle_graph(5), tmp_path / "a,b=1 net.json")
    monkeypatch.chdir(tmp_path)
    network = topos.parse("a,b=1 net.json")
    monkeypatch.chdir("/")
    assert topos.parse(network.spec) == network
    assert topos.parse(network.spec).spec == network.spec
    assert pickle.loads(pickle.dumps(network)) == network
    with pytest.raises(PillarboxError, match="neither grows nor shrinks"):
        network.resized(4)


def test_a_changed_or_lost_file_is_not_the_network_of_the_spec(tmp_path: Path):
    file = write(networkx.cycle_graph(5), tmp_path / "net.json")
    spec = topos.parse(str(file)).spec
    write(networkx.cycle_graph(6), file)
    with pytest.raises(PillarboxError, match="has changed"):
        topos.parse(spec)
    file.unlink()
    with pytest.raises(UnknownNameError, match="there is no graph file"):
        topos.parse(spec)


# -- bad input -------------------------------------------------------------------------------------


def digraph(tmp_path: Path) -> Path:
    return write(networkx.DiGraph([(0, 1)]), tmp_path / "net.graphml")


def multigraph(tmp_path: Path) -> Path:
    return write(networkx.MultiGraph([(0, 1), (1, 0)]), tmp_path / "net.graphml")


def graph_file_of(graph: Callable[[], GraphOf]) -> Callable[[Path], Path]:
    return lambda tmp_path: write(graph(), tmp_path / "net.json")


def text(content: str, name: str = "net.graphml") -> Callable[[Path], Path]:
    def written(tmp_path: Path) -> Path:
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return written


def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "net.json")
    return tmp_path / "net.json"


def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.json").mkdir()
    return tmp_path / "net.json"


def star(nodes: int) -> GraphOf:
    return networkx.star_graph(nodes)


def switches_only() -> GraphOf:
    graph = networkx.path_graph(3)
    networkx.set_node_attributes(graph, "switch", "kind")
    return graph


BOMB = (
    '<!DOCTYPE g [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    '<graphml><graph><node id="&b;"/></graph></graphml>'
)
OTHER_FILE = '<!DOCTYPE g [<!ENTITY a SYSTEM "file:///etc/passwd">]><graphml/>'
NODES = '"nodes": [{"id": "a"}, {"id": "b"}]'


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda tmp_path: tmp_path / "none.json", "there is no graph file"),
        (pipe, "is not a file"),
        (folder, "is not a file"),
        (digraph, r"is a directed graph, .* \(networkx: graph\.to_undirected"),
        (graph_file_of(lambda: networkx.DiGraph([(0, 1)])), "is a directed graph"),
        (multigraph, "parallel cables between '0' and '1'"),
        (graph_file_of(lambda: networkx.Graph([(0, 1), (1, 1)])), "'1' has a cable to itself"),
        (graph_file_of(lambda: networkx.Graph([(0, 1), (2, 3)])), "no path joins '0' and '2'"),
        (graph_file_of(switches_only), "has 0 servers"),
        (graph_file_of(networkx.Graph), "has 0 servers"),
        (graph_file_of(lambda: star(MOST_PORTS + 1)), "'0' has 257 cables"),
        (text(BOMB), "has a <!DOCTYPE>"),
        (text(OTHER_FILE), "has a <!DOCTYPE>"),
        (text("<graphml><graph>"), "is not XML: no element found"),
        (text("\0"), "is not XML"),
        (text('<?xml version="1.0" encoding="none"?><graphml/>'), "is not XML: unknown encoding"),
        (text("<svg/>"), "is not GraphML"),
        (text("<graphml/>"), "has 0 graphs"),
        (text("<graphml><graph/><graph/></graphml>"), "has 2 graphs"),
        (text("<graphml><graph><hyperedge/></graph></graphml>"), "has a <hyperedge>"),
        (text('<graphml><graph><node id="a&#10;"/></graph></graphml>'), "has an unusable name"),
        (text("<graphml><graph><node/></graph></graphml>"), "node '' has an unusable name"),
        (text("{", "net.json"), "is not JSON"),
        (text("[" * 100_000, "net.json"), "is not JSON"),
        (text("[1]", "net.json"), "is not node-link JSON"),
        (text('{"nodes": [1], "edges": []}', "net.json"), "is not node-link JSON"),
        (text('{"nodes": [{"id": true}], "edges": []}', "net.json"), "has no name"),
        (text('{"nodes": [{"id": [[[[1]]]]}], "edges": []}', "net.json"), "has no name"),
        (text('{"nodes": [{"id": "1"}, {"id": 1}], "edges": []}', "net.json"), "two nodes '1'"),
        (text('{"nodes": [{"id": "\\u001b[2J"}], "edges": []}', "net.json"), "unusable name"),
        (
            text(f'{{{NODES}, "edges": [{{"source": "a", "target": "c"}}]}}', "net.json"),
            "ends at the node 'c'",
        ),
        (
            text(
                f'{{{NODES}, "edges": [{{"source": "a", "target": "b", "level": -1}}]}}',
                "net.json",
            ),
            "has the level '-1'",
        ),
        (text("digraph { a -> b }", "net.dot"), "is a directed graph"),
        (text("graph {\n a -> b }", "net.dot"), "DOT graph: unexpected '->' in line 2"),
        (text("graph { a -- b", "net.dot"), "DOT graph: unexpected end in line 1"),
        (text("graph { a [k=<b>] }", "net.dot"), "DOT graph: unexpected '<' in line 1"),
        (text("graph { {a b} -- c }", "net.dot"), "DOT graph: unexpected '--' in line 1"),
        (text("graph { a -- {b c} }", "net.dot"), "DOT graph: unexpected '{' in line 1"),
        (text("graph { a -- b } graph {}", "net.dot"), "DOT graph: unexpected 'graph'"),
        (text("graph { a -- node }", "net.dot"), "DOT graph: unexpected 'node'"),
        (text("graph" + 102 * "{", "net.dot"), "more than 100 nested subgraphs"),
        (
            text(f"graph {{ node [{' '.join(f'a{n}=1' for n in range(101))}] }}", "net.dot"),
            "100 def",
        ),
        (text('graph { a [label="' + 10_001 * "\\n" + '"] }', "net.dot"), "unexpected '\"'"),
        (text("graph { a -- b -- a }", "net.dot"), "parallel cables between 'b' and 'a'"),
        (text("{}", "a\nb.json"), "unprintable characters"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    tmp_path: Path, made: Callable[[Path], Path], sentence: str
):
    with pytest.raises(PillarboxError, match=sentence) as found:
        topos.parse(str(made(tmp_path)))
    assert "\n" not in str(found.value)
    assert "\x1b" not in str(found.value)


def test_a_node_of_the_most_ports_is_accepted():
    assert network_of(star(MOST_PORTS)).ports == MOST_PORTS


def test_a_file_above_the_size_limit_is_refused(tmp_path: Path):
    file = tmp_path / "net.json"
    with file.open("wb") as stream:
        stream.truncate(graph_file.MOST_BYTES + 1)
    with pytest.raises(PillarboxError, match="more than 64 MiB"):
        topos.parse(str(file))


@pytest.mark.parametrize("suffix", graph_file.SUFFIXES)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(suffix: str, data: bytes):
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, f"net{suffix}")
        file.write_bytes(data)
        with pytest.raises(PillarboxError):
            topos.parse(str(file))
