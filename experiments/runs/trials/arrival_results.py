"""Results of arriving flows: completion times, slowdowns by size, and loads.

A flow's completion time counts from its planned start, not from its first byte: a late source must
not make the network look fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from pillarbox.experiments.lab.traffic.open_loop import lateness_s
from pillarbox.experiments.models.workloads.arrivals import Window
from pillarbox.experiments.models.workloads.demand import (
    DEADLINE,
    INCAST,
    REQUESTS,
    SHUFFLE,
    flows_per_arrival,
    request_answers,
)
from pillarbox.experiments.models.workloads.flows import COMPLETED, FlowResult
from pillarbox.experiments.models.workloads.sizes import ALL, CLASSES
from pillarbox.experiments.runs.plans.drawn_arrivals import capacity_of, load_of
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.trust.readings import DurationStatistics, spread

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder

Row = dict[str, Any]

SHARES = {"median": 0.5, "p95": 0.95, "p99": 0.99}  # Quantiles by name in column names.


def window_of_trial(order: TrialOrder) -> Window:
    """Return the measured window of a trial: the start times of the flows that count."""
    from pillarbox.experiments.models.workloads.arrivals import measurement_window

    return measurement_window(order.workload, max(flow.start_s for flow in order.flows))


def flow_columns(order: TrialOrder, found: TrialMeasurements) -> list[Row]:
    """Return the additional columns of arriving flows, one row for each flow."""
    window, system = window_of_trial(order), order.trial.system
    rows: list[Row] = []
    for result in found.results:
        measured = window.from_s <= result.flow.start_s <= window.until_s
        row: Row = {"measured": measured, "completion_s": _completion_s(result)}
        rows.append(row | {"alone_s": None, "slowdown": None, "burst_bytes": None})
    # Without a rate, or with a router of the user's own, the ideal is unknown.
    if system.rate_mbit is not None and not found.routing.endswith(".py"):
        for row, known in zip(rows, _ideal_columns(system, system.rate_mbit, found), strict=True):
            row |= known
            if row["completion_s"] is not None:
                row["slowdown"] = row["completion_s"] / known["alone_s"]
    return rows


def _completion_s(result: FlowResult) -> float | None:
    if result.status != COMPLETED or result.end_s is None:
        return None
    return result.end_s - result.flow.start_s


def _ideal_columns(system: System, rate_mbit: float, found: TrialMeasurements) -> Iterator[Row]:
    """Yield each flow's ideal completion time, and the burst of its path's slowest port."""
    from pillarbox.experiments.lab.linux.shaping import catch_up_s, checked_delay
    from pillarbox.experiments.models.fluid.ideal import header_bytes
    from pillarbox.experiments.models.fluid.unloaded_time import (
        computed_routes,
        idle_network_completion_s,
        idle_paths,
    )
    from pillarbox.experiments.models.port_bursts import burst_bytes
    from pillarbox.experiments.runs.trials.dilation import lab_system

    topology = system.topology
    flows = [result.flow for result in found.results]
    pairs = [(flow.source, flow.destination) for flow in flows]
    paths = idle_paths(topology, computed_routes(topology, found.routing, pairs))
    delay, lab = checked_delay(system.delay, None), lab_system(system)
    lab_mbit, catch_up = lab.rate_mbit or rate_mbit, catch_up_s(lab.catch_up)
    # Every relative rate has its own burst.
    bursts = {
        rate: burst_bytes(lab_mbit * rate, system.mtu, catch_up)
        for rate in set(paths.rates.tolist())
    }
    alone_s = idle_network_completion_s(
        [flow.volume_bytes or 0 for flow in flows],
        paths,
        rate_mbit * 1e6,
        system.mtu,
        header_bytes(topology, found.routing),
        delay.delay_s if delay else 0.0,
    )
    for each_s, rate in zip(alone_s.tolist(), paths.rates.tolist(), strict=True):
        yield {"alone_s": each_s, "burst_bytes": float(bursts[rate])}


def class_rows(flows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each size class with measured flows, and one row for all sizes.

    `flows` are rows of the table of flows.
    """
    counted = [row for row in flows if row.get("measured")]
    rows = []
    for name, (least, below) in CLASSES.items():
        inside = [row for row in counted if least <= row["volume_bytes"] < below]
        if not inside:
            continue
        row: Row = {
            "sizes": name,
            "flows": len(inside),
            "failed_flows": sum(row["status"] != COMPLETED for row in inside),
            "mean_bytes": float(numpy.mean([row["volume_bytes"] for row in inside])),
            **_bursts(inside),
        }
        for column in ("completion_s", "slowdown"):
            row |= _mean_and_quantiles(
                column, [row[column] for row in inside if row[column] is not None]
            )
        rows.append(row)
    return rows


def _bursts(flows: Sequence[Mapping[str, Any]]) -> Row:
    """Return the largest burst of the flows' ports, and the number of flows that fit into it."""
    known = [row for row in flows if row["burst_bytes"] is not None]
    return {
        "burst_bytes": max((row["burst_bytes"] for row in known), default=None),
        "burst_flows": sum(row["volume_bytes"] <= row["burst_bytes"] for row in known)
        if known
        else None,
    }


def slowdowns_of(flows: Sequence[Mapping[str, Any]]) -> Row:
    """Return the slowdowns of a trial over all measured flows: columns of schema.TRIALS."""
    found = next((row for row in class_rows(flows) if row["sizes"] == ALL), {})
    names = ("slowdown_mean", "slowdown_median", "slowdown_p99")
    return {name: found.get(name) for name in names}


def together_of(order: TrialOrder, flows: Sequence[Mapping[str, Any]]) -> Row:
    """Return completion times of groups of flows that arrive simultaneously, measured flows only.

    A group is the answers of a request, or a shuffle; it ends with its last flow. A group with a
    failed flow has missed its deadline, and has no completion time. The slowdown of a shuffle is
    relative to the time that its busiest port needs if all ports of a server send or receive: only
    bursts get below 1. It is unknown if levels of cables have rates of their own.
    """
    workload, topology = order.workload, order.topology
    if workload.pattern not in (INCAST, SHUFFLE, REQUESTS) or workload.trace is not None:
        return {}
    counted = [row for row in flows if row["measured"]]
    small = request_answers(topology, workload)
    if small:
        counted = [row for row in counted if row["volume_bytes"] == small.volume_bytes]
    groups: dict[float, list[Mapping[str, Any]]] = {}
    for row in counted:
        groups.setdefault(row["start_s"], []).append(row)
    took = numpy.array([max(map(_completion_or_inf_s, group)) for group in groups.values()])
    whole, deadline_s = took[numpy.isfinite(took)], workload.options.get(DEADLINE)
    found = {
        "requests": len(took),
        "request_median_s": float(numpy.median(whole)) if len(whole) else None,
        "request_p99_s": float(numpy.quantile(whole, 0.99)) if len(whole) else None,
        "in_time_share": None if deadline_s is None else float((took <= deadline_s).mean()),
    }
    equal, known = not topology.factors.rates, bool(counted) and counted[0]["alone_s"] is not None
    if workload.pattern == SHUFFLE and len(whole) and known and equal:
        each = flows_per_arrival(topology, workload)
        busiest = max(1.0, max(each.senders, each.receivers) / topology.ports)
        bound = numpy.array([group[0]["alone_s"] * busiest for group in groups.values()])
        found["shuffle_slowdown"] = float(numpy.mean((took / bound)[numpy.isfinite(took)]))
    return found


def _completion_or_inf_s(row: Mapping[str, Any]) -> float:
    return numpy.inf if row["completion_s"] is None else float(row["completion_s"])


def _mean_and_quantiles(column: str, values: Sequence[float]) -> Row:
    """Return the mean and the percentiles of a column; empty without values."""
    if not values:
        return {}
    stem, unit = (column[:-2], "_s") if column.endswith("_s") else (column, "")
    found = {f"{stem}_mean{unit}": float(numpy.mean(values))}
    for name, share in SHARES.items():
        found[f"{stem}_{name}{unit}"] = float(numpy.quantile(values, share))
    return found


def loads(order: TrialOrder, found: TrialMeasurements) -> Row:
    """Return a trial's loads in bit/s: requested, offered, and carried in the measured window."""
    system, window = order.trial.system, window_of_trial(order)
    offered = sum(
        result.flow.volume_bytes or 0
        for result in found.results
        if window.from_s <= result.flow.start_s <= window.until_s
    )
    carried = sum(_delivered_within(result, window) for result in found.results)
    asked = None
    if order.workload.trace is None:
        load = load_of(system, order.workload)
        asked = (load or 0.0) * capacity_of(system, order.workload, order.trial.seed)
    lasting_s = max(window.lasting_s, 1e-9)
    return {
        "load": load_of(system, order.workload),
        "asked_bps": asked,
        "offered_bps": offered * 8 / lasting_s,
        "carried_bps": carried * 8 / lasting_s,
        "late_p99_s": late(found).p99_s,
    }


def late(found: TrialMeasurements, dilation: float = 1.0) -> DurationStatistics:
    """Return the statistics of flow start delays (actual minus planned start), times `dilation`."""
    return spread([late_s * dilation for late_s in lateness_s(found.results)])


def _delivered_within(result: FlowResult, window: Window) -> float:
    """Return the bytes of a flow that were delivered within a time window."""
    total = 0.0
    for one in result.intervals:
        shared_s = min(one.end_s, window.until_s) - max(one.begin_s, window.from_s)
        if shared_s > 0:
            total += one.delivered_bytes * shared_s / max(one.end_s - one.begin_s, 1e-9)
    return total
