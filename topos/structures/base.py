"""What every tabulated structure answers: its claims in print, and its edges by arithmetic.

A structure numbers its nodes ``0 .. nodes-1`` and stores nothing. It owns each edge once, at one
of its ends: ``link(node, slot)`` is the far end of the edge that `node` owns as number `slot`, or
NOTHING. As in topos.base, the same code answers for one node and for a numpy array of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from topos.base.errors import require
from topos.base.polymorphic import NOTHING, Number

if TYPE_CHECKING:
    from topos.base.polymorphic import IntArray

GUO = "Guo 2008, Table 3"
# Enough to stand beside any network of 2^32 servers, and far from the end of 64-bit numbers.
MOST_NODES = 2**40


class Claim(NamedTuple):
    """A number as a paper prints it: its value here, the formula, and where it stands.

    The value is None where the paper gives only an order, such as O(N log N).
    """

    value: float | None
    formula: str
    source: str = GUO


class Structure(ABC):
    """A row of a paper's table, for one size; its edges follow from arithmetic."""

    title: ClassVar[str] = ""
    # Names of the parameters of __init__, as a spec lists them, and a small instance.
    parameters: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = ""

    # True where an edge carries traffic from its owner to the far end only.
    directed: ClassVar[bool] = False

    nodes: int
    degree: int  # of the node with the most edges (that leave it, where they are directed)
    slots: int  # edges that a node can own
    edge_count: int

    @abstractmethod
    def degree_claim(self) -> Claim:
        """Return the node degree in print."""

    @abstractmethod
    def diameter_claim(self) -> Claim:
        """Return the diameter in print, in edges."""

    @abstractmethod
    def bisection_claim(self) -> Claim:
        """Return the bisection width in print, in edges."""

    @abstractmethod
    def bottleneck_claim(self) -> Claim:
        """Return the most flows over one directed edge when all send to all, in print."""

    def check_size(self) -> None:
        """Refuse what no table could hold."""
        require(
            self.nodes <= MOST_NODES,
            f"a {self.title} of {self.nodes} nodes is beyond the {MOST_NODES} that are "
            "supported; choose smaller parameters",
        )

    @abstractmethod
    def link(self, node: Number, slot: int) -> Number:
        """Return the far end of the edge that the node owns as number `slot`, or NOTHING."""

    @abstractmethod
    def diameter(self) -> int:
        """Return the exact diameter, in edges."""

    def bisection(self) -> int | None:
        """Return the exact bisection width in edges, None where no closed form is known."""
        return None

    def bottleneck(self) -> float | None:
        """Return the exact bottleneck degree on evenly split shortest paths, None if not known."""
        return None

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield every edge once, from its owner (the sender where edges are directed)."""
        for node in range(self.nodes):
            for slot in range(self.slots):
                far = self.link(node, slot)
                if far != NOTHING:
                    yield node, far

    def edge_arrays(self) -> tuple[IntArray, IntArray]:
        """Return every edge once, as arrays of owners and of far ends."""
        import numpy

        owners = numpy.empty(self.edge_count, numpy.int64)
        fars = numpy.empty(self.edge_count, numpy.int64)
        filled = 0
        nodes = numpy.arange(self.nodes)
        for slot in range(self.slots):
            far = numpy.broadcast_to(self.link(nodes, slot), nodes.shape)
            there = far != NOTHING
            end = filled + int(there.sum())
            owners[filled:end], fars[filled:end] = nodes[there], far[there]
            filled = end
        if filled != self.edge_count:
            raise AssertionError(f"{self.title} counts {self.edge_count} edges, has {filled}")
        return owners, fars


def check_numbers(title: str, **least: tuple[int, int]) -> None:
    """Require each parameter (value, least value) to be large enough."""
    for name, (value, minimum) in least.items():
        require(value >= minimum, f"a {title} needs {name} >= {minimum}, not {value}")
