"""Records of a training iteration: parts of its time, and the times of its ranks and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.models.workloads.training.breakdown import (
    IterationTimes,
    Moments,
    RankTime,
    iteration_times,
)
from pillarbox.experiments.models.workloads.training.iteration_plan import IterationPlan
from pillarbox.experiments.models.workloads.training.trace import Trace
from pillarbox.experiments.models.workloads.training.training_workload import workload_trace
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.models.fluid.ideal import Ideal
    from pillarbox.experiments.runs.trials.records import Run

Row = dict[str, Any]
Times = tuple[int, int]
PARTS = ("compute_s", "exposed_s", "waiting_s")


def training_results(
    order: TrialOrder, found: TrialMeasurements, ideal: Ideal | None
) -> tuple[Row, Mapping[str, Sequence[Row]]]:
    """Return totals and tables of a trial's training iteration, empty if it did not complete."""
    moments = [
        Moments(step.begin_s, step.end_s)
        for step in found.steps
        if step.begin_s is not None and step.end_s is not None
    ]
    if order.iteration is None or not moments or len(moments) < len(found.steps):
        return {}, {}
    plan = order.iteration
    times = [
        iteration_times(plan, moments, ranks)
        for ranks in [job.ranks for job in plan.jobs] or [range(plan.graph.ranks)]
    ]
    ranks = [rank for one in times for rank in one.ranks]
    totals = {part: sum(getattr(one, part) for one in ranks) / len(ranks) for part in PARTS}
    tables = {
        "ranks": rank_rows(order.topology, plan, ranks),
        "nodes": node_rows(plan, moments),
        "jobs": job_rows(order, plan, times, ideal),
    }
    return totals, tables


def job_rows(
    order: TrialOrder, plan: IterationPlan, times: Sequence[IterationTimes], ideal: Ideal | None
) -> list[Row]:
    """Return the times of each job as rows of the table `jobs`; empty without several jobs."""
    system = order.trial.system
    steps_s = None if ideal is None else ideal.step_end_s
    rows = []
    for job, found in zip(plan.jobs, times, strict=bool(plan.jobs)):
        ideal_s = None if steps_s is None else plan.end_of_job_s(job, steps_s)
        row = {"iteration_s": found.total_s, "ideal_s": ideal_s}
        row |= {part: found.mean_s(part) for part in PARTS}
        rows.append(
            {
                "job": job.name,
                "together": system.name_with_all_jobs,
                "alone": bool(system.job),
                "ranks": len(job.ranks),
                "iterations": job.iterations,
                **{key: None if s is None else s / job.iterations for key, s in row.items()},
            }
        )
    return rows


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
        f"trial {trial + 1} of {run.folder} has no completed training iteration: choose one of "
        f"{', '.join(str(one + 1) for one in completed)}",
    )
    rows = nodes[nodes.trial == trial]
    name = rows.system.iloc[0]
    (system,) = (one for one in run.plan.systems if one.name == name)
    seed = int(next(one["seed"] for one in run.records if one["trial"] == trial))
    trace = workload_trace(run.plan.workload.options, system.topology.servers, seed, system.job)
    times_us = {
        (int(row.rank), int(row.node)): (
            round(row.begin_s * 1e6),
            round((row.end_s - row.begin_s) * 1e6),
        )
        for row in rows.itertuples()
    }
    return trace, times_us


def rank_rows(topology: Topology, plan: IterationPlan, times: Sequence[RankTime]) -> list[Row]:
    """Return the parts of each rank's time as rows of the table `ranks`."""
    rows = []
    for one in times:
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
