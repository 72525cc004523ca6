"""Tree and fat tree of Guo 2008, Table 3; N is the number of leaves, which are the first nodes."""

from __future__ import annotations

import math
from typing import ClassVar

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.polymorphic import NOTHING, Number, select
from pillarbox.topos.structures.base import Claim, Structure, check_minimums


class Tree(Structure):
    """Tree of d-port switches with leaves: each switch below the root has d - 1 subtrees.

    The root has the remaining subtrees, at most d. The paper's formulas assume different numbers
    of root subtrees: d - 1 for the diameter, d for the bottleneck, two for the bisection.

    >>> Tree(64, 5).counts, Tree(80, 5).counts
    ((64, 16, 4, 1), (80, 20, 5, 1))
    """

    title = "tree"
    parameters: ClassVar[tuple[str, ...]] = ("leaves", "d")
    example = "tree,64,5"
    slots = 1

    def __init__(self, leaves: int, d: int) -> None:
        check_minimums(self.title, leaves=(leaves, 2), d=(d, 3))
        self.leaves, self.d = leaves, d
        counts = [leaves]
        while counts[-1] > d:
            count, left = divmod(counts[-1], d - 1)
            require(
                not left,
                f"a {self.title} has {d - 1} nodes below each switch but the root, and {leaves} "
                f"leaves are no multiple of that at every height: try {d * (d - 1) ** 2}",
            )
            counts.append(count)
        self.counts = (*counts, 1)  # number of nodes at each height of the tree
        self.nodes = sum(self.counts)
        self.check_size()
        self.degree = max(counts[-1], d if len(counts) > 1 else 1)
        self.edge_count = self.nodes - 1

    @property
    def height(self) -> int:
        """Height of the tree: number of edges between a leaf and the root."""
        return len(self.counts) - 1

    def link(self, node: Number, slot: int) -> Number:
        """Return the parent of a tree's node, NOTHING for the root."""
        far, first = NOTHING, 0
        for height, count in enumerate(self.counts[:-1]):
            above = first + count
            # All nodes of the level below the root have the root as their parent.
            below = 1 if self.counts[height + 1] > 1 else 0
            parent = above + (node - first) // (self.d - 1) * below
            owned = (node >= first) & (node < above) & (slot < self.parallel_edges(height))
            far = select(owned, parent, far)
            first = above
        return far  # type: ignore[return-value]

    def parallel_edges(self, height: int) -> int:
        """Return the number of parallel edges from a node of this height to its parent."""
        return 1

    def diameter(self) -> int:
        """Return the tree's diameter: from a leaf up to the root and down to another leaf."""
        return 2 * self.height

    def degree_claim(self) -> Claim:
        """Return a claim without a value: the paper gives no node degree of the tree."""
        return Claim(None, "-")

    def diameter_claim(self) -> Claim:
        """Return the tree's published diameter: ``2 log_{d-1} N``, in edges."""
        value = 2 * math.log(self.leaves) / math.log(self.d - 1)
        return Claim(round(value, 9), "2 log_(d-1) N")

    def bisection_claim(self) -> Claim:
        """Return the tree's published bisection width: 1."""
        return Claim(1, "1")

    def bottleneck_claim(self) -> Claim:
        """Return the tree's published bottleneck degree: ``N^2 (d - 1) / d^2``.

        Each of the root's d subtrees sends N/d (N - N/d) flows.
        """
        return Claim(self.leaves**2 * (self.d - 1) / self.d**2, "N^2 (d - 1) / d^2")


class FatTree(Tree):
    """Leiserson's binary fat tree, with N parallel edges in total between any two heights.

    >>> FatTree(8).counts, FatTree(8).edge_count
    ((8, 4, 2, 1), 24)
    """

    title = "fat tree"
    parameters = ("leaves",)
    example = "fattree,64"

    def __init__(self, leaves: int) -> None:
        super().__init__(leaves, 3)
        require(
            self.counts[-2] == 2,
            f"a {self.title} is binary, so that its leaves are a power of 2, not {leaves}",
        )
        self.edge_count = self.leaves * self.height
        self.slots = self.leaves // 2
        self.degree = max(self.leaves, 1)  # degree of the fat tree's root

    def parallel_edges(self, height: int) -> int:
        """Return the number of parallel edges from a node of this height to its parent."""
        return 1 << height

    def degree_claim(self) -> Claim:
        """Return a claim without a value: the paper gives no node degree of the fat tree."""
        return Claim(None, "-")

    def diameter_claim(self) -> Claim:
        """Return the fat tree's published diameter: ``2 log2 N``, in edges."""
        return Claim(2 * math.log2(self.leaves), "2 log2 N")

    def bisection_claim(self) -> Claim:
        """Return the fat tree's published bisection width: ``N / 2``."""
        return Claim(self.leaves / 2, "N / 2")

    def bottleneck_claim(self) -> Claim:
        """Return the fat tree's published bottleneck degree: ``N``."""
        return Claim(self.leaves, "N")
