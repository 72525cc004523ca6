"""Plan of a training iteration on a network: its trace as a graph of transfers and local steps.

A collective operation becomes the transfers of its algorithm, a message one transfer, and a
computation a local step: a `Transfer` whose sender is its receiver, which carries no data and takes
`lasts_s`. Steps run one after another

- on a connection: the transfers from one rank to another, as in any collective operation;
- on a processor: the computations of a rank's accelerator, and those of its CPU;

in the order in which they become ready. A local step without a duration only joins dependencies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from pillarbox.experiments.models.arrays import Floats
from pillarbox.experiments.models.workloads.collectives.graph import (
    MOST_NEEDED,
    MOST_SENT,
    Chunks,
    Transfer,
    TransferGraph,
    TransferGraphBuilder,
)
from pillarbox.experiments.models.workloads.collectives.plan import (
    ALGORITHMS,
    ELEMENT_BYTES,
    MOST_BYTES,
    AlgorithmRequest,
    CollectivePlan,
)
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.experiments.models.workloads.training.trace import (
    COLLECTIVE,
    COMPUTE,
    SEND,
    Place,
    Trace,
)
from pillarbox.experiments.models.workloads.workload import TRAINING
from pillarbox.topos.base.errors import UnknownNameError, meant, require
from pillarbox.topos.base.topology import Topology

DEFAULT_ALGORITHM = "ring"
# Algorithms of operations to which the system's algorithm does not apply. NCCL and MPI send the
# parts of an all-to-all simultaneously, and a tree broadcast may pass servers outside the group.
OTHER_ALGORITHMS = {"total-exchange": "at-once", "broadcast": "binomial"}
PROCESSORS = 2  # processors of a rank that compute simultaneously: accelerator and CPU
JOIN = -1  # queue of a local step without duration


class IterationTask(NamedTuple):
    """A node of the trace in a plan: its place, and its steps in the plan's graph."""

    place: Place
    first: int  # number of its first step
    last: int  # number of its last step, at whose end the node has ended


class PlannedJob(NamedTuple):
    """One of several jobs of a plan: its name, its ranks, and its number of iterations."""

    name: str
    ranks: range
    iterations: int


@dataclass(frozen=True, kw_only=True)
class IterationPlan(CollectivePlan):
    """A training iteration on a network: its graph of transfers and local steps.

    The plan of several jobs has their ranks one job after another.
    """

    trace: Trace
    processors: Mapping[int, int]  # processor of each computation, by step: rank and CPU or not
    labels: tuple[str, ...]  # class of each step's traffic, such as tensor or all-reduce
    tasks: tuple[IterationTask, ...]
    jobs: tuple[PlannedJob, ...] = ()  # empty for an iteration that is not one of several jobs

    @cached_property
    def flow_of(self) -> tuple[int, ...]:
        """Queue of each step: the flow of a transfer, the processor of a computation, or JOIN."""
        flows = len(self.pairs)
        return tuple(
            self.pairs[one.sender, one.receiver]
            if one.sender != one.receiver
            else flows + self.processors[number]
            if number in self.processors
            else JOIN
            for number, one in enumerate(self.graph.transfers)
        )

    @property
    def queues(self) -> int:
        """Number of queues: one for each flow, and one for each processor of a rank."""
        return len(self.pairs) + PROCESSORS * self.graph.ranks

    def live_flows(self) -> list[Flow]:
        """Return the flows of the iteration; raise PillarboxError if a lab cannot run it."""
        require(
            bool(self.pairs),
            "this training iteration sends no bytes between servers: a lab has nothing to emulate",
        )
        require(
            self.memory_bytes <= MOST_BYTES,
            f"the data of this training iteration takes {self.memory_bytes / 1e9:.1f} GB of "
            f"memory, and the limit is {MOST_BYTES / 1e9:.1f} GB: choose a smaller model or fewer "
            "micro-batches",
        )
        return self.flows()

    @cached_property
    def memory_bytes(self) -> int:
        """Size of the data of all ranks, which one process holds in a live run."""
        touched: list[set[int]] = [
            {*begins, *ends}
            for begins, ends in zip(self.graph.begins, self.graph.ends, strict=True)
        ]
        for one in self.graph.transfers:
            touched[one.sender].update(one.chunks)
            touched[one.receiver].update(one.chunks)
        return sum(self.bytes_of_chunks(chunk) for chunks in touched for chunk in chunks)

    def end_of_job_s(self, job: PlannedJob, ends_s: Floats) -> float:
        """Return the end of a job's last step, given those of all steps."""
        steps = zip(self.graph.transfers, ends_s, strict=True)
        return max(float(end_s) for one, end_s in steps if one.sender in job.ranks)

    def bytes_by_label(self) -> dict[str, int]:
        """Return the bytes sent between ranks by each class of traffic."""
        found: dict[str, int] = defaultdict(int)
        for label, volume in zip(self.labels, self.volumes, strict=True):
            if volume:
                found[label] += volume
        return dict(sorted(found.items()))


def iteration_plan(
    topology: Topology,
    trace: Trace,
    servers: Sequence[int],
    algorithm: str = "",
    options: Mapping[str, Any] | None = None,
) -> IterationPlan:
    """Return the plan of a training iteration.

    Parameters
    ----------
    topology : Topology
        The network.
    trace : Trace
        The iteration, which `check_trace` accepts.
    servers : sequence of int
        Server of each rank.
    algorithm : str
        Algorithm of all-reduce, reduce-scatter and all-gather; the ring by default.
    options : mapping
        Options of the algorithm, such as ``base``.
    """
    known = ALGORITHMS["reduce-scatter"]
    require(
        not algorithm or algorithm in known,
        f"a training iteration has no algorithm {algorithm!r}: {meant(algorithm, list(known))}",
        UnknownNameError,
    )
    lowering = _Lowering(topology, tuple(servers), algorithm or DEFAULT_ALGORITHM, options or {})
    for place in trace.order:
        lowering.add_node(trace, place)
    return lowering.finished_plan(trace)


class _Lowering:
    """Builder of an iteration's plan: adds the steps of nodes in the order of dependencies."""

    def __init__(
        self,
        topology: Topology,
        servers: tuple[int, ...],
        algorithm: str,
        options: Mapping[str, Any],
    ) -> None:
        self._topology, self._servers = topology, servers
        self._algorithm, self._options = algorithm, options
        self._steps: list[Transfer] = []
        self._labels: list[str] = []
        self._processors: dict[int, int] = {}
        self._offsets = [0]
        self._begins: list[list[int]] = [[] for _ in servers]
        self._ends: list[list[int]] = [[] for _ in servers]
        self._last_step: dict[Place, int] = {}  # step at whose end a node has ended
        self._tasks: list[IterationTask] = []
        self._graphs: dict[tuple[Any, ...], TransferGraph] = {}
        self._index_of: dict[int, dict[int, int]] = {}
        self._needed = 0

    def add_node(self, trace: Trace, place: Place) -> None:
        """Add the steps of a node; those of a collective operation follow its last member."""
        node = trace.node(place)
        if node.kind == COLLECTIVE:
            operation = trace.operations[place]
            if place == operation.places[-1]:
                self._add_collective(trace, operation.places)
            return
        after, first = self._last_steps(trace, place), len(self._steps)
        if node.kind == COMPUTE:
            last = self._add_local(
                place.rank, after, node.duration_us / 1e6, node.label, node.on_cpu
            )
        elif node.kind == SEND:
            chunk = self._add_chunks(node.size_bytes, 1)
            assert node.peer is not None
            last = self._add_transfer(
                Transfer(place.rank, node.peer, chunk, 1, False, 0, after), node.label
            )
            self._begins[place.rank].append(chunk)
            self._ends[node.peer].append(chunk)
        else:
            arrived = self._last_step[trace.messages[place]]
            last = self._add_local(place.rank, (*after, arrived), 0.0, node.label)
        self._last_step[place] = last
        self._tasks.append(IterationTask(place, first, last))

    def _last_steps(self, trace: Trace, place: Place) -> tuple[int, ...]:
        """Return the last steps of the nodes that a node depends on."""
        if place.rank not in self._index_of:
            nodes = trace.ranks[place.rank]
            self._index_of[place.rank] = {one.number: at for at, one in enumerate(nodes)}
        index_of = self._index_of[place.rank]
        after = trace.node(place).after
        return tuple(
            sorted({self._last_step[Place(place.rank, index_of[number])] for number in after})
        )

    def _append(self, step: Transfer, label: str) -> int:
        self._needed += len(step.after)
        require(
            len(self._steps) < MOST_SENT and self._needed <= MOST_NEEDED,
            f"this training iteration has more than {MOST_SENT:,} transfers and computations, or "
            f"{MOST_NEEDED:,} dependencies: choose fewer ranks, layers or micro-batches",
        )
        self._steps.append(step)
        self._labels.append(label)
        return len(self._steps) - 1

    def _add_local(
        self,
        rank: int,
        after: tuple[int, ...],
        lasts_s: float,
        label: str,
        on_cpu: bool = False,
    ) -> int:
        """Add a computation, or a join of dependencies; return its number."""
        number = self._append(Transfer(rank, rank, 0, 0, False, 0, after, lasts_s), label)
        if lasts_s:
            self._processors[number] = PROCESSORS * rank + on_cpu
        return number

    def _add_transfer(self, step: Transfer, label: str) -> int:
        """Add a transfer, or a join of its dependencies if it carries no bytes."""
        if self._offsets[step.first + step.size] == self._offsets[step.first]:
            return self._add_local(step.receiver, step.after, 0.0, label)
        return self._append(step, label)

    def _add_parts(self, sizes: Iterable[int]) -> int:
        """Add chunks of given sizes in bytes, rounded up to whole elements; return the first."""
        first = len(self._offsets) - 1
        for size_bytes in sizes:
            rounded = -(-size_bytes // ELEMENT_BYTES) * ELEMENT_BYTES
            self._offsets.append(self._offsets[-1] + rounded)
        return first

    def _add_chunks(self, size_bytes: int, count: int) -> int:
        """Add the data of an operation in `count` chunks of whole elements; return the first."""
        elements, begin = -(-size_bytes // ELEMENT_BYTES), self._offsets[-1]
        first = len(self._offsets) - 1
        for chunk in range(1, count + 1):
            self._offsets.append(begin + chunk * elements // count * ELEMENT_BYTES)
        return first

    def _add_collective(self, trace: Trace, places: Sequence[Place]) -> None:
        """Add the transfers of a collective operation after the entry of its members."""
        node = trace.node(places[0])
        ranks = [place.rank for place in places]
        entries = [
            self._add_local(place.rank, self._last_steps(trace, place), 0.0, node.label)
            for place in places
        ]
        touched: list[list[int]] = [[entry] for entry in entries]
        if node.operation == "barrier":
            touched = [entries for _ in ranks]
        elif len(ranks) > 1:
            graph = self._graph(node.operation, ranks, node.root)
            if node.parts:
                parts = (trace.node(place).parts for place in places)
                base = self._add_parts(chain.from_iterable(parts))
            else:
                size_bytes = node.size_bytes * _copies(node.operation, len(ranks))
                base = self._add_chunks(size_bytes, graph.chunks)
            self._add_graph(graph, base, ranks, entries, touched, node.label)
        for place, entry, steps in zip(places, entries, touched, strict=True):
            last = self._add_local(place.rank, tuple(sorted(set(steps))), 0.0, node.label)
            self._last_step[place] = last
            self._tasks.append(IterationTask(place, entry, last))

    def _add_graph(
        self,
        graph: TransferGraph,
        base: int,
        ranks: Sequence[int],
        entries: Sequence[int],
        touched: list[list[int]],
        label: str,
    ) -> None:
        """Add the transfers of a graph among some ranks; note the steps that touch each rank.

        A transfer waits for the entry of its two ranks, unless another transfer that touches the
        rank comes before it.
        """
        numbers: list[int] = []
        for one in graph.transfers:
            after = {numbers[other] for other in one.after}
            for rank in (one.sender, one.receiver):
                if not any(
                    rank in (graph.transfers[other].sender, graph.transfers[other].receiver)
                    for other in one.after
                ):
                    after.add(entries[rank])
            number = self._add_transfer(
                Transfer(
                    ranks[one.sender],
                    ranks[one.receiver],
                    base + one.first,
                    one.size,
                    one.reduce,
                    one.step,
                    tuple(sorted(after)),
                ),
                label,
            )
            numbers.append(number)
            touched[one.sender].append(number)
            touched[one.receiver].append(number)
        for at, rank in enumerate(ranks):
            self._begins[rank] += (base + chunk for chunk in graph.begins[at])
            self._ends[rank] += (base + chunk for chunk in graph.ends[at])

    def _graph(self, operation: str, ranks: Sequence[int], root: int) -> TransferGraph:
        """Return the transfer graph of an operation among some ranks."""
        key = (operation, tuple(ranks), root)
        if key not in self._graphs:
            if operation in ("reduce", "gather", "scatter"):
                self._graphs[key] = _rooted_graph(operation, len(ranks), root)
            else:
                name = OTHER_ALGORITHMS.get(operation, self._algorithm)
                servers = tuple(self._servers[rank] for rank in ranks)
                options = {**self._options, "root": root}
                request = AlgorithmRequest(self._topology, servers, options)
                self._graphs[key] = ALGORITHMS[operation][name](request)
        return self._graphs[key]

    def finished_plan(self, trace: Trace) -> IterationPlan:
        """Return the plan of all added nodes."""
        begins: tuple[Chunks, ...] = tuple(map(tuple, self._begins))
        ends: tuple[Chunks, ...] = tuple(map(tuple, self._ends))
        graph = TransferGraph(
            len(self._servers), len(self._offsets) - 1, begins, ends, tuple(self._steps)
        )
        return IterationPlan(
            operation=TRAINING,
            algorithm=self._algorithm,
            graph=graph,
            servers=self._servers,
            size_bytes=self._offsets[-1],
            trace=trace,
            offsets=tuple(self._offsets),
            processors=self._processors,
            labels=tuple(self._labels),
            tasks=tuple(self._tasks),
        )


def _copies(operation: str, ranks: int) -> int:
    """Return the size of an operation's data, relative to that of a rank before the operation."""
    return ranks if operation in ("total-exchange", "all-gather", "gather") else 1


def _rooted_graph(operation: str, ranks: int, root: int) -> TransferGraph:
    """Return the transfers of a reduce, gather or scatter: between the root and each other rank."""
    builder, whole = TransferGraphBuilder(), range(1 if operation == "reduce" else ranks)
    for rank in range(ranks):
        if rank != root:
            ends = (root, rank) if operation == "scatter" else (rank, root)
            chunk = 0 if operation == "reduce" else rank
            builder.add_transfer(*ends, chunk, reduce=operation == "reduce", step=0)
    own: list[Chunks] = [whole if operation == "reduce" else (rank,) for rank in range(ranks)]
    at_root: list[Chunks] = [whole if rank == root else () for rank in range(ranks)]
    if operation == "scatter":
        return builder.finished_graph(at_root, own)
    return builder.finished_graph(own, at_root)
