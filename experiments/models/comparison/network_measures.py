"""Comparison of networks: all values and notes that `pillarbox compare` shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pillarbox.experiments.models.comparison import path_metrics, prices
from pillarbox.experiments.models.comparison.bisection import Bisection, bisection
from pillarbox.topos.base.topology import Bound, Topology
from pillarbox.topos.structures.butterflies import WrappedButterfly

NOT_ASKED = "not requested (--no-exact)"


@dataclass(frozen=True)
class RatiosToButterfly:
    """The smallest wrapped butterfly with at least as many nodes (Liao 2012, section 2.6)."""

    butterfly: WrappedButterfly
    diameter_ratio: float | None  # butterfly's diameter / upper bound of the network's diameter
    bisection_ratio: float | None  # network's bisection width / butterfly's bisection width


def butterfly_comparison(topology: Topology) -> RatiosToButterfly:
    """Return the smallest wrapped butterfly that connects as many servers, with four ports each.

    >>> from pillarbox import topos
    >>> found = butterfly_comparison(topos.parse("dpillar,48,3"))
    >>> found.butterfly.k, found.butterfly.degree, found.butterfly.diameter()
    (12, 4, 18)
    """
    k = 3
    while k * 2**k < topology.servers:
        k += 1
    butterfly = WrappedButterfly(k)
    bound, width = topology.diameter_bound().value, topology.bisection().value
    return RatiosToButterfly(
        butterfly,
        butterfly.diameter() / bound if bound else None,
        width / butterfly.bisection() if width is not None else None,
    )


@dataclass(frozen=True)
class NetworkMeasures:
    """All compared values of one network: its column of the comparison."""

    topology: Topology
    diameter: path_metrics.SearchedMetric
    bisection: Bisection
    disjoint: path_metrics.DisjointPathCounts
    bill: prices.Bill
    butterfly_comparison: RatiosToButterfly


def compute_network_measures(
    topology: Topology, price_list: prices.PriceList, exact: bool, seconds: float
) -> NetworkMeasures:
    """Return a network's measures; `exact` enables searches of about `seconds` each."""
    skipped = (
        path_metrics.SearchedMetric(None, NOT_ASKED),
        path_metrics.DisjointPathCounts(None, None, NOT_ASKED),
    )
    return NetworkMeasures(
        topology,
        path_metrics.diameter(topology) if exact else skipped[0],
        bisection(topology, seconds) if exact else Bisection(None, None, NOT_ASKED),
        path_metrics.disjoint_paths(topology) if exact else skipped[1],
        prices.network_bill(topology, price_list),
        butterfly_comparison(topology),
    )


def measures_as_json(measured: NetworkMeasures) -> dict[str, Any]:
    """Return a network's measures as a JSON object, with units in the keys."""
    topology, cost, versus = measured.topology, measured.bill, measured.butterfly_comparison
    return {
        "spec": topology.spec,
        "servers": topology.servers,
        "switches": topology.switches,
        "switch_ports": topology.switch_ports,
        "cables": topology.cables,
        "ports_per_server": topology.ports,
        "diameter_bound_hops": _bound_json(topology.diameter_bound()),
        "diameter_exact_hops": measured.diameter.value,
        "diameter_note": measured.diameter.note,
        "bisection_formula_cables": _bound_json(topology.bisection()),
        "bisection_lower_cables": measured.bisection.lower,
        "bisection_upper_cables": measured.bisection.upper,
        "bisection_is_exact": measured.bisection.exact is not None,
        "bisection_note": measured.bisection.note,
        "disjoint_paths_formula": _bound_json(topology.disjoint_paths()),
        "disjoint_paths_least": measured.disjoint.least,
        "disjoint_paths_typical": measured.disjoint.typical,
        "disjoint_paths_note": measured.disjoint.note,
        "switches_usd": cost.switches_usd,
        "cables_usd": cost.cables_usd,
        "nics_usd": cost.nics_usd,
        "servers_usd": cost.servers_usd,
        "network_usd": cost.network_usd,
        "network_usd_per_server": _value_per_server(cost.network_usd, topology.servers),
        "total_usd": cost.total_usd,
        "switches_w": cost.switches_w,
        "nics_w": cost.nics_w,
        "servers_w": cost.servers_w,
        "total_w": cost.total_w,
        "wrapped_butterfly": {
            "columns": versus.butterfly.k,
            "nodes": versus.butterfly.nodes,
            "ports_per_node": versus.butterfly.degree,
            "diameter_hops": versus.butterfly.diameter(),
            "bisection_cables": versus.butterfly.bisection(),
            "diameter_ratio": versus.diameter_ratio,
            "bisection_ratio": versus.bisection_ratio,
        },
        "remarks": cost.remarks,
    }


def comparison_rows(measured: list[NetworkMeasures]) -> list[tuple[str, list[str]]]:
    """Return the comparison as rows of text: a name, and one cell per network."""
    columns = [_column_cells(column) for column in measured]
    names = [name for name, _ in columns[0]]
    return [(name, [column[i][1] for column in columns]) for i, name in enumerate(names)]


def _column_cells(measured: NetworkMeasures) -> list[tuple[str, str]]:
    topology, cost, butterfly = (
        measured.topology,
        measured.bill,
        measured.butterfly_comparison.butterfly,
    )
    least, typical = measured.disjoint.least, measured.disjoint.typical
    disjoint = (
        f"{_number_text(least)} (mostly {typical})" if typical != least else _number_text(least)
    )
    return [
        ("", re.sub(r",(?=[a-z])", ", ", topology.spec)),
        ("servers", _number_text(topology.servers)),
        ("switches", _number_text(topology.switches)),
        ("ports per switch", f"up to {topology.switch_ports}" if topology.switches else "-"),
        ("cables (wires)", _number_text(topology.cables)),
        ("ports per server", _number_text(topology.ports)),
        ("diameter, bound", _bound_with_formula(topology.diameter_bound())),
        ("diameter, exact", _number_text(measured.diameter.value)),
        ("bisection, formula", _bound_with_formula(topology.bisection())),
        ("bisection, exact", str(measured.bisection)),
        ("disjoint paths", _bound_with_formula(topology.disjoint_paths())),
        ("  by max-flow", disjoint),
        ("network cost", _dollars_text(cost.network_usd)),
        ("  per server", _dollars_text(_value_per_server(cost.network_usd, topology.servers), 2)),
        ("cost: switches", _dollars_text(cost.switches_usd)),
        ("  cables", _dollars_text(cost.cables_usd)),
        ("  NICs", _dollars_text(cost.nics_usd)),
        ("  with servers", _dollars_text(cost.total_usd)),
        ("power: switches", _kilowatts_text(cost.switches_w)),
        ("  NICs", _kilowatts_text(cost.nics_w)),
        ("  with servers", _kilowatts_text(cost.total_w)),
        ("wrapped butterfly", f"{butterfly.k} columns"),
        ("  ports per node", _number_text(butterfly.degree)),
        ("  diameter", _number_text(butterfly.diameter())),
        ("  bisection", _number_text(butterfly.bisection())),
    ]


def comparison_notes(measured: list[NetworkMeasures], price_list: prices.PriceList) -> list[str]:
    """Return the explanatory notes below the table that compares networks."""
    hops = "Diameters are in server-to-server hops, bisection widths in cables."
    if any(column.topology.factors.rates for column in measured):
        hops += " Exact bisection widths count a cable by its relative rate."
    butterfly = (
        "Wrapped butterfly: the smallest with as many nodes as the network has servers "
        "(Liao 2012, section 2.6)."
    )
    flow = "Max-flow paths share no server and no switch, so there are at most as many as ports."
    found = [hops, flow, f"Prices: {price_list.source}; power: Guo 2009, Table 2.", butterfly]
    about: dict[str, list[str]] = {}
    for column in measured:
        for remark in [
            *_missing_value_notes(column),
            *_disproof_notes(column),
            *column.bill.remarks,
        ]:
            about.setdefault(remark, []).append(column.topology.spec)
    return found + [f"{'; '.join(specs)}: {remark}." for remark, specs in about.items()]


def _missing_value_notes(measured: NetworkMeasures) -> list[str]:
    """Return sentences that explain a missing exact value, a sample or a range."""
    cut = measured.bisection
    found = [
        f"{what} {note}"
        for what, value, note in (
            ("exact diameter", measured.diameter.value, measured.diameter.note),
            ("paths by max-flow", measured.disjoint.least, measured.disjoint.note),
            ("exact bisection", cut.lower, cut.note),
        )
        if value is None
    ]
    if measured.disjoint.note.startswith(path_metrics.SAMPLE):
        found.append(f"paths by max-flow are those of {measured.disjoint.note}")
    if cut.lower is not None and cut.exact is None:
        found.append(f"the bisection width lies in a range ({cut.note})")
    return found


def _disproof_notes(measured: NetworkMeasures) -> list[str]:
    """Return a sentence if a search disproves a paper's formula."""
    bound = measured.topology.bisection()
    upper = measured.bisection.upper
    if upper is None or bound.value is None or upper > bound.value - 1:
        return []
    return [f"a bisection by {upper:,} cables exists, fewer than {bound.formula} of {bound.source}"]


def _bound_json(bound: Bound) -> dict[str, Any]:
    return {"value": bound.value, "formula": bound.formula, "source": bound.source}


def _value_per_server(value: float | None, count: int) -> float | None:
    return None if value is None else value / count


def _bound_with_formula(bound: Bound) -> str:
    value = _number_text(bound.value)
    if bound.formula.split(" ")[0] == value:
        return bound.formula
    return f"{value} [{bound.formula}]"


def _number_text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _dollars_text(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"${value:,.{digits}f}"


def _kilowatts_text(value: float | None) -> str:
    return "-" if value is None else f"{value / 1000:,.3f} kW"
