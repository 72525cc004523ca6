"""A network whose wiring is a graph from a file: ``net.graphml``, ``net.json`` or ``net.dot``.

Other networks compute their wiring; this network stores it in tables. Nodes of the file whose
attribute `kind` or `type` is "switch" are switches, all others are servers, numbered in the file's
order. A node's port p is its p-th cable in the file. Servers with several ports relay packets.

The spec is the file's absolute path and a digest of its content, so that other processes, and
other machines with a copy of the file, read the same network or none.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

from pillarbox.topos.base.addressing import NumberedServers
from pillarbox.topos.base.diameter import MOST_SEARCHED, diameter
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.graph_file import GraphFile, NamedFile, read_graph
from pillarbox.topos.base.layout import Layout, circle, grid_layout
from pillarbox.topos.base.polymorphic import Number
from pillarbox.topos.base.ports import Edge, PortTable
from pillarbox.topos.base.topology import Bound, Plug, Topology

MOST_PORTS = 256  # maximum number of ports of a node: a MAC address has one octet for the port
MOST_NODES = 100_000  # maximum number of nodes: the tables of the wiring are stored
LONGEST_LABEL = 12  # maximum number of characters of a name that a drawing shows


class Graph(NumberedServers, Topology):
    """Network of a graph file's nodes and cables."""

    title = "Graph"

    def __init__(self, file: GraphFile) -> None:
        super().__init__()
        self.file = file
        self.paper = file.path.name
        _check_edges(file)
        names = [node.name for node in file.nodes.values() if not node.switch]
        self.servers = len(names)
        names += [node.name for node in file.nodes.values() if node.switch]
        self.names = tuple(names)  # names of the nodes in the file, by node number
        self.switches = len(names) - self.servers
        require(
            self.servers >= 2,
            f"{file.path} has {self.servers} servers, and a network has 2 or more: a node is a "
            "server unless its attribute kind is switch",
        )
        self._table = PortTable(len(names), self._numbered_edges())
        self.cables = self._table.edges
        self._check_nodes()
        self.ports = self._table.width(slice(self.servers))
        self.switch_ports = self._table.width(slice(self.servers, None))
        self.switches_interconnect = any(
            plug.node >= self.servers
            for switch in range(self.servers, len(names))
            for plug in self._table.plugs(switch)
        )

    def _numbered_edges(self) -> list[Edge]:
        numbers = {name: number for number, name in enumerate(self.names)}
        return [(numbers[edge.a], numbers[edge.b], edge.level) for edge in self.file.edges]

    def _check_nodes(self) -> None:
        """Raise PillarboxError if a node has too many cables, or none that joins it to the rest."""
        for node, name in enumerate(self.names):
            cabled = len(self._table.plugs(node))
            require(
                cabled <= MOST_PORTS,
                f"{self.file.path}: node {name!r} has {cabled} cables, and a node has at most "
                f"{MOST_PORTS} ports: divide it into several nodes",
            )
            require(
                self._table.is_connected(node),
                f"{self.file.path} is not connected: no path joins {self.names[0]!r} and "
                f"{name!r}; add cables, or write the largest component only",
            )

    @cached_property
    def spec(self) -> str:
        """The graph file's absolute path and the digest of its content."""
        return f"{self.file.path}#{self.file.digest}"

    def _with_servers(self, servers: int | None) -> Topology:
        return self

    # -- wiring ------------------------------------------------------------------------------------

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the far end of the cable at a server's port, from the table."""
        return self._table.plug(server, port)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the far end of the cable at a switch's port, from the table."""
        return self._table.plug(switch + self.servers, port)

    # -- names -------------------------------------------------------------------------------------

    def switch_label(self, switch: int) -> str:
        """Return the switch's name in the file."""
        return self.names[self.servers + switch]

    # -- bounds ------------------------------------------------------------------------------------

    def diameter_bound(self) -> Bound:
        """Return the exact diameter, from a search; unknown in large graphs."""
        return self._diameter

    @cached_property
    def _diameter(self) -> Bound:
        if self.servers > MOST_SEARCHED:
            return Bound(None, f"no search above {MOST_SEARCHED} servers", self.paper)
        value = diameter(self)
        return Bound(value, f"{value}", "search from all servers")

    def bisection(self) -> Bound:
        """Return no value: the bisection width of a graph is not computed."""
        return Bound(None, "not known for a graph", self.paper)

    def disjoint_paths(self) -> Bound:
        """Return no value: the pairs of a graph's servers differ."""
        return Bound(None, "not known for a graph", self.paper)

    # -- drawing -----------------------------------------------------------------------------------

    def layout(self) -> Layout:
        """Return a drawing: a circle of servers, or servers in a row below the switches."""
        if self.switches:
            layout = grid_layout(self.servers, self.switches)
        else:
            layout = Layout(dict(enumerate(circle(self.servers, max(self.servers * 0.3, 2.0)))))
        layout.labels = {
            server: name
            for server, name in enumerate(self.names[: self.servers])
            if len(name) <= LONGEST_LABEL
        }
        return layout


def _check_edges(file: GraphFile) -> None:
    """Raise PillarboxError if a cable has an unknown end, or repeats, or joins a node to itself."""
    require(
        len(file.nodes) <= MOST_NODES,
        f"{file.path} has {len(file.nodes)} nodes; the maximum for a graph file is {MOST_NODES}",
    )
    joined = set()
    for edge in file.edges:
        for end in (edge.a, edge.b):
            require(
                end in file.nodes,
                f"{file.path}: a cable ends at the node {end[:100]!r}, which the file does not "
                "define: add the node, or correct the cable",
            )
        require(
            edge.a != edge.b,
            f"{file.path}: node {edge.a!r} has a cable to itself: remove it",
        )
        pair = frozenset((edge.a, edge.b))
        require(
            pair not in joined,
            f"{file.path} has parallel cables between {edge.a!r} and {edge.b!r}: leave one of them",
        )
        joined.add(pair)


def graph_network(named: NamedFile) -> Graph:
    """Return the network of a graph file, or raise PillarboxError.

    A spec with a digest is read once per process: the content that it names never changes.
    """
    return _read(named) if named.digest else Graph(read_graph(named))


@lru_cache(maxsize=8)
def _read(named: NamedFile) -> Graph:
    return Graph(read_graph(named))
