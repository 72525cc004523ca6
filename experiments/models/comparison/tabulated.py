"""Guo 2008, Table 3 cell by cell: each structure's printed formula, compared with its own edges.

Values that a structure has in closed form are used; the others are searched. An order such as O(N
l) is compared between a structure and the next larger one: if it is the right order, the ratio of
value to order hardly changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy

from pillarbox.experiments.models.comparison.bisection import minimum_cut_bounds
from pillarbox.experiments.models.comparison.path_metrics import edge_loads
from pillarbox.experiments.models.comparison.table_checks import Erratum, TableCheck, formula_check
from pillarbox.topos import structures
from pillarbox.topos.structures.base import Structure
from pillarbox.topos.structures.trees import Tree

# For each printed order of magnitude: its value for N nodes and a size, and what is compared.
ORDERS: dict[str, tuple[Callable[[int, int], float], tuple[str, str]]] = {
    "O(N l)": (lambda nodes, size: nodes * size, ("butterfly,{}", "4 5")),
    "O(N log_d N)": (lambda nodes, size: nodes * size, ("debruijn,4,{}", "3 4")),
}
# Maximum relative change of value / order: a missing factor would change it by a fifth.
STEADY = 0.05
ENTRY = "Compared structures (Guo 2008, Table 3)"
# Wrong cells: the reason, and the right value.
ERRATA: dict[tuple[str, str], tuple[str, Erratum]] = {
    ("torus,8", "diameter"): (
        "an approximation; half way round in both coordinates is 2 floor(sqrt(N) / 2)",
        Erratum(ENTRY, 2 * (8 // 2)),
    ),
    ("tree,64,5", "bisection"): (
        "that of a root with two subtrees; half of d - 1 subtrees are cut off",
        Erratum(ENTRY, (5 - 1) / 2),
    ),
    ("tree,64,5", "bottleneck"): (
        "that of a root with d subtrees; the diameter's has d - 1",
        Erratum(ENTRY, 64**2 * (5 - 2) / (5 - 1) ** 2),
    ),
    ("fattree,64", "bottleneck"): (
        "the edge of a leaf has the flows of the N - 1 others",
        Erratum(ENTRY, 64 - 1),
    ),
    ("debruijn,4,2", "bisection"): (
        "for large N; here it is more than all 60 edges",
        Erratum(ENTRY, 20),
    ),
}
# Smaller structures used where an exhaustive search of the table's structure takes too long.
SMALLER = {
    ("fattree,64", "bisection"): "fattree,16",
    ("butterfly,4", "bisection"): "butterfly,3",
    ("debruijn,4,3", "bisection"): "debruijn,4,2",
}
SECONDS = 60.0  # time limit of a bisection search, in seconds: searches take less than one second


def table_row_checks(spec: str) -> Iterator[TableCheck]:
    """Yield the checks of all cells in a structure's row of Guo 2008, Table 3."""
    for what in ("degree", "diameter", "bisection", "bottleneck"):
        yield table_cell_check(SMALLER.get((spec, what), spec), what)


def table_cell_check(spec: str, what: str) -> TableCheck:
    """Return the check of one cell of Guo 2008, Table 3."""
    found = structures.parse(spec)
    claim = getattr(found, f"{what}_claim")()
    name, (reason, erratum) = f"{spec} {what}", ERRATA.get((spec, what), ("", None))
    if what == "degree" and claim.value is None:
        return _uneven_degree_check(name, claim.formula, found)
    if claim.value is None:
        return _order_check(name, claim.formula)
    return formula_check(
        name,
        claim.formula,
        claim.value,
        structure_metric(found, what),
        reason=reason,
        erratum=erratum,
    )


def structure_metric(found: Structure, what: str) -> float | None:
    """Return a structure's degree, diameter, bisection width or bottleneck degree.

    >>> structure_metric(structures.parse("butterfly,2"), "bisection")
    4
    >>> structure_metric(structures.parse("debruijn,2,3"), "bottleneck")
    11.0
    """
    own = getattr(found, what, None)
    known = own() if callable(own) else own
    if known is None and what == "bisection":
        return _bisection_width(found)
    if known is None and what == "bottleneck":
        return _bottleneck_degree(found)
    return None if known is None else float(known) if what == "bottleneck" else int(known)


def _sending_nodes(found: Structure) -> int:
    """Return the number of nodes that send traffic: the leaves of a tree, else all nodes."""
    return found.leaves if isinstance(found, Tree) else found.nodes


def _bisection_width(found: Structure) -> int | None:
    a, b = found.edge_arrays()
    lower, upper = minimum_cut_bounds(a, b, found.nodes, _sending_nodes(found), 0, len(a), SECONDS)
    return upper if lower == upper else None


def _bottleneck_degree(found: Structure) -> float:
    near, far = found.edge_arrays()
    if not found.directed:
        near, far = numpy.concatenate([near, far]), numpy.concatenate([far, near])
    return round(float(edge_loads(near, far, found.nodes, _sending_nodes(found)).max()), 9)


def _uneven_degree_check(name: str, printed: str, found: Structure) -> TableCheck:
    """Return the check of a degree without a printed value, since nodes have different degrees."""
    degrees = numpy.bincount(numpy.concatenate(found.edge_arrays()))
    reason = f"nodes have {degrees.min()} to {degrees.max()} edges"
    return TableCheck(
        name, printed, float(degrees.max()), bool(degrees.min() < degrees.max()), reason
    )


def _order_check(name: str, printed: str) -> TableCheck:
    """Return the check of a printed order of magnitude."""
    value, (spec, sizes) = ORDERS[printed]
    over = []
    for size in sizes.split():
        found = structures.parse(spec.format(size))
        over.append(_bottleneck_degree(found) / value(found.nodes, int(size)))
    change = over[1] / over[0] - 1
    reason = f"over the order {over[0]:.3f}, and {over[1]:.3f} of the next larger one"
    return TableCheck(name, printed, round(change, 9), abs(change) < STEADY, reason)
