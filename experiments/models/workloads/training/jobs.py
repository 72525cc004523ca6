"""Several jobs in one network: training iterations, and repeated collective operations.

Each job has its own ranks on its own servers; the traces of all jobs together are one trace, whose
jobs do not depend on one another. So jobs share nothing but the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pillarbox.experiments.models.workloads.collectives.plan import ALGORITHMS, SYNCHRONIZED_READS
from pillarbox.experiments.models.workloads.training.iteration_plan import PlannedJob
from pillarbox.experiments.models.workloads.training.trace import (
    COLLECTIVE,
    MOST_MESSAGE_BYTES,
    MOST_NODES,
    Trace,
    TraceNode,
)
from pillarbox.topos.base.errors import UnknownNameError, meant, require

# Collective operations that a job can repeat.
OPERATIONS = tuple(one for one in ALGORITHMS if one != SYNCHRONIZED_READS)
MOST_JOBS = 64


class Job(NamedTuple):
    """A job: its name, the trace of all its iterations, and their number."""

    name: str
    trace: Trace
    iterations: int


def whole_number(options: Mapping[str, Any], name: str, usual: int, most: int) -> int:
    """Return an option that is a whole number from 1 to `most`; it may be written as 1e6."""
    value = options.get(name, usual)
    require(
        type(value) in (int, float) and 1 <= value <= most and value == int(value),
        f"the option {name} is a whole number from 1 to {most:,}, not {value!r}",
    )
    return int(value)


def operation_trace(options: Mapping[str, Any], servers: int) -> Trace:
    """Return the trace of a collective operation: a node on each rank.

    >>> operation_trace({"operation": "all-reduce", "bytes": 8, "ranks": 2}, 4).ranks[1]
    (TraceNode(number=0, name='all-reduce', kind='collective', after=(), duration_us=0,
    size_bytes=8, peer=None, tag=0, operation='all-reduce', group='', parts=(), root=0,
    on_cpu=False, parallelism=''),)
    """
    operation = options["operation"]
    require(
        operation in OPERATIONS,
        f"a job repeats no operation {operation!r}: {meant(str(operation), OPERATIONS)}",
        UnknownNameError,
    )
    ranks = whole_number(options, "ranks", servers, MOST_NODES)
    require("bytes" in options, f"a job of {operation} needs its size: add bytes=1000000")
    size_bytes = whole_number(options, "bytes", 1, MOST_MESSAGE_BYTES)
    node = TraceNode(0, operation, COLLECTIVE, operation=operation, size_bytes=size_bytes)
    return Trace(((node,),) * ranks)


def repeated(trace: Trace, iterations: int) -> Trace:
    """Return a trace of several iterations: a rank begins one after the end of the previous one."""
    if iterations == 1:
        return trace
    nodes = iterations * sum(map(len, trace.ranks))
    require(
        nodes <= MOST_NODES,
        f"{iterations} iterations have {nodes:,} nodes, and the limit is {MOST_NODES:,}: choose "
        "fewer iterations",
    )
    return Trace(
        tuple(tuple(_repeated_nodes(one, iterations)) for one in trace.ranks), trace.groups
    )


def _repeated_nodes(nodes: Sequence[TraceNode], iterations: int) -> list[TraceNode]:
    """Return a rank's nodes of several iterations; first nodes wait for the last ones before."""
    if not nodes:
        return []
    shift = 1 + max(one.number for one in nodes)
    needed = {number for one in nodes for number in one.after}
    last = [one.number for one in nodes if one.number not in needed]
    found = list(nodes)
    for iteration in range(1, iterations):
        offset = iteration * shift
        found += (
            replace(
                one,
                number=one.number + offset,
                after=tuple(number + offset for number in one.after)
                or tuple(number + offset - shift for number in last),
            )
            for one in nodes
        )
    return found


def united(jobs: Sequence[Job]) -> tuple[Trace, tuple[PlannedJob, ...]]:
    """Return the traces of several jobs as one trace, and the ranks of each job in it."""
    ranks: list[tuple[TraceNode, ...]] = []
    groups: dict[str, tuple[int, ...]] = {}
    planned = []
    for job in jobs:
        first, names = len(ranks), {}
        for name in ("", *job.trace.groups):
            names[name] = str(len(groups) + 1)
            groups[names[name]] = tuple(first + one for one in job.trace.members(name))
        ranks += [tuple(_moved(node, first, names) for node in nodes) for nodes in job.trace.ranks]
        planned.append(PlannedJob(job.name, range(first, len(ranks)), job.iterations))
    return Trace(tuple(ranks), groups), tuple(planned)


def _moved(node: TraceNode, first: int, names: Mapping[str, str]) -> TraceNode:
    """Return a node of a job in the trace of all jobs, where the job's ranks begin at `first`."""
    if node.kind == COLLECTIVE:
        return replace(node, group=names[node.group])
    return node if node.peer is None else replace(node, peer=node.peer + first)
