"""Graphs in files: GraphML, DOT, and JSON in the node-link form of networkx.

A file may come from anywhere, so it is read with limits: a regular file of at most `MOST_BYTES`,
XML without a document type (which could define entities that expand without end, or name other
files), names of printable characters. No other file is opened, and no network is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from pillarbox.topos.base.dot_file import parse_dot
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require

SUFFIXES = (".graphml", ".json", ".dot", ".gv")
MOST_BYTES = 64 << 20  # maximum size of a graph file: some 300,000 cables that Pillarbox wrote
LONGEST_NAME = 100  # maximum number of characters of a node's name
# A path, and the file's digest if a program writes the spec.
_SPEC = re.compile(
    r"(?P<path>.+\.(?:graphml|json|dot|gv))(?:#(?P<digest>[0-9a-f]{16}))?", re.DOTALL
)


class NamedFile(NamedTuple):
    """Path of a graph file, and the digest that its content must have; "" permits any content."""

    path: str
    digest: str


class GraphNode(NamedTuple):
    """A node of a graph file: its name, and True if it is a switch."""

    name: str
    switch: bool


class GraphEdge(NamedTuple):
    """A cable of a graph file: the names of its two nodes, and its level."""

    a: str
    b: str
    level: int


@dataclass
class GraphFile:
    """Nodes and cables of a graph file, in the file's order, and the digest of its content."""

    path: Path
    digest: str
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    edges: list[GraphEdge] = field(default_factory=list)

    def add_node(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Add a node; the attribute `kind` or `type` of a switch is "switch"."""
        require(
            bool(name) and len(name) <= LONGEST_NAME and name.isprintable(),
            f"{self.path}: the node {name[:LONGEST_NAME]!r} has an unusable name: write 1 to "
            f"{LONGEST_NAME} printable characters",
        )
        require(name not in self.nodes, f"{self.path} has two nodes {name!r}: rename one of them")
        kinds = (str(attributes.get(key, "")).casefold() for key in ("kind", "type"))
        self.nodes[name] = GraphNode(name, "switch" in kinds)

    def add_edge(self, a: str, b: str, attributes: Mapping[str, Any]) -> None:
        """Add a cable; its attribute `level` is 0 by default."""
        level = str(attributes.get("level", 0))
        require(
            level.isascii() and level.isdecimal() and len(level) < 4 and int(level) < 256,
            f"{self.path}: the cable {a!r} - {b!r} has the level {level[:LONGEST_NAME]!r}: write a "
            "whole number from 0 to 255",
        )
        self.edges.append(GraphEdge(a, b, int(level)))

    def refuse_directed(self) -> None:
        """Raise PillarboxError: cables have no direction."""
        raise PillarboxError(
            f"{self.path} is a directed graph, and cables have no direction: write the undirected "
            "graph (networkx: graph.to_undirected())"
        )


def named_file(spec: str) -> NamedFile | None:
    """Return the graph file that a network's spec names; None if the spec names no graph file.

    >>> named_file("net.graphml"), named_file("bcube,4,1")
    (NamedFile(path='net.graphml', digest=''), None)
    """
    found = _SPEC.fullmatch(spec)
    return NamedFile(found["path"], found["digest"] or "") if found else None


def read_graph(named: NamedFile) -> GraphFile:
    """Return the nodes and cables of a graph file, or raise PillarboxError.

    Raises PillarboxError also if the content has not the digest that the spec names.
    """
    path = Path(named.path).absolute()  # a symbolic link keeps its name, and so its suffix
    require(
        str(path).isprintable(),
        f"the graph file {str(path)!r} has unprintable characters in its path: rename it",
    )
    content = _content(path)
    graph = GraphFile(path, hashlib.sha256(content).hexdigest()[:16])
    require(
        named.digest in ("", graph.digest),
        f"{path} has changed (digest {graph.digest}, not {named.digest}): restore the file, or "
        "start again with the new one",
    )
    readers = {".json": _read_json, ".graphml": _read_graphml}
    readers.get(path.suffix, _read_dot)(graph, content)
    return graph


def _content(path: Path) -> bytes:
    """Return the content of a regular file of limited size, or raise PillarboxError."""
    try:
        # Without O_NONBLOCK, opening a named pipe waits until a process writes to it.
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            require(
                stat.S_ISREG(os.fstat(opened).st_mode), f"{path} is not a file: name a graph file"
            )
            with os.fdopen(opened, "rb", closefd=False) as file:
                content = file.read(MOST_BYTES + 1)
        finally:
            os.close(opened)
    except FileNotFoundError:
        raise UnknownNameError(
            f"there is no graph file {path}: check its name, or copy it to this machine"
        ) from None
    except OSError as error:
        raise PillarboxError(f"{path} cannot be read: {error.strerror}") from None
    require(
        len(content) <= MOST_BYTES,
        f"{path} has more than {MOST_BYTES >> 20} MiB, the maximum of a graph file: write fewer "
        "nodes and attributes",
    )
    return content


# -- DOT -------------------------------------------------------------------------------------------


def _read_dot(graph: GraphFile, content: bytes) -> None:
    """Read the nodes and edges of a DOT file."""
    try:
        found = parse_dot(content.decode())
    except ValueError as error:
        raise PillarboxError(f"{graph.path} is not a DOT graph: {error}") from None
    if found.directed:
        graph.refuse_directed()
    for name, attributes in found.nodes.items():
        graph.add_node(name, attributes)
    for a, b, attributes in found.edges:
        graph.add_edge(a, b, attributes)


# -- JSON ------------------------------------------------------------------------------------------


def _read_json(graph: GraphFile, content: bytes) -> None:
    """Read the node-link form of networkx: lists `nodes`, and `edges` or `links`."""
    try:
        data = json.loads(content)
    # Invalid UTF-8 and numbers of thousands of digits are ValueErrors; deeply nested brackets
    # raise RecursionError.
    except (ValueError, RecursionError) as error:
        raise PillarboxError(f"{graph.path} is not JSON: {error}") from None
    nodes, edges = None, None
    if isinstance(data, dict):
        nodes, edges = data.get("nodes"), data.get("edges", data.get("links"))
    if not (
        isinstance(nodes, list)
        and isinstance(edges, list)
        and all(isinstance(row, dict) for row in (*nodes, *edges))
    ):
        raise PillarboxError(
            f"{graph.path} is not node-link JSON: write it with networkx.node_link_data(graph)"
        )
    if data.get("directed"):
        graph.refuse_directed()
    for row in nodes:
        graph.add_node(_json_name(graph, row.get("id")), row)
    for row in edges:
        graph.add_edge(
            _json_name(graph, row.get("source")), _json_name(graph, row.get("target")), row
        )


def _json_name(graph: GraphFile, name: object, depth: int = 0) -> str:
    """Return a node's name as text; networkx writes a tuple (``(0, 1)``) as a list."""
    if isinstance(name, list) and depth < 3:
        return f"({', '.join(_json_name(graph, part, depth + 1) for part in name)})"
    require(
        isinstance(name, (str, int, float)) and not isinstance(name, bool),
        f"{graph.path}: a node or an end of a cable has no name: write texts or numbers as id, "
        "source and target",
    )
    return str(name)


# -- GraphML ---------------------------------------------------------------------------------------


def _read_graphml(graph: GraphFile, content: bytes) -> None:
    """Read the nodes, edges and their data of a GraphML file with one graph."""
    reader = _GraphmlReader(graph)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    try:
        parser.Parse(content, True)
    except PillarboxError:
        raise
    # An unknown encoding raises LookupError, text that is not in its encoding ValueError.
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise PillarboxError(f"{graph.path} is not XML: {error}") from None
    require(
        reader.graphs == 1,
        f"{graph.path} has {reader.graphs} graphs: write one <graph> in a <graphml>",
    )


class _GraphmlReader:
    """Handlers of an XML parser, which collect a GraphML file's nodes and edges."""

    def __init__(self, graph: GraphFile) -> None:
        self.graph = graph
        self.graphs = 0
        self._depth = 0
        self._names: dict[str, str] = {}  # names of attributes by the id of their <key>
        self._defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}}
        self._key = ("", "")  # id and domain ("node" or "edge") of the open <key>
        self._attributes: dict[str, str] = {}  # XML attributes of the open node or edge
        self._data: dict[str, str] = {}  # values of the open node or edge by attribute name
        self._data_name = ""  # name of the attribute whose text is read
        self._text: list[str] = []

    def doctype(self, *_: object) -> None:
        """Refuse a document type: its entities can expand without end, or name other files."""
        raise PillarboxError(
            f"{self.graph.path} has a <!DOCTYPE>, which a graph file must not have: remove it"
        )

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        """Process an element's beginning."""
        name = tag.rpartition(" ")[2]
        self._depth += 1
        require(
            self._depth > 1 or name == "graphml",
            f"{self.graph.path} is not GraphML: write it with networkx.write_graphml(graph, file)",
        )
        require(
            name not in ("hyperedge", "port"),
            f"{self.graph.path} has a <{name}>, which is not supported: write nodes and edges",
        )
        if name == "graph":
            self.graphs += 1
            self._directed(attributes.get("edgedefault") == "directed")
        elif name == "key":
            self._key = attributes.get("id", ""), attributes.get("for", "all")
            self._names[self._key[0]] = attributes.get("attr.name", self._key[0])
        elif name in ("node", "edge"):
            self._directed(attributes.get("directed") == "true")
            self._attributes, self._data = attributes, dict(self._defaults[name])
        elif name == "data":
            key = attributes.get("key", "")
            self._data_name = self._names.get(key, key)
        if name in ("data", "default"):
            self._text = []

    def end(self, tag: str) -> None:
        """Process an element's end."""
        name = tag.rpartition(" ")[2]
        self._depth -= 1
        if name == "data":
            self._data[self._data_name] = "".join(self._text).strip()
        elif name == "default":
            key, domain = self._key
            for each in ("node", "edge") if domain == "all" else (domain,):
                self._defaults.setdefault(each, {})[self._names[key]] = "".join(self._text).strip()
        elif name == "node":
            self.graph.add_node(self._attributes.get("id", ""), self._data)
        elif name == "edge":
            source, target = (self._attributes.get(end, "") for end in ("source", "target"))
            self.graph.add_edge(source, target, self._data)

    def characters(self, text: str) -> None:
        """Collect text between tags."""
        self._text.append(text)

    def _directed(self, directed: bool) -> None:
        if directed:
            self.graph.refuse_directed()
