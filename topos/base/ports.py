"""Port table of a graph: the far end of each node's ports, where no arithmetic computes it.

Node a's ports are numbered in the order of the edges that contain a. The table answers for one node
and, as arithmetic does, for a numpy array of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from topos.base.polymorphic import NOTHING

if TYPE_CHECKING:
    from topos.base.polymorphic import IntArray


class PortTable:
    """Far ends of the ports of a graph's nodes, stored for each edge.

    >>> ring = PortTable(3, [(0, 1), (1, 2), (2, 0)])
    >>> ring.width, ring.edges, ring.plug(0, 1), ring.plug(0, 2)
    (2, 3, (2, 1), (-1, 0))
    """

    def __init__(self, nodes: int, edges: Iterable[tuple[int, int]]) -> None:
        self._rows: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
        for a, b in edges:
            near, far = self._rows[a], self._rows[b]
            near.append((b, len(far)))
            far.append((a, len(near) - 1))
        self.width = max(map(len, self._rows), default=0)  # largest number of ports of a node
        self.edges = sum(map(len, self._rows)) // 2

    def plug(self, node: Any, port: int) -> tuple[Any, Any]:
        """Return the far node and its port; NOTHING if the node has no such port."""
        if isinstance(node, int):
            row = self._rows[node]
            return row[port] if port < len(row) else (NOTHING, 0)
        ends = self._ends[node, port]
        return ends[..., 0], ends[..., 1]

    @cached_property
    def _ends(self) -> IntArray:
        """Far node and port by node and port, as an array."""
        import numpy

        found = numpy.zeros((len(self._rows), self.width, 2), numpy.int64)
        found[:, :, 0] = NOTHING
        for node, row in enumerate(self._rows):
            if row:
                found[node, : len(row)] = row
        return found
