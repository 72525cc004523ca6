"""Process that runs a collective operation: the generator's loop, but with real data.

The process holds every rank's data, arrays of int32 drawn from the seed. A transfer starts when all
transfers that it needs have arrived; its bytes are read from the sender's array, sent through the
network, and added to the receiver's array as they arrive, or written into it. After the last
transfer every rank's data is compared with the sums, which are drawn and added again without any
network.

All transfers between two ranks share a connection, in the order in which they become ready.

A training iteration also has local steps. A computation is a wait of its duration: a processor of a
rank runs one after the other, in the order in which they become ready. A step without duration ends
when all steps that it needs have ended.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy
from numpy.typing import NDArray

from pillarbox.experiments.lab.traffic.generator_sockets import FlowConnection
from pillarbox.experiments.lab.traffic.generator_worker import (
    FlowEventLoop,
    GeneratorTask,
    ServerDeathReader,
    main,
)
from pillarbox.experiments.models.workloads.collectives.graph import Transfer, TransferGraph

Numbers: TypeAlias = NDArray[numpy.int32]
ELEMENT_BYTES = 4
SEND_BYTES = 1 << 18  # maximum number of bytes in one send call
BUFFER = bytearray(1 << 18)
EPOLL_S = 1e-3  # resolution of epoll's timeout in seconds
NAP_S = 1e-4  # maximum time without a look at sockets before a timed event, in seconds


class CollectiveTask(GeneratorTask):
    """JSON task of the process that runs a collective operation; a flow connects two ranks."""

    transfers: list[list[Any]]  # constructor arguments of each `Transfer`
    # Number of the flow that carries each transfer. A computation has a larger number, that of its
    # processor, and a local step without duration a negative one.
    flow_of: list[int]
    offsets: list[int]  # byte offset of each chunk in the data, and the end of the last
    begins: list[list[int]]  # chunks that each rank has at the start
    ends: list[list[int]]
    servers: list[int]  # server that runs each rank
    seed: int


def initial_rank_data(seed: int, rank: int, chunk: int, size_bytes: int) -> Numbers:
    """Return the random data of a chunk that a rank has before a collective operation."""
    draw = numpy.random.Generator(numpy.random.SFC64([seed, rank, chunk]))
    return numpy.frombuffer(draw.bytes(size_bytes), numpy.int32)


class RankDataStore:
    """Data of all ranks of a collective operation: each rank's chunks, in order of number."""

    def __init__(self, graph: TransferGraph, offsets: list[int], seed: int) -> None:
        self._graph, self._offsets, self._seed = graph, offsets, seed
        touched = [{*begins, *ends} for begins, ends in zip(graph.begins, graph.ends, strict=True)]
        for one in graph.transfers:
            touched[one.sender].update(one.chunks)
            touched[one.receiver].update(one.chunks)
        self._places: list[dict[int, int]] = []
        self._data: list[Numbers] = []
        for rank, chunks in enumerate(touched):
            places, size = {}, 0
            for chunk in sorted(chunks):
                places[chunk] = size
                size += self._chunk_bytes(chunk)
            self._places.append(places)
            self._data.append(numpy.zeros(size // ELEMENT_BYTES, numpy.int32))
            for chunk in graph.begins[rank]:
                self.chunk_data(rank, chunk)[:] = initial_rank_data(
                    seed, rank, chunk, self._chunk_bytes(chunk)
                )

    def _chunk_bytes(self, chunk: int, count: int = 1) -> int:
        return self._offsets[chunk + count] - self._offsets[chunk]

    def chunk_data(self, rank: int, chunk: int, count: int = 1) -> Numbers:
        """Return a rank's data of `count` chunks from `chunk` on, as a writable array."""
        begin = self._places[rank][chunk] // ELEMENT_BYTES
        return self._data[rank][begin : begin + self._chunk_bytes(chunk, count) // ELEMENT_BYTES]

    def ranks_with_wrong_sums(self) -> Iterator[int]:
        """Yield the ranks whose data is not the expected sum after the collective operation."""
        holders: dict[int, list[int]] = {}
        for rank, held in enumerate(self._graph.begins):
            for chunk in held:
                holders.setdefault(chunk, []).append(rank)
        wanting: dict[int, list[int]] = {}
        for rank, wanted in enumerate(self._graph.ends):
            for chunk in wanted:
                wanting.setdefault(chunk, []).append(rank)
        found = set()
        for chunk, ranks in wanting.items():
            size = self._chunk_bytes(chunk)
            total = numpy.zeros(size // ELEMENT_BYTES, numpy.int32)
            for holder in holders[chunk]:
                total += initial_rank_data(self._seed, holder, chunk, size)
            found |= {rank for rank in ranks if not (self.chunk_data(rank, chunk) == total).all()}
        yield from sorted(found)


class StepInProgress:
    """A step of a collective operation or training iteration, with its dependencies and times."""

    def __init__(self, transfer: Transfer, flow: int) -> None:
        self.flow, self.lasts_s = flow, transfer.lasts_s
        self.waits_for = len(transfer.after)
        self.needed_by: list[StepInProgress] = []
        self.latest_s = 0.0  # latest end of a step that this one waits for
        self.ready_s: float | None = None
        self.begin_s: float | None = None
        self.end_s: float | None = None


class TransferInProgress(StepInProgress):
    """A transfer between two ranks of a collective operation, with its data and times."""

    def __init__(self, transfer: Transfer, flow: int, store: RankDataStore) -> None:
        super().__init__(transfer, flow)
        self.reduce = transfer.reduce
        self.target = store.chunk_data(transfer.receiver, transfer.first, transfer.size)
        source = store.chunk_data(transfer.sender, transfer.first, transfer.size)
        self.unsent = source.view(numpy.uint8).data
        self.unwritten = self.target.view(numpy.uint8).data
        # number of elements added to the receiver's sum; received bytes of an incomplete element
        self.added, self.rest = 0, b""

    @property
    def remaining_bytes(self) -> int:
        """Number of bytes of the transfer that have not arrived."""
        return len(self.unwritten)

    def receive(self, receiver: Any) -> int:
        """Receive the transfer's available data; return its size, 0 if the peer has closed."""
        if not self.reduce:
            arrived = int(receiver.recv_into(self.unwritten))
            self.unwritten = self.unwritten[arrived:]
            return arrived
        kept = len(self.rest)
        most = min(len(BUFFER) - kept, self.remaining_bytes)
        view = memoryview(BUFFER)
        arrived = int(receiver.recv_into(view[kept : kept + most]))
        BUFFER[:kept] = self.rest
        whole = (kept + arrived) // ELEMENT_BYTES
        self.target[self.added : self.added + whole] += numpy.frombuffer(BUFFER, numpy.int32, whole)
        self.added += whole
        self.rest = bytes(view[whole * ELEMENT_BYTES : kept + arrived])
        self.unwritten = self.unwritten[arrived:]
        return arrived


class CollectiveLoop(FlowEventLoop):
    """Event loop of a collective operation: ends when all transfers have arrived, or one failed."""

    def __init__(
        self, connections: list[FlowConnection], task: CollectiveTask, deaths: ServerDeathReader
    ) -> None:
        super().__init__(connections, task, deaths)
        transfers = tuple(Transfer(*fields) for fields in task["transfers"])
        ranks = len(task["servers"])
        graph = TransferGraph(
            ranks, len(task["offsets"]) - 1, tuple(task["begins"]), tuple(task["ends"]), transfers
        )
        self._store = RankDataStore(graph, task["offsets"], task["seed"])
        self._servers = task["servers"]
        self._steps = [
            StepInProgress(one, flow)
            if one.sender == one.receiver
            else TransferInProgress(one, flow, self._store)
            for one, flow in zip(transfers, task["flow_of"], strict=True)
        ]
        for step, one in zip(self._steps, transfers, strict=True):
            for needed in one.after:
                self._steps[needed].needed_by.append(step)
        # The loop runs until all flows and, in addition, all steps have ended.
        self._unended_steps = len(self._steps)
        self._left += 1
        self._unmarked: int | None = None  # last flow, marked as ended after the last step
        self._computing: defaultdict[int, deque[StepInProgress]] = defaultdict(deque)
        self._idle_s: defaultdict[int, float] = defaultdict(float)  # idle from, by processor
        self._sending: list[deque[TransferInProgress]] = [deque() for _ in connections]
        self._arriving: list[deque[TransferInProgress]] = [deque() for _ in connections]
        for failed in [one for one in connections if one.ended]:
            self._abort_others(failed)

    def run(self, barrier_s: float) -> dict[str, Any]:
        """Run a collective operation and check its sums; return cost and times of transfers."""
        self._now = barrier_s
        if self._unended_steps:
            ready = [step for step in self._steps if not step.waits_for]
            for step in ready:
                step.latest_s = barrier_s
            self._schedule(barrier_s, self._begin_steps, ready)
        cost = super().run(barrier_s)
        if not any(one.reason for one in self.connections):
            for rank in self._store.ranks_with_wrong_sums():
                self._fail_flows_with_wrong_sums(self._servers[rank])
        return {**cost, "transfers": [self._step_times_s(one) for one in self._steps]}

    def _step_times_s(self, one: StepInProgress) -> list[float | None]:
        return [
            None if moment is None else round(moment - self._barrier_s, 6)
            for moment in (one.ready_s, one.begin_s, one.end_s)
        ]

    def _fail_flows_with_wrong_sums(self, server: int) -> None:
        """Mark all flows to a server as failed, since the server's sums are wrong."""
        for one in self.connections:
            if one.flow.destination == server:
                one.reason = f"server {self._names[server]} ended with wrong sums"

    def _begin_steps(self, ready: list[StepInProgress]) -> None:
        """Begin steps whose dependencies have ended, and those that only wait for these steps."""
        for step in ready:
            if not self._unended_steps:  # the operation was aborted
                return
            step.ready_s = step.latest_s
            if isinstance(step, TransferInProgress):
                self._sending[step.flow].append(step)
                self._arriving[step.flow].append(step)
                self._poll_writable(self.connections[step.flow], True)
            elif step.flow < 0:
                step.begin_s = step.ready_s
                ready += self._end_step(step, step.ready_s)
            else:
                self._computing[step.flow].append(step)
                if len(self._computing[step.flow]) == 1:
                    self._compute(step)

    def _ready_sockets(self, wait_s: float) -> list[tuple[int, int]]:
        """Return ready sockets; do not delay the end of a computation by a millisecond.

        The timeout of epoll is rounded up to whole milliseconds.
        """
        if wait_s > EPOLL_S:
            return super()._ready_sockets(wait_s - EPOLL_S)
        ready = super()._ready_sockets(0.0)
        if not ready and wait_s > 0:
            time.sleep(min(wait_s, NAP_S))
        return ready

    def _compute(self, step: StepInProgress) -> None:
        step.begin_s = max(step.latest_s, self._idle_s[step.flow])
        self._idle_s[step.flow] = end_s = step.begin_s + step.lasts_s
        self._schedule(end_s, self._end_computation, step, end_s)

    def _end_computation(self, step: StepInProgress, due_s: float) -> None:
        """End a computation at its due time, so that delays of this process do not add up."""
        queue = self._computing[step.flow]
        queue.popleft()
        onward = self._end_step(step, due_s)
        if queue:
            self._compute(queue[0])
        self._begin_steps(onward)

    def _end_step(self, step: StepInProgress, end_s: float) -> list[StepInProgress]:
        """Record a step's end; return the steps that can begin now."""
        step.end_s = end_s
        self._unended_steps -= 1
        if not self._unended_steps:
            self._end_of_steps()
        ready = []
        for onward in step.needed_by:
            onward.waits_for -= 1
            onward.latest_s = max(onward.latest_s, end_s)
            if not onward.waits_for:
                ready.append(onward)
        return ready

    def _end_of_steps(self) -> None:
        """Let the loop end: all steps have ended, or the operation was aborted."""
        self._unended_steps = 0
        self._left -= 1
        if self._unmarked is not None:
            super()._mark_ended(self._unmarked)

    def _mark_ended(self, number: int) -> None:
        """Report the end of a flow; that of the last flow not before the last computation."""
        if self._unended_steps and self._left == 2:  # this flow, and the steps
            self._unmarked = number
        else:
            super()._mark_ended(number)

    def _send(self, one: FlowConnection) -> None:
        assert one.sender is not None
        queue = self._sending[one.flow.number]
        if queue:
            moving = queue[0]
            sent = one.sender.send(moving.unsent[:SEND_BYTES])
            moving.unsent = moving.unsent[sent:]
            one.sent += sent
            moving.begin_s = moving.begin_s or self._now
            one.begin_s = one.begin_s or self._now
            if not moving.unsent:
                queue.popleft()
        elif one.flow.number in self._idle:
            self._fail_closed(one)
            return
        self._poll_writable(one, bool(queue))

    def _receive(self, one: FlowConnection) -> None:
        assert one.receiver is not None
        queue = self._arriving[one.flow.number]
        arrived = queue[0].receive(one.receiver) if queue else len(one.receiver.recv(1))
        whole = self._count_delivered(one, arrived)
        if arrived and not queue[0].remaining_bytes:
            self._begin_steps(self._end_step(queue.popleft(), self._now))
        if whole:
            self._end(one)

    def _end(self, one: FlowConnection, reason: str = "") -> None:
        super()._end(one, reason)
        if reason:
            self._abort_others(one)

    def _abort_others(self, failed: FlowConnection) -> None:
        """Abort all flows of a collective operation after one failed: no rank gets its sum."""
        ends = (self._names[end] for end in (failed.flow.source, failed.flow.destination))
        flow = f"the flow {' to '.join(ends)} failed ({failed.reason})"
        reason = f"the collective operation was broken off: {flow}"
        if self._unended_steps:
            self._end_of_steps()
        for other in self.connections:
            if other.ended:
                continue
            if other.flow.number in self._running:
                super()._end(other, reason)
            else:  # before the barrier: the flow does not run yet
                other.fail(reason)


if __name__ == "__main__":
    main(CollectiveLoop)
