"""Port table of a graph: the far end of each node's ports, where no arithmetic computes it.

Node a's ports are numbered in the order of the edges that contain a. The table answers for one node
and, as arithmetic does, for a numpy array of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.base.topology import Plug

if TYPE_CHECKING:
    from pillarbox.topos.base.polymorphic import IntArray

Edge = tuple[int, int, int]  # two nodes, and the level of the cable between them
_NO_CABLE = Plug(NOTHING, 0, 0)


class PortTable:
    """Far ends of the ports of a graph's nodes, stored for each edge.

    >>> ring = PortTable(3, [(0, 1, 0), (1, 2, 0), (2, 0, 0)])
    >>> ring.width(), ring.edges, ring.plug(0, 1)
    (2, 3, Plug(node=2, port=1, level=0))
    """

    def __init__(self, nodes: int, edges: Iterable[Edge]) -> None:
        self._rows: list[list[Plug]] = [[] for _ in range(nodes)]
        for a, b, level in edges:
            near, far = self._rows[a], self._rows[b]
            near.append(Plug(b, len(far), level))
            far.append(Plug(a, len(near) - 1, level))
        self.edges = sum(map(len, self._rows)) // 2

    def width(self, nodes: slice = slice(None)) -> int:
        """Return the largest number of ports of the nodes."""
        return max(map(len, self._rows[nodes]), default=0)

    def plugs(self, node: int) -> Sequence[Plug]:
        """Return the far ends of all ports of a node."""
        return self._rows[node]

    def is_connected(self, node: int) -> bool:
        """Return True if cables join a node to node 0."""
        return node in self._component

    @cached_property
    def _component(self) -> set[int]:
        """Nodes that cables join to node 0."""
        reached = {0}
        for node in (queue := [0]):
            new = [plug.node for plug in self._rows[node] if plug.node not in reached]
            reached.update(new)
            queue += new
        return reached

    def plug(self, node: Any, port: int) -> Plug:
        """Return the far end of a port; its node is NOTHING if the node has no such port."""
        if isinstance(node, int):
            row = self._rows[node]
            return row[port] if port < len(row) else _NO_CABLE
        ends = self._ends[node, port]
        return Plug(ends[..., 0], ends[..., 1], ends[..., 2])

    @cached_property
    def _ends(self) -> IntArray:
        """Far node, its port, and the level by node and port, as an array."""
        import numpy

        found = numpy.zeros((len(self._rows), self.width(), 3), numpy.int64)
        found[:, :, 0] = NOTHING
        for node, row in enumerate(self._rows):
            if row:
                found[node, : len(row)] = row
        return found
