"""Full mesh, ring, 2-D torus and hypercube (Guo 2008, Table 3)."""

from __future__ import annotations

import math

from pillarbox.topos.base.polymorphic import NOTHING, Number, select
from pillarbox.topos.structures.base import Claim, Structure, check_minimums


class FullMesh(Structure):
    """Full mesh: an edge between every two nodes.

    >>> FullMesh(4).edge_count, FullMesh(4).bisection()
    (6, 4)
    """

    title = "full mesh"
    parameters = ("nodes",)
    example = "fullmesh,64"

    def __init__(self, nodes: int) -> None:
        check_minimums(self.title, nodes=(nodes, 2))
        self.nodes = nodes
        self.degree = self.slots = nodes - 1
        self.edge_count = math.comb(nodes, 2)
        self.check_size()

    def link(self, node: Number, slot: int) -> Number:
        """Return the far end of a full mesh edge: each node owns its edges to higher numbers."""
        far = node + slot + 1
        return select(far < self.nodes, far, NOTHING)  # type: ignore[no-any-return]

    def diameter(self) -> int:
        """Return the full mesh's diameter: one edge."""
        return 1

    def bisection(self) -> int:
        """Return the full mesh's bisection width: all edges between two halves of the nodes."""
        return (self.nodes // 2) * ((self.nodes + 1) // 2)

    def bottleneck(self) -> float:
        """Return the full mesh's bottleneck degree, 1: an edge carries only its ends' flow."""
        return 1.0

    def degree_claim(self) -> Claim:
        """Return the full mesh's published node degree: ``N - 1``."""
        return Claim(self.nodes - 1, "N - 1")

    def diameter_claim(self) -> Claim:
        """Return the full mesh's published diameter: 1."""
        return Claim(1, "1")

    def bisection_claim(self) -> Claim:
        """Return the full mesh's published bisection width: ``N^2 / 4``."""
        return Claim(self.nodes**2 / 4, "N^2 / 4")

    def bottleneck_claim(self) -> Claim:
        """Return the full mesh's published bottleneck degree: 1."""
        return Claim(1, "1")


class Ring(Structure):
    """Ring: an edge from each node to the next, and from the last to the first.

    >>> list(Ring(4).edges())
    [(0, 1), (1, 2), (2, 3), (3, 0)]
    """

    title = "ring"
    parameters = ("nodes",)
    example = "ring,64"
    slots = 1
    degree = 2

    def __init__(self, nodes: int) -> None:
        check_minimums(self.title, nodes=(nodes, 3))
        self.nodes = self.edge_count = nodes
        self.check_size()

    def link(self, node: Number, slot: int) -> Number:
        """Return the far end of a ring node's edge: the next node of the ring."""
        return (node + 1 + slot) % self.nodes

    def diameter(self) -> int:
        """Return the ring's diameter: half the number of nodes."""
        return self.nodes // 2

    def bisection(self) -> int:
        """Return the ring's bisection width: 2 edges."""
        return 2

    def bottleneck(self) -> float:
        """Return the ring's bottleneck degree: sum of distances per 2N directed edges."""
        return (self.nodes**2 // 4) / 2

    def degree_claim(self) -> Claim:
        """Return the ring's published node degree: 2."""
        return Claim(2, "2")

    def diameter_claim(self) -> Claim:
        """Return the ring's published diameter: ``N / 2``."""
        return Claim(self.nodes / 2, "N / 2")

    def bisection_claim(self) -> Claim:
        """Return the ring's published bisection width: 2."""
        return Claim(2, "2")

    def bottleneck_claim(self) -> Claim:
        """Return the ring's published bottleneck degree: ``N^2 / 8``."""
        return Claim(self.nodes**2 / 8, "N^2 / 8")


class Torus(Structure):
    """2-D torus: a grid of ``side`` x ``side`` nodes whose rows and columns are rings.

    The published diameter, sqrt(N) - 1, is one too low for even sides: the distance in each of the
    two coordinates can be floor(side / 2).

    >>> Torus(8).diameter(), Torus(8).diameter_claim().value
    (8, 7)
    """

    title = "2-D torus"
    parameters = ("side",)
    example = "torus,8"
    slots = 2
    degree = 4

    def __init__(self, side: int) -> None:
        check_minimums(self.title, side=(side, 3))
        self.side = side
        self.nodes = side**2
        self.edge_count = 2 * self.nodes
        self.check_size()

    def link(self, node: Number, slot: int) -> Number:
        """Return the far end of a torus node's edge to the right (slot 0) or downwards (slot 1)."""
        row, column = node // self.side, node % self.side
        if slot == 0:
            return row * self.side + (column + 1) % self.side
        return (row + 1) % self.side * self.side + column

    def diameter(self) -> int:
        """Return the torus's diameter: half a ring in each of the two dimensions."""
        return 2 * (self.side // 2)

    def bisection(self) -> int:
        """Return the torus's bisection width: 2 edges per row, and 2 of a column if side is odd."""
        return 2 * self.side + 2 * (self.side % 2)

    def bottleneck(self) -> float:
        """Return the torus's bottleneck degree: sum of distances per 4N directed edges."""
        return self.side * (self.side**2 // 4) / 2

    def degree_claim(self) -> Claim:
        """Return the torus's published node degree: 4."""
        return Claim(4, "4")

    def diameter_claim(self) -> Claim:
        """Return the torus's published diameter: ``sqrt(N) - 1``, an approximation."""
        return Claim(self.side - 1, "sqrt(N) - 1")

    def bisection_claim(self) -> Claim:
        """Return the torus's published bisection width: ``2 sqrt(N)``."""
        return Claim(2 * self.side, "2 sqrt(N)")

    def bottleneck_claim(self) -> Claim:
        """Return the torus's published bottleneck degree: ``N sqrt(N) / 8``."""
        return Claim(self.side**3 / 8, "N sqrt(N) / 8")


class Hypercube(Structure):
    """Hypercube: 2^dimension nodes, with edges between numbers that differ in one bit.

    >>> Hypercube(6).diameter(), Hypercube(6).bisection()
    (6, 32)
    """

    title = "hypercube"
    parameters = ("dimension",)
    example = "hypercube,6"

    def __init__(self, dimension: int) -> None:
        check_minimums(self.title, dimension=(dimension, 1))
        self.dimension = self.degree = self.slots = dimension
        self.nodes = 2 ** min(dimension, 64)
        self.check_size()
        self.edge_count = dimension * self.nodes // 2

    def link(self, node: Number, slot: int) -> Number:
        """Return the node whose number has bit `slot` set too, NOTHING if it is set already."""
        bit = 2**slot
        return select(node // bit % 2 == 0, node + bit, NOTHING)  # type: ignore[no-any-return]

    def diameter(self) -> int:
        """Return the hypercube's diameter: one edge per bit of a node number."""
        return self.dimension

    def bisection(self) -> int:
        """Return the hypercube's bisection width: the number of edges of one dimension."""
        return self.nodes // 2

    def bottleneck(self) -> float:
        """Return the hypercube's bottleneck degree: sum of distances divided by directed edges."""
        return self.nodes / 2

    def degree_claim(self) -> Claim:
        """Return the hypercube's published node degree: ``log2 N``."""
        return Claim(self.dimension, "log2 N")

    def diameter_claim(self) -> Claim:
        """Return the hypercube's published diameter: ``log2 N``."""
        return Claim(self.dimension, "log2 N")

    def bisection_claim(self) -> Claim:
        """Return the hypercube's published bisection width: ``N / 2``."""
        return Claim(self.nodes / 2, "N / 2")

    def bottleneck_claim(self) -> Claim:
        """Return the hypercube's published bottleneck degree: ``N / 2``."""
        return Claim(self.nodes / 2, "N / 2")
