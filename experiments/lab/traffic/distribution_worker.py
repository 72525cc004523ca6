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

from pillarbox.experiments.lab.traffic.generator_sockets import FlowConnection
from pillarbox.experiments.lab.traffic.generator_worker import (
    FlowEventLoop,
    GeneratorTask,
    ServerDeathReader,
    main,
)

PIECE_BYTES = 1 << 16
PERIOD_BYTES = 1 << 20  # length of the random bytes; each piece of the file is a section of them
NUMBERS = struct.Struct("=II")
# bytes from section to section, a prime: pieces with related numbers have different content
SHIFT = 4099
AT_ONCE = 16  # maximum number of pieces of the distributed file per sendmsg call


class DistributionTask(GeneratorTask):
    """JSON task of the process that distributes a file; each flow is a hop of a tree."""

    source: int
    trees: list[int]  # number of the distribution tree to which each flow belongs
    seed: int


class GeneratedContent:
    """Random content of a distributed file, by its seed: a part for each tree."""

    def __init__(self, seed: int) -> None:
        period = random.Random(seed).randbytes(PERIOD_BYTES)
        self._endless = memoryview(period + period[:PIECE_BYTES])

    def pieces(self, tree: int, size_bytes: int) -> Iterator[bytes]:
        """Yield the pieces of the distributed file that a tree carries, in order."""
        for number, begin in enumerate(range(0, size_bytes, PIECE_BYTES)):
            place = (number + tree) * SHIFT % PERIOD_BYTES
            piece = NUMBERS.pack(tree, number) + self._endless[place : place + PIECE_BYTES - 8]
            yield piece[: size_bytes - begin]


class PieceChecker:
    """Compares a server's received data with the pieces of the distributed file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.matches = True  # whether all data received so far is as expected
        self._pieces, self._next = pieces, memoryview(b"")

    def check(self, arrived: bytes) -> None:
        """Compare the next received bytes with the expected bytes of the distributed file."""
        at = 0
        while self.matches and at < len(arrived):
            self._next = self._next or memoryview(next(self._pieces, b""))
            part = self._next[: len(arrived) - at]
            # startswith(), as == of memoryviews is a hundred times slower: it goes byte by byte
            self.matches = bool(part) and arrived.startswith(part, at)
            at += len(part)
            self._next = self._next[len(part) :]


class RelayConnection:
    """A hop of a file distribution: data to send, a check of received data, and next hops."""

    def __init__(
        self, connection: FlowConnection, expected: Iterator[bytes], generated: Iterator[bytes]
    ) -> None:
        self.connection, self.generated = connection, generated
        self.onward: list[RelayConnection] = []
        self.waiting: deque[memoryview] = (
            deque()
        )  # pieces to send; a piece that several hops send is stored once
        self.received = PieceChecker(expected)
        self._generate_pieces()

    def _generate_pieces(self) -> None:
        """Generate the file's next pieces to send, at its source only; relays have no generator."""
        if len(self.waiting) < AT_ONCE:
            self.waiting.extend(map(memoryview, islice(self.generated, AT_ONCE)))

    def send(self) -> int:
        """Send waiting pieces of the file without blocking; return the number of bytes sent."""
        assert self.connection.sender is not None
        sent = left = self.connection.sender.sendmsg(list(islice(self.waiting, AT_ONCE)))
        while left:
            piece = self.waiting.popleft()
            if left < len(piece):
                self.waiting.appendleft(piece[left:])
            left -= min(left, len(piece))
        self._generate_pieces()
        return sent


class FileDistributionLoop(FlowEventLoop):
    """Event loop of a file distribution: runs until every receiver has the file or has failed."""

    def __init__(
        self, connections: list[FlowConnection], task: DistributionTask, deaths: ServerDeathReader
    ) -> None:
        super().__init__(connections, task, deaths)
        content = GeneratedContent(task["seed"])
        sizes = {
            tree: one.flow.volume_bytes or 0 for one, tree in self._connections_with_trees(task)
        }
        feeds: dict[tuple[int, int], RelayConnection] = {}  # hop to each receiver, by tree
        self._hops: list[RelayConnection] = []
        for one, tree in self._connections_with_trees(task):
            from_source = one.flow.source == task["source"]
            generated = content.pieces(tree, sizes[tree]) if from_source else iter(())
            hop = RelayConnection(one, content.pieces(tree, sizes[tree]), generated)
            if not from_source:
                feeds[tree, one.flow.source].onward.append(hop)
            feeds[tree, one.flow.destination] = hop
            self._hops.append(hop)
        for hop in self._hops:  # hops are in tree order, so that failures reach all later hops
            for onward in hop.onward if hop.connection.ended else ():
                onward.connection.fail(self._relay_failure_reason(hop))

    def _connections_with_trees(
        self, task: DistributionTask
    ) -> Iterator[tuple[FlowConnection, int]]:
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
        whole, hop = self._count_delivered(one, len(arrived)), self._hops[one.flow.number]
        hop.received.check(arrived)
        for onward in hop.onward:
            if arrived and not onward.connection.ended:
                onward.waiting.append(memoryview(arrived))
                self._poll_writable(onward.connection, True)
        if whole:
            right = hop.received.matches
            self._end(
                one,
                "" if right else "the receiver's data differs from the file that the source sent",
            )

    def _end(self, one: FlowConnection, reason: str = "") -> None:
        super()._end(one, reason)
        hop = self._hops[one.flow.number]
        for onward in hop.onward if reason else ():
            if not onward.connection.ended:
                self._end(onward.connection, self._relay_failure_reason(hop))

    def _relay_failure_reason(self, hop: RelayConnection) -> str:
        relay = self._names[hop.connection.flow.destination]
        return f"the relay server {relay} had no more to pass on"


if __name__ == "__main__":
    main(FileDistributionLoop)
