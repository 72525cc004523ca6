"""Guo 2008, Table 3: degree, diameter, bisection width and bottleneck degree of structures."""

from __future__ import annotations

import math

from experiments.analysis.comparison.bisection import bisection
from experiments.analysis.comparison.papers import AT_LEAST, AT_MOST, Check, Table, formula
from experiments.analysis.comparison.paths import diameter, link_loads
from topos import structures
from topos.base.spec import parse
from topos.structures.base import Claim, Structure, Tabulated

# In the table's order; all of 64 nodes but the butterfly, whose nearest size is 80.
ROWS = (
    "fullmesh,64",
    "ring,64",
    "torus,8",
    "tree,64,5",
    "fattree,64",
    "hypercube,6",
    "butterfly,4",
    "debruijn,4,3",
)
REASONS = {
    ("torus", "diameter"): "an approximation; half way round in both coordinates is "
    "2 floor(sqrt(N) / 2)",
}


def table_3(seconds: float) -> Table:
    """The table's formulas beside exact values."""
    checks = [check for spec in ROWS for check in _structure(spec, structures.parse(spec))]
    checks += _dcell("dcell,4,1", seconds)
    return Table("DCell, Table 3: structures compared", "Guo 2008, Table 3", checks)


def _structure(spec: str, found: Tabulated) -> list[Check]:
    wired = found if isinstance(found, Structure) else None
    rows: list[tuple[str, Claim, float | None]] = [
        ("degree", found.degree_claim(), wired.degree if wired else None),
        ("diameter", found.diameter_claim(), wired.diameter() if wired else None),
        ("bisection", found.bisection_claim(), wired.bisection() if wired else None),
        ("bottleneck", found.bottleneck_claim(), wired.bottleneck() if wired else None),
    ]
    name = spec.partition(",")[0]
    return [
        formula(
            f"{spec} {what}",
            claim.formula,
            claim.value,
            ours,
            reason=REASONS.get((name, what), "" if wired else "formula alone: N counts leaves"),
        )
        for what, claim, ours in rows
    ]


def _dcell(spec: str, seconds: float) -> list[Check]:
    topology = parse(spec)
    servers = topology.servers
    log = math.log(servers, topology.switch_ports)
    busiest = round(float(link_loads(topology).max()), 9)
    width = bisection(topology, seconds).exact
    return [
        formula(f"{spec} degree", "k + 1", topology.parameters["k"] + 1, topology.ports),
        formula(
            f"{spec} diameter", "< 2 log_n N - 1", 2 * log - 1, diameter(topology).value, AT_MOST
        ),
        formula(
            f"{spec} bisection",
            "N / (4 log_n N)",
            servers / (4 * log),
            width,
            AT_LEAST,
            "a lower bound (section 3.3)",
        ),
        formula(f"{spec} bottleneck", "< N log_n N", servers * log, busiest, AT_MOST),
    ]
