"""Base class of the tabulated structures: published properties, and edges by arithmetic.

A structure numbers its nodes ``0 .. nodes-1`` and stores no edges. One end of each edge is its
owner: ``link(node, slot)`` is the far end of edge number `slot` of its owner `node`, or NOTHING.
As in pillarbox.topos.base, the same code works for one node and for a numpy array of nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.polymorphic import NOTHING, Number

if TYPE_CHECKING:
    from pillarbox.topos.base.polymorphic import IntArray

GUO = "Guo 2008, Table 3"
# Maximum number of nodes of a graph: enough to compare with 2^32 servers, without 64-bit overflow.
MOST_NODES = 2**40


class Claim(NamedTuple):
    """A property of a graph according to a paper: its value, formula and source.

    `value` is None if the paper gives only an order of magnitude, such as O(N log N).
    """

    value: float | None
    formula: str
    source: str = GUO


class Structure(ABC):
    """A graph (mesh, ring, tree, ...) of one size from a paper's comparison table of networks."""

    title: ClassVar[str] = ""
    # Names of the parameters of __init__ in spec order, and the spec of a small instance.
    parameters: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = ""

    # True if the graph is directed: an edge leads from its owner to its far end only.
    directed: ClassVar[bool] = False

    nodes: int
    degree: int  # maximum degree of a node (out-degree if edges are directed)
    slots: int  # maximum number of edges owned by a node
    edge_count: int

    @abstractmethod
    def degree_claim(self) -> Claim:
        """Return the node degree of the graph according to the paper."""

    @abstractmethod
    def diameter_claim(self) -> Claim:
        """Return the diameter of the graph according to the paper, in edges."""

    @abstractmethod
    def bisection_claim(self) -> Claim:
        """Return the bisection width of the graph according to the paper, in edges."""

    @abstractmethod
    def bottleneck_claim(self) -> Claim:
        """Return the paper's maximum number of all-to-all flows on one directed edge."""

    def check_size(self) -> None:
        """Raise PillarboxError if the graph has more than MOST_NODES nodes."""
        require(
            self.nodes <= MOST_NODES,
            f"a {self.title} of {self.nodes} nodes is larger than the {MOST_NODES} that are "
            "supported; choose smaller parameters",
        )

    @abstractmethod
    def link(self, node: Number, slot: int) -> Number:
        """Return the far end of a node's own edge number `slot`, NOTHING if it has none."""

    @abstractmethod
    def diameter(self) -> int:
        """Return the exact diameter of the graph, in edges."""

    def bisection(self) -> int | None:
        """Return the graph's exact bisection width in edges, None if no closed form is known."""
        return None

    def bottleneck(self) -> float | None:
        """Return the exact maximum number of all-to-all flows on one edge, None if unknown.

        Flows are split evenly over shortest paths; the load is that of one directed edge.
        """
        return None

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield every edge once as (owner, far end); directed edges lead from owner to far end."""
        for node in range(self.nodes):
            for slot in range(self.slots):
                far = self.link(node, slot)
                if far != NOTHING:
                    yield node, far

    def edge_arrays(self) -> tuple[IntArray, IntArray]:
        """Return all edges of the graph as two arrays: owners and far ends."""
        import numpy

        owners = numpy.empty(self.edge_count, numpy.int64)
        fars = numpy.empty(self.edge_count, numpy.int64)
        filled = 0
        nodes = numpy.arange(self.nodes)
        for slot in range(self.slots):
            far = numpy.broadcast_to(self.link(nodes, slot), nodes.shape)
            present = far != NOTHING
            end = filled + int(present.sum())
            owners[filled:end], fars[filled:end] = nodes[present], far[present]
            filled = end
        if filled != self.edge_count:
            raise AssertionError(f"{self.title} counts {self.edge_count} edges, has {filled}")
        return owners, fars


def check_minimums(title: str, **least: tuple[int, int]) -> None:
    """Raise PillarboxError if a graph parameter, given as (value, minimum), is too small."""
    for name, (value, minimum) in least.items():
        require(value >= minimum, f"a {title} needs {name} >= {minimum}, not {value}")
