"""Full mesh, ring, 2-D torus and hypercube (Guo 2008, Table 3)."""

from __future__ import annotations

import math

from topos.base.polymorphic import NOTHING, Number, select
from topos.structures.base import Claim, Structure, check_numbers


class FullMesh(Structure):
    """Every two nodes joined.

    >>> FullMesh(4).edge_count, FullMesh(4).bisection()
    (6, 4)
    """

    title = "full mesh"
    parameters = ("nodes",)
    example = "fullmesh,64"

    def __init__(self, nodes: int) -> None:
        check_numbers(self.title, nodes=(nodes, 2))
        self.nodes = nodes
        self.degree = self.slots = nodes - 1
        self.edge_count = math.comb(nodes, 2)
        self.check_size()

    def link(self, node: Number, slot: int) -> Number:
        """A node owns its edges to all nodes of higher number."""
        far = node + slot + 1
        return select(far < self.nodes, far, NOTHING)  # type: ignore[no-any-return]

    def diameter(self) -> int:
        """One edge."""
        return 1

    def bisection(self) -> int:
        """Each node of one half has an edge to each of the other."""
        return (self.nodes // 2) * ((self.nodes + 1) // 2)

    def bottleneck(self) -> float:
        """An edge serves its own two ends."""
        return 1.0

    def degree_claim(self) -> Claim:
        """``N - 1``."""
        return Claim(self.nodes - 1, "N - 1")

    def diameter_claim(self) -> Claim:
        """``1``."""
        return Claim(1, "1")

    def bisection_claim(self) -> Claim:
        """``N^2 / 4``."""
        return Claim(self.nodes**2 / 4, "N^2 / 4")

    def bottleneck_claim(self) -> Claim:
        """``1``."""
        return Claim(1, "1")


class Ring(Structure):
    """Nodes in a circle.

    >>> list(Ring(4).edges())
    [(0, 1), (1, 2), (2, 3), (3, 0)]
    """

    title = "ring"
    parameters = ("nodes",)
    example = "ring,64"
    slots = 1
    degree = 2

    def __init__(self, nodes: int) -> None:
        check_numbers(self.title, nodes=(nodes, 3))
        self.nodes = self.edge_count = nodes
        self.check_size()

    def link(self, node: Number, slot: int) -> Number:
        """A node owns the edge to the next."""
        return (node + 1 + slot) % self.nodes

    def diameter(self) -> int:
        """Half way round."""
        return self.nodes // 2

    def bisection(self) -> int:
        """A circle is cut at two places."""
        return 2

    def bottleneck(self) -> float:
        """The sum of distances over the 2N directed edges."""
        return (self.nodes**2 // 4) / 2

    def degree_claim(self) -> Claim:
        """``2``."""
        return Claim(2, "2")

    def diameter_claim(self) -> Claim:
        """``N / 2``."""
        return Claim(self.nodes / 2, "N / 2")

    def bisection_claim(self) -> Claim:
        """``2``."""
        return Claim(2, "2")

    def bottleneck_claim(self) -> Claim:
        """``N^2 / 8``."""
        return Claim(self.nodes**2 / 8, "N^2 / 8")


class Torus(Structure):
    """A square grid of ``side`` x ``side`` nodes whose rows and columns are rings.

    The diameter in print, sqrt(N) - 1, is one too low for even sides: both coordinates can be
    floor(side / 2) away.

    >>> Torus(8).diameter(), Torus(8).diameter_claim().value
    (8, 7)
    """

    title = "2-D torus"
    parameters = ("side",)
    example = "torus,8"
    slots = 2
    degree = 4

    def __init__(self, side: int) -> None:
        check_numbers(self.title, side=(side, 3))
        self.side = side
        self.nodes = side**2
        self.edge_count = 2 * self.nodes
        self.check_size()

    def link(self, node: Number, slot: int) -> Number:
        """A node owns the edges to its right and below."""
        row, column = node // self.side, node % self.side
        if slot == 0:
            return row * self.side + (column + 1) % self.side
        return (row + 1) % self.side * self.side + column

    def diameter(self) -> int:
        """Half way round in both coordinates."""
        return 2 * (self.side // 2)

    def bisection(self) -> int:
        """Two rings' worth of edges; two more where the middle row must be cut as well."""
        return 2 * self.side + 2 * (self.side % 2)

    def bottleneck(self) -> float:
        """The sum of distances over the 4N directed edges, which are all alike."""
        return self.side * (self.side**2 // 4) / 2

    def degree_claim(self) -> Claim:
        """``4``."""
        return Claim(4, "4")

    def diameter_claim(self) -> Claim:
        """``sqrt(N) - 1``, an approximation."""
        return Claim(self.side - 1, "sqrt(N) - 1")

    def bisection_claim(self) -> Claim:
        """``2 sqrt(N)``."""
        return Claim(2 * self.side, "2 sqrt(N)")

    def bottleneck_claim(self) -> Claim:
        """``N sqrt(N) / 8``."""
        return Claim(self.side**3 / 8, "N sqrt(N) / 8")


class Hypercube(Structure):
    """2^dimension nodes, joined where their numbers differ in one bit.

    >>> Hypercube(6).diameter(), Hypercube(6).bisection()
    (6, 32)
    """

    title = "hypercube"
    parameters = ("dimension",)
    example = "hypercube,6"

    def __init__(self, dimension: int) -> None:
        check_numbers(self.title, dimension=(dimension, 1))
        self.dimension = self.degree = self.slots = dimension
        self.nodes = 2 ** min(dimension, 64)
        self.check_size()
        self.edge_count = dimension * self.nodes // 2

    def link(self, node: Number, slot: int) -> Number:
        """A node owns its edges to the nodes with one more bit."""
        bit = 2**slot
        return select(node // bit % 2 == 0, node + bit, NOTHING)  # type: ignore[no-any-return]

    def diameter(self) -> int:
        """All bits differ."""
        return self.dimension

    def bisection(self) -> int:
        """Cut one dimension."""
        return self.nodes // 2

    def bottleneck(self) -> float:
        """The sum of distances over the directed edges, which are all alike."""
        return self.nodes / 2

    def degree_claim(self) -> Claim:
        """``log2 N``."""
        return Claim(self.dimension, "log2 N")

    def diameter_claim(self) -> Claim:
        """``log2 N``."""
        return Claim(self.dimension, "log2 N")

    def bisection_claim(self) -> Claim:
        """``N / 2``."""
        return Claim(self.nodes / 2, "N / 2")

    def bottleneck_claim(self) -> Claim:
        """``N / 2``."""
        return Claim(self.nodes / 2, "N / 2")
