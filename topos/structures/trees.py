"""Tree and FatTree of Guo 2008, Table 3: formulas alone, since N counts only their leaves."""

from __future__ import annotations

import math

from topos.structures.base import Claim, Tabulated, check_numbers


class TreeFormulas(Tabulated):
    """N servers as leaves of a tree of d-port switches.

    >>> TreeFormulas(64, 5).diameter_claim().value
    6.0
    """

    title = "tree"
    parameters = ("nodes", "d")
    example = "tree,64,5"

    def __init__(self, nodes: int, d: int) -> None:
        check_numbers(self.title, nodes=(nodes, 2), d=(d, 3))
        self.nodes, self.d = nodes, d

    def degree_claim(self) -> Claim:
        """Not given: leaves have one edge, switches d."""
        return Claim(None, "-")

    def diameter_claim(self) -> Claim:
        """``2 log_{d-1} N``, in edges."""
        value = 2 * math.log(self.nodes) / math.log(self.d - 1)
        return Claim(round(value, 9), "2 log_(d-1) N")

    def bisection_claim(self) -> Claim:
        """``1``."""
        return Claim(1, "1")

    def bottleneck_claim(self) -> Claim:
        """``N^2 (d - 1) / d^2``: the root's d subtrees send N/d (N - N/d) flows each."""
        return Claim(self.nodes**2 * (self.d - 1) / self.d**2, "N^2 (d - 1) / d^2")


class FatTreeFormulas(Tabulated):
    """Leiserson's fat tree over N servers: binary, with N/2 edges' worth at every height."""

    title = "fat tree"
    parameters = ("nodes",)
    example = "fattree,64"

    def __init__(self, nodes: int) -> None:
        check_numbers(self.title, nodes=(nodes, 2))
        self.nodes = nodes

    def degree_claim(self) -> Claim:
        """Not given."""
        return Claim(None, "-")

    def diameter_claim(self) -> Claim:
        """``2 log2 N``, in edges."""
        return Claim(2 * math.log2(self.nodes), "2 log2 N")

    def bisection_claim(self) -> Claim:
        """``N / 2``."""
        return Claim(self.nodes / 2, "N / 2")

    def bottleneck_claim(self) -> Claim:
        """``N``."""
        return Claim(self.nodes, "N")
