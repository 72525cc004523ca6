"""Records of a training iteration: parts of its time, and the times of its ranks and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.models.workloads.training.breakdown import (
    IterationTimes,
    Moments,
    iteration_times,
)
from experiments.models.workloads.training.iteration_plan import IterationPlan
from experiments.runs.trials.order import TrialMeasurements, TrialOrder
from topos.base.topology import Topology

Row = dict[str, Any]
PARTS = ("compute_s", "exposed_s", "waiting_s")


def training_results(
    order: TrialOrder, found: TrialMeasurements
) -> tuple[Row, Mapping[str, Sequence[Row]]]:
    """Return totals and tables of a trial's training iteration, empty if it did not complete."""
    moments = [
        Moments(step.begin_s, step.end_s)
        for step in found.steps
        if step.begin_s is not None and step.end_s is not None
    ]
    if order.iteration is None or not moments or len(moments) < len(found.steps):
        return {}, {}
    times = iteration_times(order.iteration, moments)
    totals = {part: times.mean_s(part) for part in PARTS}
    tables = {
        "ranks": rank_rows(order.topology, order.iteration, times),
        "nodes": node_rows(order.iteration, moments),
    }
    return totals, tables


def rank_rows(topology: Topology, plan: IterationPlan, times: IterationTimes) -> list[Row]:
    """Return the parts of each rank's time as rows of the table `ranks`."""
    rows = []
    for one in times.ranks:
        longest, waits_for_s = next(iter(one.waits_for), (None, None))
        rows.append(
            {
                "rank": one.rank,
                "server": topology.address(plan.servers[one.rank]),
                **{part: getattr(one, part) for part in PARTS},
                "waits_for": longest,
                "waits_for_s": waits_for_s,
            }
        )
    return rows


def node_rows(plan: IterationPlan, moments: Sequence[Moments]) -> list[Row]:
    """Return the times of each node of the trace as rows of the table `nodes`."""
    rows = []
    for task in plan.tasks:
        node = plan.trace.node(task.place)
        rows.append(
            {
                "rank": task.place.rank,
                "node": node.number,
                "name": node.name,
                "kind": node.operation or node.kind,
                "begin_s": moments[task.first].begin_s,
                "end_s": moments[task.last].end_s,
            }
        )
    return rows
