"""A network whose wiring is a graph from a file: ``net.graphml`` or ``net.json``.

Other networks compute their wiring; this network stores it in tables. Nodes of the file whose
attribute `kind` or `type` is "switch" are switches, all others are servers, numbered in the file's
order. A node's port p is its p-th cable in the file. Servers with several ports relay packets.

The spec is the file's absolute path and a digest of its content, so that other processes, and
other machines with a copy of the file, read the same network or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from topos.base.diameter import MOST_SEARCHED, diameter
from topos.base.errors import require
from topos.base.graph_file import GraphFile, NamedFile, read_graph
from topos.base.layout import Layout, circle, grid_layout
from topos.base.polymorphic import NOTHING, Number
from topos.base.topology import Bound, Plug, Topology

MOST_PORTS = 256  # maximum number of ports of a node: a MAC address has one octet for the port
MOST_NODES = 100_000  # maximum number of nodes: the tables of the wiring are stored
LONGEST_LABEL = 12  # maximum number of characters of a name that a drawing shows
_NO_CABLE = Plug(NOTHING, 0, 0)


class Graph(Topology):
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
        self.cables = len(file.edges)
        self._plugs = self._wired_plugs()
        self._check_connected()
        self.ports = max(map(len, self._plugs[: self.servers]))
        self.switch_ports = max(map(len, self._plugs[self.servers :]), default=0)
        self.switches_interconnect = any(
            plug.node >= self.servers for plugs in self._plugs[self.servers :] for plug in plugs
        )

    def _wired_plugs(self) -> list[list[Plug]]:
        """Return the far ends of all ports by node; cables get ports in the file's order."""
        numbers = {name: number for number, name in enumerate(self.names)}
        plugs: list[list[Plug]] = [[] for _ in self.names]
        for edge in self.file.edges:
            a, b = numbers[edge.a], numbers[edge.b]
            ports = len(plugs[a]), len(plugs[b])
            plugs[a].append(Plug(b, ports[1], edge.level))
            plugs[b].append(Plug(a, ports[0], edge.level))
        for name, cabled in zip(self.names, plugs, strict=True):
            require(
                len(cabled) <= MOST_PORTS,
                f"{self.file.path}: node {name!r} has {len(cabled)} cables, and a node has at most "
                f"{MOST_PORTS} ports: divide it into several nodes",
            )
        return plugs

    def _check_connected(self) -> None:
        """Raise PillarboxError if cables do not connect all nodes."""
        reached = {0}
        for node in (queue := [0]):
            new = [plug.node for plug in self._plugs[node] if plug.node not in reached]
            reached.update(new)
            queue += new
        apart = next((node for node in range(len(self.names)) if node not in reached), None)
        require(
            apart is None,
            f"{self.file.path} is not connected: no path joins {self.names[0]!r} and "
            f"{self.names[apart or 0]!r}; add cables, or write the largest component only",
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
        return self._plug_at(server, port)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the far end of the cable at a switch's port, from the table."""
        return self._plug_at(switch + self.servers, port)

    def _plug_at(self, node: Any, port: int) -> Plug:
        if isinstance(node, int):
            plugs = self._plugs[node]
            return plugs[port] if port < len(plugs) else _NO_CABLE
        far, far_port, level = self._arrays[:, node, port]
        return Plug(far, far_port, level)

    @cached_property
    def _arrays(self) -> Any:
        """Far ends of all ports as one numpy array: [node, port or level][node][port]."""
        import numpy

        columns = max(self.ports, self.switch_ports)
        table = numpy.zeros((3, len(self.names), columns), numpy.int64)
        table[0] = NOTHING
        for node, plugs in enumerate(self._plugs):
            table[:, node, : len(plugs)] = numpy.array(plugs).T
        return table

    # -- names -------------------------------------------------------------------------------------

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return a graph server's address, which is its number."""
        return (server,)

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the server with this number."""
        return digits[0]

    def radices(self) -> tuple[int, ...]:
        """Return the number of servers: an address is one number."""
        return (self.servers,)

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
