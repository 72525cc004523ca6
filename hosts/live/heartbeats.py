"""Heartbeat schedules: groups of ports that hear each other, and groups that send together.

The sender in heartbeat_pacer.py uses these schedules. Between two intervals all objects are evicted
from the processor's caches, and fetching each of them takes longer than Python's work on it.
Therefore the heartbeats that go round are prepared once for all segments of a tick, in as few
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

from pillarbox.hosts.live.liveness import LONGEST_ANSWER, NeighbourLinkTable

# Offsets of the first byte of a frame's source MAC address and the byte after it.
MAC_AT, MAC_END = 6, 12
TO_ALL = 20  # number of broadcasts after a missed heartbeat, before unicast rounds start again
MOST_REPEATS = 3  # maximum number of repetitions of one heartbeat broadcast
MOST_MADE = 64  # maximum number of stored rounds of unicast heartbeats per tick


@dataclass(eq=False)
class BeatingPort:
    """A server's port that sends heartbeats, with its socket and its frame."""

    server: int
    socket: socket.socket
    segment: int
    hears: dict[int, int]  # indices of the port's links in the kernel's table, by neighbour
    frame: bytes = b""  # the port's broadcast heartbeat; while it is empty, the port sends nothing

    def unicast_to(self, hearer: BeatingPort) -> bytes:
        """Return this port's heartbeat as a unicast Ethernet frame to another port."""
        return hearer.frame[MAC_AT:MAC_END] + self.frame[MAC_AT:]


class HeartbeatBurst(NamedTuple):
    """Heartbeats that are sent together, and the links by which they should be received."""

    sockets: array[int]
    ends: array[int]  # end offset of each socket's frame in `frames`
    frames: memoryview
    places: array[int]  # indices in the kernel's table of the links that receive these heartbeats

    @classmethod
    def of(cls, frames: list[tuple[BeatingPort, bytes]], places: list[int]) -> HeartbeatBurst:
        """Return a burst of heartbeats, one frame per port, received by the links at `places`."""
        text, ends = bytearray(), array("I")
        for _, frame in frames:
            text += frame
            ends.append(len(text))
        sockets = array("i", [port.socket.fileno() for port, _ in frames])
        return cls(sockets, ends, memoryview(bytes(text)), array("I", places))

    def send(self) -> int:
        """Send all heartbeats of the burst; return the time at which sending started, in ns."""
        now_ns, begin = time.monotonic_ns(), 0
        for descriptor, end in zip(self.sockets, self.ends, strict=True):
            frame, begin = self.frames[begin:end], end
            try:
                os.write(descriptor, frame)
            except OSError:  # cut cable or full queue: the heartbeat is lost
                continue
        return now_ns


@dataclass(eq=False)
class HeartbeatSegment:
    """A group of ports that hear each other, such as the ports on one switch."""

    tick: SimultaneousSegments
    ports: list[BeatingPort] = field(default_factory=list)
    sent_ns: int = 0  # start time of the last heartbeat broadcast, in ns
    repeats: int = 0  # remaining repetitions of the last heartbeat broadcast
    cell: int = 0  # the segment's cell number in the kernel's table, 0 before it has one
    is_whole: bool = True  # True if all neighbours of the segment's ports are in the segment
    to_all: int = 0  # remaining broadcasts before unicast rounds of heartbeats start
    goes_round: bool = False
    # Time until which a new segment waits for its other servers to start (CLOCK_MONOTONIC).
    waits_until_s: float = 0.0
    has_begun: bool = False  # True once the segment no longer waits
    _each_hears_all: bool = False
    _burst: HeartbeatBurst | None = None  # the prepared broadcast of the segment's heartbeats

    def __post_init__(self) -> None:
        self.tick.segments.append(self)

    def join(self, port: BeatingPort) -> None:
        """Add a port to the segment, the group of ports that hear each other."""
        self.ports.append(port)
        self._update_segment_members()

    def leave(self, port: BeatingPort) -> None:
        """Remove a port from the segment, the group of ports that hear each other."""
        self.ports.remove(port)
        self._update_segment_members()

    def _update_segment_members(self) -> None:
        here, others = {port.server for port in self.ports}, len(self.ports) - 1
        self.is_whole = all(port.hears.keys() <= here for port in self.ports)
        self._each_hears_all = all(len(port.hears) == others for port in self.ports)
        self.cell = 0  # 0: request a new cell number, since removed ports' links keep the old one
        self.restart_broadcast()

    @property
    def is_complete(self) -> bool:
        """True if all neighbours of the segment's ports are in it and have heartbeats to send."""
        return self.is_whole and all(port.frame for port in self.ports)

    @property
    def links(self) -> list[int]:
        """Indices in the kernel's table of the links between the segment's ports."""
        return list(self._broadcast.places)

    def restart_broadcast(self) -> None:
        """Broadcast the segment's heartbeats again, after one of them has changed."""
        self.tick.put_segment(self, goes_round=False)
        self._burst = None

    def broadcast(self) -> None:
        """Broadcast the heartbeats of all ports of the segment."""
        self.sent_ns = self._broadcast.send()

    @property
    def _broadcast(self) -> HeartbeatBurst:
        if self._burst is None:
            here = {port.server for port in self.ports}
            links = [link for port in self.ports for link in port.hears.items()]
            self._burst = HeartbeatBurst.of(
                [(port, port.frame) for port in self.ports if port.frame],
                [place for neighbour, place in links if neighbour in here],
            )
        return self._burst

    def must_repeat_broadcast(self, table: NeighbourLinkTable) -> bool:
        """Return True if the last broadcast must be repeated; else start unicast rounds if due."""
        places = self._broadcast.places
        if (
            self.is_whole
            and self._each_hears_all
            and table.are_heard_both_ways(places, self.sent_ns)
        ):
            self.to_all -= 1
            if self.to_all <= 0 and len(self.ports) > 1:
                self._start_unicast_rounds(table)
            return False
        return bool(self.repeats) and table.is_any_missing(places, self.sent_ns)

    def _start_unicast_rounds(self, table: NeighbourLinkTable) -> None:
        """Start unicast rounds: a port that receives a heartbeat sends one to the next port."""
        ports = self.ports
        if max(len(port.frame) for port in ports) > LONGEST_ANSWER:
            return
        self.cell = table.assign_cell(self._broadcast.places, self.cell)
        if not self.cell:
            return
        for turn in range(1, len(ports)):
            for at, port in enumerate(ports):
                is_first = at < gcd(turn, len(ports))
                answer = b"" if is_first else port.unicast_to(ports[(at + turn) % len(ports)])
                table.set_answer(port.hears[ports[at - turn].server], answer)
        self.tick.put_segment(self, goes_round=True)

    def first_frames(self, turn: int) -> list[tuple[BeatingPort, bytes]]:
        """Return the first frames of a round, to ports that are `turn` positions further."""
        first = self.ports[: gcd(turn, len(self.ports))]
        return [(port, port.unicast_to(self.ports[at + turn])) for at, port in enumerate(first)]

    def receiving_links(self, turn: int) -> list[int]:
        """Return the indices of the links that receive heartbeats in a turn of a round."""
        return [port.hears[self.ports[at - turn].server] for at, port in enumerate(self.ports)]

    def stop_rounds(self) -> None:
        """Stop the unicast rounds of heartbeats, and broadcast for a while."""
        self.tick.put_segment(self, goes_round=False)
        self.to_all, self.repeats = TO_ALL, MOST_REPEATS


class HeartbeatRound(NamedTuple):
    """One round of unicast heartbeats: those sent in one tick, in all segments with rounds."""

    burst: HeartbeatBurst
    cells: array[int]
    # Each part of the round: (segment, cell number, indices of its links).
    parts: list[tuple[HeartbeatSegment, int, list[int]]]

    @classmethod
    def of(cls, segments: list[HeartbeatSegment], count: int) -> HeartbeatRound:
        """Return the round of unicast heartbeats number `count` of these segments."""
        turns = [(segment, count % (len(segment.ports) - 1) + 1) for segment in segments]
        parts = [(segment, segment.cell, segment.receiving_links(turn)) for segment, turn in turns]
        burst = HeartbeatBurst.of(
            [first for segment, turn in turns for first in segment.first_frames(turn)],
            [place for _, _, places in parts for place in places],
        )
        return cls(burst, array("I", [cell for _, cell, _ in parts]), parts)

    def record_heard_segments(
        self, table: NeighbourLinkTable, since_ns: int
    ) -> Iterator[HeartbeatSegment]:
        """Mark segments whose neighbours were all heard since `since_ns`; yield the others."""
        if table.are_heard(self.burst.places, since_ns):
            for cell in self.cells:
                table.record_cell_heard(cell, since_ns)
            return
        for segment, cell, places in self.parts:
            if table.are_heard(places, since_ns):
                table.record_cell_heard(cell, since_ns)
            elif segment.goes_round:
                segment.stop_rounds()
                yield segment


class SimultaneousSegments:
    """Segments whose heartbeats are sent in the same tick, by broadcasts or by unicast rounds."""

    def __init__(self) -> None:
        self.segments: list[HeartbeatSegment] = []  # segments that broadcast their heartbeats
        self._rotating: list[HeartbeatSegment] = []  # segments with unicast rounds of heartbeats
        self._count = 0  # number of the last round of unicast heartbeats
        self._period = 1  # number of rounds after which they repeat
        self._prepared_rounds: dict[int, HeartbeatRound] = {}

    def __len__(self) -> int:
        return len(self.segments) + len(self._rotating)

    def put_segment(self, segment: HeartbeatSegment, *, goes_round: bool) -> None:
        """Send a segment's heartbeats by unicast rounds from now on, or by broadcasts."""
        if goes_round != segment.goes_round:
            segment.goes_round = goes_round
            (self.segments if goes_round else self._rotating).remove(segment)
            (self._rotating if goes_round else self.segments).append(segment)
            self._period = lcm(*(len(one.ports) - 1 for one in self._rotating))
            self._prepared_rounds.clear()

    def next_round(self) -> HeartbeatRound | None:
        """Return the next round of unicast heartbeats, None if no segment has rounds."""
        if not self._rotating:
            return None
        self._count = (self._count + 1) % self._period
        if self._count not in self._prepared_rounds:
            if len(self._prepared_rounds) == MOST_MADE:
                self._prepared_rounds.clear()
            self._prepared_rounds[self._count] = HeartbeatRound.of(self._rotating, self._count)
        return self._prepared_rounds[self._count]
