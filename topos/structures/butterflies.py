"""Butterfly, wrapped butterfly and de Bruijn graph (Guo 2008, Table 3; Liao 2012, section 2.6)."""

from __future__ import annotations

import math

from pillarbox.topos.base.polymorphic import NOTHING, Number, select
from pillarbox.topos.structures.base import Claim, Structure, check_minimums

LIAO = "Liao 2012, section 2.6"
LEIGHTON = "Leighton 1992, section 3.2"


class Butterfly(Structure):
    """Butterfly graph of l + 1 columns with 2^l rows.

    Each node of column c has a straight edge to the same row of column c + 1, and a cross edge to
    the row with bit c inverted.

    >>> Butterfly(2).nodes, Butterfly(2).edge_count
    (12, 16)
    """

    title = "butterfly"
    parameters = ("l",)
    example = "butterfly,4"
    slots = 2
    degree = 4

    def __init__(self, l: int) -> None:  # noqa: E741 - the paper's symbol
        check_minimums(self.title, l=(l, 1))
        self.l = l
        self.rows: int = 2 ** min(l, 64)
        self.nodes = (l + 1) * self.rows
        self.check_size()
        self.edge_count = 2 * l * self.rows
        self.degree = 4 if l > 1 else 2

    def link(self, node: Number, slot: int) -> Number:
        """Return the far end of a node's straight (slot 0) or cross (1) edge to the next column."""
        last = node // self.rows == self.l
        far = _next_column_node(node, self.rows, self.l + 1, slot)
        return select(last, NOTHING, far)  # type: ignore[no-any-return]

    def diameter(self) -> int:
        """Return the butterfly's diameter 2l: from the first column to the last and back."""
        return 2 * self.l

    def degree_claim(self) -> Claim:
        """Return the butterfly's published node degree: 4."""
        return Claim(4, "4")

    def diameter_claim(self) -> Claim:
        """Return the butterfly's published diameter: ``2l``."""
        return Claim(2 * self.l, "2l")

    def bisection_claim(self) -> Claim:
        """Return the butterfly's published bisection width: ``N / (l + 1)``, the size of a column.

        For large l it is about 0.83 of that. Bornstein et al. 1998 (Liao 2012's reference [8]):
        2 (sqrt(2) - 1) 2^l + o(2^l).
        """
        return Claim(self.rows, "N / (l + 1)")

    def bottleneck_claim(self) -> Claim:
        """Return the butterfly's published bottleneck degree, an order of magnitude only."""
        return Claim(None, "O(N l)")


class WrappedButterfly(Structure):
    """Wrapped butterfly graph: a ring of k columns with 2^k rows; DPillar is derived from it.

    k is at least 3, since the straight edges would join two columns twice.

    >>> WrappedButterfly(3).nodes, WrappedButterfly(3).diameter(), WrappedButterfly(3).bisection()
    (24, 4, 8)
    """

    title = "wrapped butterfly"
    parameters = ("k",)
    example = "wrappedbutterfly,4"
    slots = 2
    degree = 4

    def __init__(self, k: int) -> None:
        check_minimums(self.title, k=(k, 3))
        self.k = k
        self.rows: int = 2 ** min(k, 64)
        self.nodes = k * self.rows
        self.check_size()
        self.edge_count = 2 * self.nodes

    def link(self, node: Number, slot: int) -> Number:
        """Return the far end of a node's straight (slot 0) or cross (1) edge to the next column."""
        return _next_column_node(node, self.rows, self.k, slot)

    def diameter(self) -> int:
        """Return the wrapped butterfly's diameter: k steps set all bits, k / 2 reach the column."""
        return self.k * 3 // 2

    def bisection(self) -> int:
        """Return the exact bisection width of the wrapped butterfly: the size of a column.

        Source: Bornstein et al. 1998 (Liao 2012's reference [8]).
        """
        return self.rows

    def degree_claim(self) -> Claim:
        """Return the wrapped butterfly's published node degree: 4."""
        return Claim(4, "4", LIAO)

    def diameter_claim(self) -> Claim:
        """Return the wrapped butterfly's published diameter: Liao 2012 says only: linear in k."""
        return Claim(self.diameter(), "floor(3k / 2)", LEIGHTON)

    def bisection_claim(self) -> Claim:
        """Return the wrapped butterfly's published bisection width: ``2^k``."""
        return Claim(self.rows, "2^k", LIAO)

    def bottleneck_claim(self) -> Claim:
        """Return the wrapped butterfly's published bottleneck degree, an order of magnitude."""
        return Claim(None, "O(N k)", LEIGHTON)


class DeBruijn(Structure):
    """De Bruijn graph: words of `length` letters from an alphabet of size d.

    An edge leads from a word to the word without its first letter and with one letter appended.
    Edges are directed ("the links in de Bruijn are asymmetric"). The d loops at words of a single
    repeated letter are left out, since they are not cables.

    >>> list(DeBruijn(2, 2).edges())
    [(0, 1), (1, 2), (1, 3), (2, 0), (2, 1), (3, 2)]
    """

    title = "de Bruijn graph"
    parameters = ("d", "length")
    example = "debruijn,4,3"
    directed = True

    def __init__(self, d: int, length: int) -> None:
        check_minimums(self.title, d=(d, 2), length=(length, 2))
        self.d = self.degree = self.slots = d
        self.length = length
        self.nodes = d ** min(length, 64)
        self.check_size()
        self.edge_count = self.nodes * d - d

    def link(self, node: Number, slot: int) -> Number:
        """Return a De Bruijn node's neighbour: its word shifted, with letter `slot` appended."""
        far = (node * self.d + slot) % self.nodes
        return select(far == node, NOTHING, far)  # type: ignore[no-any-return]

    def diameter(self) -> int:
        """Return the De Bruijn graph's diameter: `length` steps replace all letters."""
        return self.length

    def degree_claim(self) -> Claim:
        """Return the De Bruijn graph's published node degree: ``d``."""
        return Claim(self.d, "d")

    def diameter_claim(self) -> Claim:
        """Return the De Bruijn graph's published diameter: ``log_d N``."""
        return Claim(self.length, "log_d N")

    def bisection_claim(self) -> Claim:
        """Return the De Bruijn graph's published bisection width, an asymptotic value."""
        return Claim(2 * self.d * self.nodes / self.length, "2 d N / log_d N")

    def bottleneck_claim(self) -> Claim:
        """Return the De Bruijn graph's published bottleneck degree: an order of magnitude only."""
        return Claim(None, "O(N log_d N)")


def _next_column_node(node: Number, rows: int, columns: int, slot: int) -> Number:
    """Return a butterfly's next node: in the same row, or (slot 1) with bit `column` inverted."""
    column, row = node // rows, node % rows
    if slot:
        bit = 2**column
        row = row + bit - 2 * (row // bit % 2) * bit
    return (column + 1) % columns * rows + row


def wrapped_columns(nodes: float) -> float:
    """Return the real number k with k 2^k = nodes: columns of a wrapped butterfly of this size.

    >>> round(wrapped_columns(24), 6)
    3.0
    """
    low, high = 0.0, max(1.0, math.log2(nodes))
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if middle * 2**middle < nodes else (low, middle)
    return high
