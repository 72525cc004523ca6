"""Graph structures as networks of servers without switches, for `topo`, `compare` and `simulate`.

Each node of the graph is a server, and each edge a cable. Edges in both directions between two
nodes, as in a de Bruijn graph, are one cable. A structure is asked for by its spec
(``hypercube,6``). Where a network has the structure's name, the network is meant, and the structure
has the prefix ``graph-`` (``graph-torus,8``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from pillarbox.topos.base.addressing import NumberedServers
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.layout import Layout, polar
from pillarbox.topos.base.polymorphic import Number
from pillarbox.topos.base.ports import PortTable
from pillarbox.topos.base.topology import Bound, Plug, Topology, count_text
from pillarbox.topos.structures.base import Structure
from pillarbox.topos.structures.registry import parse, structure_classes
from pillarbox.topos.structures.trees import Tree

PREFIX = "graph-"
MOST_EDGES = 1_000_000  # maximum number of edges of a structure whose ports are stored


class GraphNetwork(NumberedServers, Topology):
    """Network whose servers are the nodes of a structure; cables are its edges.

    >>> cube = GraphNetwork("hypercube", parse("hypercube,3"))
    >>> cube, cube.ports, cube.peers(0, port=2)
    (<hypercube,3: 8 servers, 0 switches>, 3, [4])
    """

    title = "Graph structure"
    paper = "Guo 2008, Table 3; Liao 2012, section 2.6"

    def __init__(self, kind: str, structure: Structure) -> None:
        require(
            not isinstance(structure, Tree),
            f"the inner nodes of a {structure.title} are switches: choose the networks tree or "
            "fattree",
        )
        require(
            structure.edge_count <= MOST_EDGES,
            f"{kind} has {structure.edge_count} edges, more than the {MOST_EDGES} that a network "
            "may have whose ports are stored; choose smaller parameters",
        )
        values = {name: getattr(structure, name) for name in structure.parameters}
        super().__init__(**values)
        self._kind, self.structure = kind, structure
        pairs = dict.fromkeys((min(pair), max(pair)) for pair in structure.edges())
        self._table = PortTable(structure.nodes, ((*pair, 0) for pair in pairs))
        self.servers, self.switches = structure.nodes, 0
        self.cables = self._table.edges
        self.ports, self.switch_ports = self._table.width(), 0
        self.check_size()

    @property
    def kind(self) -> str:
        """Name of the structure, with the prefix ``graph-`` where a network has the same name."""
        return self._kind

    @cached_property
    def spec(self) -> str:
        """The structure's spec, as written on the command line: ``hypercube,6``."""
        return ",".join([self.kind, *map(str, self.parameters.values())])

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the neighbour and its port to which a port of the node is cabled."""
        return self._table.plug(server, port)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Raise PillarboxError: a structure has no switches."""
        raise UnknownNameError(f"{self.spec} has no switches")

    def switch_label(self, switch: int) -> str:
        """Raise PillarboxError: a structure has no switches."""
        raise UnknownNameError(f"{self.spec} has no switches")

    def diameter_bound(self) -> Bound:
        """Return the graph's diameter, an upper bound where the graph's edges are directed."""
        claim, value = self.structure.diameter_claim(), self.structure.diameter()
        return Bound(value, claim.formula if claim.value == value else str(value), claim.source)

    def bisection(self) -> Bound:
        """Return the graph's bisection width, None if no closed form is known."""
        value, claim = self.structure.bisection(), self.structure.bisection_claim()
        if value is None or self.structure.directed:
            return Bound(None, "no closed form", claim.source)
        return Bound(value, claim.formula if claim.value == value else str(value), claim.source)

    def disjoint_paths(self) -> Bound:
        """Return a bound without a value: the papers' tables do not give it."""
        return Bound(None, "not in the paper's table", self.structure.degree_claim().source)

    def description(self) -> str:
        """Return a sentence that describes the structure: servers and ports."""
        title = self.structure.title
        return (
            f"{title[0].upper()}{title[1:]} of {self.servers_text()} without switches: each "
            f"server has up to {count_text(self.ports, 'port')} and relays."
        )

    def layout(self) -> Layout:
        """Return the drawing of the structure: its nodes on a circle."""
        turn = math.tau / self.servers
        radius = max(1.3 / turn, 2.0)
        return Layout(
            {node: polar((0.0, 0.0), radius, node * turn) for node in range(self.servers)},
            level_names=("edges",),
        )


def structure_network(spec: str, networks: Sequence[str]) -> GraphNetwork | None:
    """Return the structure that a spec names as a network, None if it names none.

    `networks` are the names of all networks: the structures of these names need the prefix.

    >>> structure_network("graph-torus,8", ["torus"])
    <graph-torus,8: 64 servers, 0 switches>
    >>> structure_network("torus,8", ["torus"]) is None
    True
    """
    name = spec.partition(",")[0].strip()
    bare = name.removeprefix(PREFIX)
    if bare not in structure_classes() or (bare == name and name in networks):
        return None
    kind = PREFIX + bare if bare in networks else bare
    return GraphNetwork(kind, parse(spec.strip().removeprefix(PREFIX)))
