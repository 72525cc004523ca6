"""Process that distributes a file: the generator's loop, but servers pass received data on.

The hops of a tree are connections, each between two servers. The source generates its part of the
file while it sends; a relay keeps received data until all of its outgoing connections have sent it,
and passes it on from the first byte. A slow receiver does not slow down a fast one, as if every
server had the file on its disk.

A tree's part of the file is a sequence of pieces that start with the tree's number and their own:
lost, duplicated or misplaced pieces are detected. Every receiver's bytes are compared with the
source's as they arrive. (Hashing would take more processor time than transport: then results would
show this process instead of the network.)
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Iterator
from itertools import islice

from experiments.traffic.generator_sockets import FlowConnection
from experiments.traffic.generator_worker import Deaths, GeneratorTask, Loop, main

PIECE_BYTES = 1 << 16
PERIOD_BYTES = 1 << 20  # length of the random bytes, of which each piece is a different section
NUMBERS = struct.Struct("=II")
# step between sections, a prime: pieces with related numbers have different content
SHIFT = 4099
AT_ONCE = 16  # maximum number of the distributed file's pieces that one sendmsg call sends


class DistributionTask(GeneratorTask):
    """Task of the process that distributes a file; its flows are hops."""

    source: int
    trees: list[int]  # tree of each flow's hop
    seed: int


class Content:
    """Generated content of a file, by its seed: one part for each tree."""

    def __init__(self, seed: int) -> None:
        period = random.Random(seed).randbytes(PERIOD_BYTES)
        self._endless = memoryview(period + period[:PIECE_BYTES])

    def pieces(self, tree: int, size_bytes: int) -> Iterator[bytes]:
        """Yield a tree's part of the file, from its first byte on."""
        for number, begin in enumerate(range(0, size_bytes, PIECE_BYTES)):
            place = (number + tree) * SHIFT % PERIOD_BYTES
            piece = NUMBERS.pack(tree, number) + self._endless[place : place + PIECE_BYTES - 8]
            yield piece[: size_bytes - begin]


class PieceChecker:
    """Comparison of arriving data with the expected pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.right = True  # whether all received data is as expected
        self._pieces, self._next = pieces, memoryview(b"")

    def take(self, arrived: bytes) -> None:
        """Compare the next received bytes with the file's expected pieces."""
        at = 0
        while self.right and at < len(arrived):
            self._next = self._next or memoryview(next(self._pieces, b""))
            part = self._next[: len(arrived) - at]
            # Comparing views with == goes byte by byte, a hundred times as slowly.
            self.right = bool(part) and arrived.startswith(part, at)
            at += len(part)
            self._next = self._next[len(part) :]


class RelayConnection:
    """A file distribution's hop: data still to send, data received, and the next hops."""

    def __init__(
        self, connection: FlowConnection, expected: Iterator[bytes], made_up: Iterator[bytes]
    ) -> None:
        self.connection, self.made_up = connection, made_up
        self.onward: list[RelayConnection] = []
        self.waiting: deque[memoryview] = deque()  # data shared with the next hops
        self.received = PieceChecker(expected)
        self._refill()

    def _refill(self) -> None:
        """Generate the source's next pieces; a relay generates none."""
        if len(self.waiting) < AT_ONCE:
            self.waiting.extend(map(memoryview, islice(self.made_up, AT_ONCE)))

    def send(self) -> int:
        """Send waiting data without blocking; return the number of bytes sent."""
        assert self.connection.sender is not None
        sent = left = self.connection.sender.sendmsg(list(islice(self.waiting, AT_ONCE)))
        while left:
            piece = self.waiting.popleft()
            if left < len(piece):
                self.waiting.appendleft(piece[left:])
            left -= min(left, len(piece))
        self._refill()
        return sent


class Relaying(Loop):
    """Event loop that runs until every receiver has its file or cannot get it."""

    def __init__(
        self, connections: list[FlowConnection], task: DistributionTask, deaths: Deaths
    ) -> None:
        super().__init__(connections, task, deaths)
        content = Content(task["seed"])
        sizes = {tree: one.flow.volume_bytes or 0 for one, tree in self._with_trees(task)}
        feeds: dict[tuple[int, int], RelayConnection] = {}  # hops by tree and receiver
        self._hops: list[RelayConnection] = []
        for one, tree in self._with_trees(task):
            from_source = one.flow.source == task["source"]
            made_up = content.pieces(tree, sizes[tree]) if from_source else iter(())
            hop = RelayConnection(one, content.pieces(tree, sizes[tree]), made_up)
            if not from_source:
                feeds[tree, one.flow.source].onward.append(hop)
            feeds[tree, one.flow.destination] = hop
            self._hops.append(hop)
        for hop in self._hops:  # order: a failed hop precedes its next hops
            for onward in hop.onward if hop.connection.ended else ():
                onward.connection.fail(self._relay_failure_reason(hop))

    def _with_trees(self, task: DistributionTask) -> Iterator[tuple[FlowConnection, int]]:
        return zip(self.connections, task["trees"], strict=True)

    def _send(self, one: FlowConnection) -> None:
        hop = self._hops[one.flow.number]
        if hop.waiting:
            one.sent += hop.send()
            if one.begin_s is None:
                one.begin_s = self._now
        elif one.flow.number in self._idle:
            self._fail_closed(one)
            return
        self._poll_writable(one, bool(hop.waiting))

    def _receive(self, one: FlowConnection) -> None:
        assert one.receiver is not None
        arrived = one.receiver.recv(PIECE_BYTES)
        whole, hop = self._count(one, len(arrived)), self._hops[one.flow.number]
        hop.received.take(arrived)
        for onward in hop.onward:
            if arrived and not onward.connection.ended:
                onward.waiting.append(memoryview(arrived))
                self._poll_writable(onward.connection, True)
        if whole:
            right = hop.received.right
            self._end(one, "" if right else "what arrived is not what the source sent")

    def _end(self, one: FlowConnection, reason: str = "") -> None:
        super()._end(one, reason)
        hop = self._hops[one.flow.number]
        for onward in hop.onward if reason else ():
            if not onward.connection.ended:
                self._end(onward.connection, self._relay_failure_reason(hop))

    def _relay_failure_reason(self, hop: RelayConnection) -> str:
        return f"server {self._names[hop.connection.flow.destination]} had no more to pass on"


if __name__ == "__main__":
    main(Relaying)
