"""Heart-beat schedules: groups of ports that hear each other, and groups that send together.

The sender in heartbeat_pacer.py uses these schedules. Between two intervals all objects are evicted
from the processor's caches, and fetching each of them takes longer than Python's work on it.
Therefore the heart-beats that go round are prepared once for all segments of a tick, in as few
objects as possible.
"""

from __future__ import annotations

import os
import socket
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd, lcm
from typing import NamedTuple

from hosts.live.liveness import LONGEST_ANSWER, HeardTable

MAC_AT, MAC_END = 6, 12  # first and end byte of a frame's source MAC address
TO_ALL = 20  # broadcasts after a missed heart-beat, before heart-beats go round again
MOST_REPEATS = 3  # upper bound for repetitions of one heart-beat broadcast
MOST_MADE = 64  # upper bound for prepared rounds of heart-beats per tick


@dataclass(eq=False)
class BeatPort:
    """A server's port, which sends and receives heart-beats."""

    server: int
    socket: socket.socket
    segment: int
    hears: dict[int, int]  # indices of its links in the kernel's table, by neighbour
    frame: bytes = b""  # broadcast heart-beat; nothing is sent while it is empty

    def to(self, hearer: BeatPort) -> bytes:
        """Return this port's heart-beat as a unicast frame to another port."""
        return hearer.frame[MAC_AT:MAC_END] + self.frame[MAC_AT:]


class Burst(NamedTuple):
    """Heart-beats that are sent together, and the links by which they should be received."""

    sockets: array[int]
    ends: array[int]  # end of each socket's frame in `frames`
    frames: memoryview
    places: array[int]  # indices of the links by which these heart-beats are received

    @classmethod
    def of(cls, frames: list[tuple[BeatPort, bytes]], places: list[int]) -> Burst:
        """Return a burst of one frame per port, received by the links at `places`."""
        text, ends = bytearray(), array("I")
        for _, frame in frames:
            text += frame
            ends.append(len(text))
        sockets = array("i", [port.socket.fileno() for port, _ in frames])
        return cls(sockets, ends, memoryview(bytes(text)), array("I", places))

    def send(self) -> int:
        """Send the burst's heart-beats; return the time at which sending started, in ns."""
        now_ns, begin = time.monotonic_ns(), 0
        for descriptor, end in zip(self.sockets, self.ends, strict=True):
            frame, begin = self.frames[begin:end], end
            try:
                os.write(descriptor, frame)
            except OSError:  # cut cable or full queue: the heart-beat is lost
                continue
        return now_ns


@dataclass(eq=False)
class Segment:
    """A group of ports that hear each other, such as the ports on one switch."""

    tick: Tick
    ports: list[BeatPort] = field(default_factory=list)
    sent_ns: int = 0  # start time of the last broadcast, in ns
    repeats: int = 0  # remaining repetitions of the last broadcast
    cell: int = 0  # the segment's number in the kernel's table, 0 before it has one
    is_whole: bool = True  # True if all neighbours of these ports are in the segment
    to_all: int = 0  # remaining broadcasts before heart-beats go round
    goes_round: bool = False
    _each_hears_all: bool = False
    _burst: Burst | None = None  # the prepared broadcast of the segment's heart-beats

    def __post_init__(self) -> None:
        self.tick.segments.append(self)

    def join(self, port: BeatPort) -> None:
        """Add a port to the segment's members."""
        self.ports.append(port)
        self._update_members()

    def leave(self, port: BeatPort) -> None:
        """Remove a port from the segment."""
        self.ports.remove(port)
        self._update_members()

    def _update_members(self) -> None:
        here, others = {port.server for port in self.ports}, len(self.ports) - 1
        self.is_whole = all(port.hears.keys() <= here for port in self.ports)
        self._each_hears_all = all(len(port.hears) == others for port in self.ports)
        self.cell = 0  # get a new cell number: links of removed ports still have the old one
        self.begin_anew()

    def begin_anew(self) -> None:
        """Broadcast the segment's heart-beats again, after one of them has changed."""
        self.tick.put(self, goes_round=False)
        self._burst = None

    def beat(self) -> None:
        """Broadcast the heart-beats of all ports of the segment."""
        self.sent_ns = self._broadcast.send()

    @property
    def _broadcast(self) -> Burst:
        if self._burst is None:
            here = {port.server for port in self.ports}
            links = [link for port in self.ports for link in port.hears.items()]
            self._burst = Burst.of(
                [(port, port.frame) for port in self.ports if port.frame],
                [place for neighbour, place in links if neighbour in here],
            )
        return self._burst

    def is_missed(self, table: HeardTable) -> bool:
        """Return True if the last broadcast must be repeated; else go round when due."""
        places = self._broadcast.places
        if self.is_whole and self._each_hears_all and table.are_well(places, self.sent_ns):
            self.to_all -= 1
            if self.to_all <= 0 and len(self.ports) > 1:
                self._go_round(table)
            return False
        return bool(self.repeats) and table.is_missing(places, self.sent_ns)

    def _go_round(self, table: HeardTable) -> None:
        """Let heart-beats go round: a port that receives one sends its own to the next port."""
        ports = self.ports
        if max(len(port.frame) for port in ports) > LONGEST_ANSWER:
            return
        self.cell = table.join(self._broadcast.places, self.cell)
        if not self.cell:
            return
        for turn in range(1, len(ports)):
            for at, port in enumerate(ports):
                is_first = at < gcd(turn, len(ports))
                answer = b"" if is_first else port.to(ports[(at + turn) % len(ports)])
                table.answer(port.hears[ports[at - turn].server], answer)
        self.tick.put(self, goes_round=True)

    def firsts(self, turn: int) -> list[tuple[BeatPort, bytes]]:
        """Return the frames that the pacer sends; `turn` is the receiver's distance in `ports`."""
        first = self.ports[: gcd(turn, len(self.ports))]
        return [(port, port.to(self.ports[at + turn])) for at, port in enumerate(first)]

    def heard(self, turn: int) -> list[int]:
        """Return the indices of the links by which heart-beats are received in a turn."""
        return [port.hears[self.ports[at - turn].server] for at, port in enumerate(self.ports)]

    def break_off(self) -> None:
        """Stop heart-beats from going round, and broadcast for a while."""
        self.tick.put(self, goes_round=False)
        self.to_all, self.repeats = TO_ALL, MOST_REPEATS


class Round(NamedTuple):
    """One round: the heart-beats that go round in all segments of a tick, at one turn of each."""

    burst: Burst
    cells: array[int]
    parts: list[tuple[Segment, int, list[int]]]  # segment, its cell, and its links' indices

    @classmethod
    def of(cls, segments: list[Segment], count: int) -> Round:
        """Return the prepared round number `count`."""
        turns = [(segment, count % (len(segment.ports) - 1) + 1) for segment in segments]
        parts = [(segment, segment.cell, segment.heard(turn)) for segment, turn in turns]
        burst = Burst.of(
            [first for segment, turn in turns for first in segment.firsts(turn)],
            [place for _, _, places in parts for place in places],
        )
        return cls(burst, array("I", [cell for _, cell, _ in parts]), parts)

    def confirm(self, table: HeardTable, since_ns: int) -> Iterator[Segment]:
        """Mark all neighbours heard since `since_ns` as heard; yield segments that missed one."""
        if table.are_heard(self.burst.places, since_ns):
            for cell in self.cells:
                table.vouch(cell, since_ns)
            return
        for segment, cell, places in self.parts:
            if table.are_heard(places, since_ns):
                table.vouch(cell, since_ns)
            elif segment.goes_round:
                segment.break_off()
                yield segment


class Tick:
    """Segments whose heart-beats are sent at the same time."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []  # segments that broadcast
        self._rotating: list[Segment] = []  # segments where heart-beats go round
        self._count = 0  # number of the last round of heart-beats
        self._period = 1  # number of different rounds of heart-beats
        self._prepared_rounds: dict[int, Round] = {}

    def __len__(self) -> int:
        return len(self.segments) + len(self._rotating)

    def put(self, segment: Segment, *, goes_round: bool) -> None:
        """Let a segment's heart-beats go round from now on, or be broadcast."""
        if goes_round != segment.goes_round:
            segment.goes_round = goes_round
            (self.segments if goes_round else self._rotating).remove(segment)
            (self._rotating if goes_round else self.segments).append(segment)
            self._period = lcm(*(len(one.ports) - 1 for one in self._rotating))
            self._prepared_rounds.clear()

    def next_round(self) -> Round | None:
        """Return the next round of heart-beats, None if they go round in no segment."""
        if not self._rotating:
            return None
        self._count = (self._count + 1) % self._period
        if self._count not in self._prepared_rounds:
            if len(self._prepared_rounds) == MOST_MADE:
                self._prepared_rounds.clear()
            self._prepared_rounds[self._count] = Round.of(self._rotating, self._count)
        return self._prepared_rounds[self._count]
