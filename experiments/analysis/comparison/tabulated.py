"""Guo 2008, Table 3 cell by cell: each structure's formula in print beside its own edges.

What a structure knows in closed form is taken from there; the rest is searched for. An order such
as O(N l) is held against the next larger structure: where it is the right one, the value over it
hardly changes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy

from experiments.analysis.comparison.bisection import least_cut
from experiments.analysis.comparison.checks import Check, formula
from experiments.analysis.comparison.paths import edge_loads
from topos import structures
from topos.structures.base import Structure
from topos.structures.trees import Tree

# Of each order in print its value, and the sizes at which it is held against one another.
ORDERS: dict[str, tuple[Callable[[int, int], float], tuple[str, str]]] = {
    "O(N l)": (lambda nodes, size: nodes * size, ("butterfly,{}", "4 5")),
    "O(N log_d N)": (lambda nodes, size: nodes * size, ("debruijn,4,{}", "3 4")),
}
STEADY = 0.05  # an order that lacks a factor would let the value change by a fifth
REASONS = {
    ("torus,8", "diameter"): "an approximation; half way round in both coordinates is "
    "2 floor(sqrt(N) / 2)",
    ("tree,64,5", "bisection"): "that of a root with two subtrees",
    ("tree,64,5", "bottleneck"): "that of a root with d subtrees; the diameter's has d - 1",
    ("fattree,64", "bottleneck"): "the edge of a leaf has the flows of the N - 1 others",
    ("debruijn,4,2", "bisection"): "for large N; here it is more than all 60 edges",
}
# What is searched for to the end only in smaller ones.
SMALLER = {
    ("fattree,64", "bisection"): "fattree,16",
    ("butterfly,4", "bisection"): "butterfly,3",
    ("debruijn,4,3", "bisection"): "debruijn,4,2",
}
SECONDS = 60.0  # a guard: they take less than one


def cells(spec: str) -> Iterator[Check]:
    """Yield a structure's row."""
    for what in ("degree", "diameter", "bisection", "bottleneck"):
        yield cell(SMALLER.get((spec, what), spec), what)


def cell(spec: str, what: str) -> Check:
    """Return one cell of the table."""
    found = structures.parse(spec)
    claim = getattr(found, f"{what}_claim")()
    name, reason = f"{spec} {what}", REASONS.get((spec, what), "")
    if what == "degree" and claim.value is None:
        return _uneven(name, claim.formula, found)
    if claim.value is None:
        return _order(name, claim.formula)
    return formula(name, claim.formula, claim.value, measured(found, what), reason=reason)


def measured(found: Structure, what: str) -> float | None:
    """Return a structure's degree, diameter, bisection width or bottleneck degree.

    >>> measured(structures.parse("butterfly,2"), "bisection")
    4
    >>> measured(structures.parse("debruijn,2,3"), "bottleneck")
    11.0
    """
    own = getattr(found, what, None)
    known = own() if callable(own) else own
    if known is None and what == "bisection":
        return _bisection(found)
    if known is None and what == "bottleneck":
        return _bottleneck(found)
    return None if known is None else float(known) if what == "bottleneck" else int(known)


def _ends(found: Structure) -> int:
    """Return how many of its first nodes are those that send, and are cut into halves."""
    return found.leaves if isinstance(found, Tree) else found.nodes


def _bisection(found: Structure) -> int | None:
    a, b = found.edge_arrays()
    lower, upper = least_cut(a, b, found.nodes, _ends(found), 0, len(a), SECONDS)
    return upper if lower == upper else None


def _bottleneck(found: Structure) -> float:
    near, far = found.edge_arrays()
    if not found.directed:
        near, far = numpy.concatenate([near, far]), numpy.concatenate([far, near])
    return round(float(edge_loads(near, far, found.nodes, _ends(found)).max()), 9)


def _uneven(name: str, printed: str, found: Structure) -> Check:
    """Return the check of a degree that is not given, since nodes have different ones."""
    degrees = numpy.bincount(numpy.concatenate(found.edge_arrays()))
    reason = f"nodes have {degrees.min()} to {degrees.max()} edges"
    return Check(name, printed, float(degrees.max()), bool(degrees.min() < degrees.max()), reason)


def _order(name: str, printed: str) -> Check:
    """Return the check of an order."""
    value, (spec, sizes) = ORDERS[printed]
    over = []
    for size in sizes.split():
        found = structures.parse(spec.format(size))
        over.append(_bottleneck(found) / value(found.nodes, int(size)))
    change = over[1] / over[0] - 1
    reason = f"over the order {over[0]:.3f}, and {over[1]:.3f} of the next larger one"
    return Check(name, printed, round(change, 9), abs(change) < STEADY, reason)
