"""Records of a training iteration: parts of its time, and the times of its ranks and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.models.workloads.training.breakdown import (
    IterationTimes,
    Moments,
    iteration_times,
)
from experiments.models.workloads.training.iteration_plan import IterationPlan
from experiments.models.workloads.training.trace import Trace
from experiments.models.workloads.training.training_workload import trace_of
from experiments.runs.trials.order import TrialMeasurements, TrialOrder
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    from experiments.runs.trials.records import Run

Row = dict[str, Any]
Times = tuple[int, int]
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


def measured_trace(run: Run, number: int | None) -> tuple[Trace, dict[tuple[int, int], Times]]:
    """Return the trace of a run's trial, and each node's measured start and duration.

    Times are in microseconds, by rank and number of the node. The trial is the first one that
    completed if `number` is None.
    """
    nodes = run.nodes
    completed = sorted(nodes.trial.unique())
    require(
        bool(completed),
        f"{run.folder} has no completed training iteration: choose a run of `run training`",
    )
    trial = completed[0] if number is None else number
    require(
        trial in completed,
        f"trial {trial} of {run.folder} has no completed training iteration: choose one of "
        f"{', '.join(map(str, completed))}",
    )
    rows = nodes[nodes.trial == trial]
    name = rows.system.iloc[0]
    (system,) = (one for one in run.plan.systems if one.name == name)
    seed = int(next(one["seed"] for one in run.records if one["trial"] == trial))
    trace = trace_of(run.plan.workload.options, system.topology.servers, seed)
    times_us = {
        (int(row.rank), int(row.node)): (
            round(row.begin_s * 1e6),
            round((row.end_s - row.begin_s) * 1e6),
        )
        for row in rows.itertuples()
    }
    return trace, times_us


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
