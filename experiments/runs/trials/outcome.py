"""Conversion of a trial's measurements to records: flows with ideals, verdict and totals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.models.fluid.collective import flow_ends_s, transfer_end_times_s
from pillarbox.experiments.models.workloads.collectives.bound import collective_time_bound_s
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED, Flow, FlowResult
from pillarbox.experiments.models.workloads.training.bound import iteration_bound_s
from pillarbox.experiments.runs.plans.trials import Trial
from pillarbox.experiments.runs.trials.arrival_results import (
    class_rows,
    flow_columns,
    late,
    loads,
    slowdowns_of,
    together_of,
)
from pillarbox.experiments.runs.trials.ideals import TrialIdeal, trial_ideal
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.packet_records import packet_log_of
from pillarbox.experiments.runs.trials.recorded_paths import is_sprayed, paths_of
from pillarbox.experiments.runs.trials.recovery import recovery
from pillarbox.experiments.runs.trials.statistics import jain, spread
from pillarbox.experiments.runs.trials.subflows import Subflow, subflow_rows, subflows_of
from pillarbox.experiments.runs.trials.training_results import training_results
from pillarbox.experiments.runs.trials.trial_faults import killed_by
from pillarbox.experiments.runs.trust.verdict import judge
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.pinned_paths import reverse
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.models.fluid.directed_links import FlowPath
    from pillarbox.experiments.models.fluid.ideal import Ideal
    from pillarbox.experiments.models.packets.packet_log import PacketLog
    from pillarbox.experiments.models.workloads.collectives.plan import CollectivePlan

Row = dict[str, Any]
# Columns of the counters in `Reordering`.
REORDERING = ("reordering", "reordering_events", "dsack_duplicates")


@dataclass(frozen=True)
class Outcome:
    """A trial's records: the content of trial.json, the rows of each table, the lab's log."""

    record: Row
    tables: Mapping[str, Sequence[Row]]
    log: tuple[str, ...] = ()
    packets: PacketLog | None = None


def failed(trial: Trial, reason: str) -> Outcome:
    """Return the records of a trial that did not finish."""
    return Outcome(
        {**_trial_columns(trial), "valid": False, "status": FAILED, "reason": reason}, {}
    )


def outcome(order: TrialOrder, found: TrialMeasurements) -> Outcome:
    """Return the records (totals and table rows) of a trial that finished."""
    topology = order.topology
    pairs = [(result.flow.source, result.flow.destination) for result in found.results]
    paths = paths_of(topology, found.routing, pairs, found.paths)
    arrives = order.workload.arrivals is not None
    subflows = subflows_of(topology, found.results)
    ideal = None if arrives else ideal_of(order, found, paths, subflows)
    best = best_of(order, found, paths, ideal, subflows)
    totals = totals_of(found, best, bound_of(order, found))
    if subflows:  # the first subflow's path stands for the flow
        first = {one.owner: one.path for one in reversed(subflows)}
        paths = [first.get(at) for at in range(len(found.results))]
    flows = _flow_rows(topology, found, paths, ideal)
    if arrives:
        totals |= loads(order, found)
        flows = [row | more for row, more in zip(flows, flow_columns(order, found), strict=True)]
        totals |= slowdowns_of(flows) | together_of(order, flows)
    training_totals, training_tables = training_results(order, found, ideal)
    totals |= training_totals
    # The hops of a file distribution and collective transfers wait for each other.
    comparable = best is not None and order.plan is None
    verdict = judge(
        found.readings,
        totals["ideal_bps"] if comparable else None,
        totals["goodput_bps"] if comparable else None,
        late(found, order.trial.system.dilation) if arrives else None,  # seconds of the lab
        sum(result.fell_back for result in found.results),
        sprayed=is_sprayed(topology, found.routing),
    )
    record = {
        **_trial_columns(order.trial),
        "valid": verdict.valid,
        "status": COMPLETED,
        "reason": "",
        **totals,
        "ideal_steps": [list(step) for step in best.steps] if best else [],
        "verdict": verdict.as_json(),
        "readings": found.readings.as_json(),
        "routing": found.routing,
        "plane": found.plane,
        "tool": {"name": found.tool, **found.tool_versions},
        "began": found.began,
    }
    tables = {
        "flows": flows,
        "classes": class_rows(flows),
        "intervals": [
            {"flow": result.flow.number, **interval._asdict()}
            for result in found.results
            for interval in result.intervals
        ],
        "links": found.readings.links,
        # Local steps of a training iteration send no bytes.
        "transfers": [step._asdict() for step in found.steps if step.volume_bytes],
        **training_tables,
        "subflows": subflow_rows(topology, found.results, subflows),
        "events": recovery(found.events, found.results, partial(killed_by, topology)),
    }
    packets = None
    if found.packets is not None:
        barrier_s = found.began["monotonic_s"]
        packets = packet_log_of(order.trial.system, found.results, barrier_s, found.packets.rows)
        record["packets_not_logged"] = found.packets.lost
    return Outcome(record, tables, found.log, packets)


def ideal_of(
    order: TrialOrder,
    found: TrialMeasurements,
    paths: Sequence[FlowPath],
    subflows: Sequence[Subflow] = (),
) -> Ideal | None:
    """Return the ideal goodput and completion time of a trial's flows; None if unknown.

    The ideal is unknown if cables have no rate or different rates, and for a user's routing file,
    whose headers are not declared; with Multipath TCP if subflows are unknown or flows wait for
    others. The hops of a file distribution are computed as if no hop waited for another; the
    transfers of a collective operation wait for the transfers that they need.
    """
    system = order.trial.system
    if system.rate_mbit is None or found.routing.endswith(".py") or not found.uniform:
        return None
    from pillarbox.experiments.models.fluid.ideal import ideal

    flows = [result.flow for result in found.results]
    if system.multipath:
        return _multipath_ideal(order, flows, subflows) if subflows and not order.plan else None
    back = [(flow.destination, flow.source) for flow in flows]
    plan = order.collective
    return ideal(
        order.topology,
        found.routing,
        flows,
        system.rate_mbit * 1e6,
        system.mtu,
        paths=paths,
        ack_paths=paths_of(order.topology, found.routing, back, found.back),
        **_collective_ends(plan),
    )


def _collective_ends(plan: CollectivePlan | None) -> dict[str, Any]:
    """Return the arguments of `ideal` for the end times of a collective operation."""
    if plan is None:
        return {}
    return {
        "step_ends_s": partial(transfer_end_times_s, plan),
        "flow_ends_s": partial(flow_ends_s, plan),
    }


def _multipath_ideal(
    order: TrialOrder, flows: Sequence[Flow], subflows: Sequence[Subflow]
) -> Ideal:
    """Return the ideal of flows of Multipath TCP, whose subflows are on their pinned paths."""
    from pillarbox.experiments.models.fluid.ideal import ideal

    system, topology = order.trial.system, order.topology
    paths = [one.path for one in subflows]
    return ideal(
        *(topology, "", flows, (system.rate_mbit or 0.0) * 1e6, system.mtu),
        paths=paths,
        ack_paths=[reverse(topology, path) if path else None for path in paths],
        owners=[one.owner for one in subflows],
        **_collective_ends(order.collective),
    )


def end_of(found: TrialMeasurements) -> float:
    """Return the time at which the last flow ended, or the trial's end if a flow did not end.

    A training iteration may end with a computation, a step without bytes.
    """
    ends = [one.end_s for one in found.results if one.status == COMPLETED and one.end_s is not None]
    if not ends or len(ends) < len(found.results):
        return found.readings.duration_s
    local = [one.end_s for one in found.steps if not one.volume_bytes and one.end_s is not None]
    return max([*ends, *local])


def best_of(
    order: TrialOrder,
    found: TrialMeasurements,
    paths: Sequence[FlowPath],
    ideal: Ideal | None,
    subflows: Sequence[Subflow] = (),
) -> TrialIdeal | None:
    """Return the ideal of a trial, an upper bound of its goodput; None if it is unknown.

    Transfers of a collective operation wait for others: their ideal is that of the fluid model.
    """
    if ideal is None or not any(result.delivered_bytes for result in found.results):
        return None
    if order.collective:
        volume = sum(result.flow.volume_bytes or 0 for result in found.results)
        return TrialIdeal(volume * 8 / ideal.completion_s, ideal.completion_s, ())
    return trial_ideal(order, found, paths, end_of(found), subflows)


def bound_of(order: TrialOrder, found: TrialMeasurements) -> float | None:
    """Return the upper bound in bit/s of a trial's goodput under any routing; None if unknown.

    It is unknown in the cases of `ideal_of` and for a file distribution. For a collective operation
    or a training iteration it is the goodput at which the transfers complete in the lower bound of
    the completion time.
    """
    system, topology, collective = order.trial.system, order.topology, order.collective
    if system.rate_mbit is None or not found.uniform:
        return None
    if found.routing.endswith(".py") or (order.plan and collective is None):
        return None
    from pillarbox.experiments.models.fluid.ideal import bound_bps, goodput_share

    if collective:
        efficiency = goodput_share(topology, found.routing, system.mtu, multipath=system.multipath)
        port_bps = system.rate_mbit * 1e6 * efficiency
        if order.iteration:
            least = iteration_bound_s(topology, order.iteration, port_bps)
        else:
            least = collective_time_bound_s(topology, collective, port_bps)
        return sum(collective.volumes) * 8 / least
    flows = [result.flow for result in found.results]
    return bound_bps(
        *(topology, found.routing, flows, system.rate_mbit * 1e6, system.mtu),
        multipath=system.multipath,
    )


def totals_of(
    found: TrialMeasurements, ideal: TrialIdeal | None, bound_bps: float | None = None
) -> Row:
    """Return the totals of a trial: columns of schema.TRIALS.

    Goodput is the bits of all receivers over the time until the last flow ended, or until the trial
    ended if a flow did not end; its ideal likewise. If every flow failed, goodput is None.
    """
    results = found.results
    completed = [result for result in results if result.status == COMPLETED]
    delivered = sum(result.delivered_bytes for result in results)
    end_s = end_of(found)
    sent = [row["sent_bytes"] for row in found.readings.links if not row["from"].startswith("s")]
    return {
        "flows": len(results),
        "failed_flows": len(results) - len(completed),
        "goodput_bps": delivered * 8 / end_s if completed else None,
        "completion_s": end_s if len(completed) == len(results) else None,
        "fairness": _finite_or_none(jain([result.goodput_bps or math.nan for result in completed])),
        "link_spread": _finite_or_none(spread(sent)),
        "ideal_bps": _finite_or_none(ideal.goodput_bps) if ideal else None,
        "bound_bps": bound_bps,
        "ideal_s": _finite_or_none(ideal.completion_s) if ideal else None,
    }


def _trial_columns(trial: Trial) -> Row:
    return {
        "trial": trial.number,
        "system": trial.system.name,
        "repeat": trial.repeat,
        "seed": trial.seed,
    }


def _flow_rows(
    topology: Topology, found: TrialMeasurements, paths: Sequence[FlowPath], ideal: Ideal | None
) -> list[Row]:
    rows = []
    for at, (result, path) in enumerate(zip(found.results, paths, strict=True)):
        row = _flow_row(topology, result)
        # empty for a sprayed flow, which has several paths
        row["path"] = (
            " ".join(map(topology.address, path.servers)) if isinstance(path, Path) else ""
        )
        if ideal:
            # Connections of a collective operation are not all active simultaneously.
            row["ideal_bps"] = None if found.steps else _finite_or_none(ideal.goodput_bps[at])
            row["ideal_end_s"] = _finite_or_none(ideal.end_s[at])
        rows.append(row)
    return rows


def _flow_row(topology: Topology, result: FlowResult) -> Row:
    flow = result.flow
    return {
        "flow": flow.number,
        "source": topology.address(flow.source),
        "destination": topology.address(flow.destination),
        "tool": result.tool,
        "status": result.status,
        "reason": result.reason,
        "start_s": flow.start_s,
        "begin_s": result.begin_s,
        "end_s": result.end_s,
        "volume_bytes": flow.volume_bytes,
        "delivered_bytes": result.delivered_bytes,
        "goodput_bps": result.goodput_bps,
        "retransmits": result.retransmits,
        "tries": result.tries,
        "connect_s": result.connect_s,
        **dict(zip(REORDERING, result.reordering or (None,) * len(REORDERING), strict=True)),
        "source_port": result.source_port,
    }


def _finite_or_none(value: Any) -> float | None:
    """Return a number as JSON data: None for NaN and infinities."""
    return float(value) if math.isfinite(value) else None
