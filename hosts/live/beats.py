"""Who beats to whom: the ports that hear each other, and all that beat at the same time.

See pacer.py, which sends by this. From one interval to the next all objects fall out of the
processor's caches, and to fetch each takes longer than what Python does with it. So what goes round
is made once for all segments of a tick, as few objects as can be.
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

MAC_AT, MAC_END = 6, 12  # of a frame's sender
TO_ALL = 20  # times, once a heart-beat that went round was missed
MOST_REPEATS = 3  # of one heart-beat
MOST_MADE = 64  # turns of a tick that are kept


@dataclass(eq=False)
class Port:
    """A server's, as far as heart-beats go."""

    server: int
    socket: socket.socket
    segment: int
    hears: dict[int, int]  # its links' places in the kernel's table, by neighbour
    frame: bytes = b""  # to all; nothing is sent while it is empty

    def to(self, hearer: Port) -> bytes:
        """Return its heart-beat, to one other."""
        return hearer.frame[MAC_AT:MAC_END] + self.frame[MAC_AT:]


class Burst(NamedTuple):
    """Heart-beats that are sent at once, and what is heard of them."""

    sockets: array[int]
    ends: array[int]  # of each one's frame in the next
    frames: memoryview
    places: array[int]  # in the table: of all links by which something is heard then

    @classmethod
    def of(cls, frames: list[tuple[Port, bytes]], places: list[int]) -> Burst:
        """Make them, one frame out of each of these ports."""
        text, ends = bytearray(), array("I")
        for _, frame in frames:
            text += frame
            ends.append(len(text))
        sockets = array("i", [port.socket.fileno() for port, _ in frames])
        return cls(sockets, ends, memoryview(bytes(text)), array("I", places))

    def send(self) -> int:
        """Send them; return when they began to be sent, in ns."""
        now_ns, begin = time.monotonic_ns(), 0
        for descriptor, end in zip(self.sockets, self.ends, strict=True):
            frame, begin = self.frames[begin:end], end
            try:
                os.write(descriptor, frame)
            except OSError:  # a cut cable, a full queue: heart-beats are lost like any frame
                continue
        return now_ns


@dataclass(eq=False)
class Segment:
    """Ports that hear each other."""

    tick: Tick
    ports: list[Port] = field(default_factory=list)
    sent_ns: int = 0  # when they began to beat to all
    repeats: int = 0  # how many more there may be
    cell: int = 0  # by which the kernel knows its links as a segment's; 0: by none yet
    is_whole: bool = True  # all whom these ports hear are among them
    to_all: int = 0  # so many times more, before heart-beats go round
    goes_round: bool = False
    _each_hears_all: bool = False
    _burst: Burst | None = None  # to all

    def __post_init__(self) -> None:
        self.tick.segments.append(self)

    def join(self, port: Port) -> None:
        """Take in a port."""
        self.ports.append(port)
        self._look_anew()

    def leave(self, port: Port) -> None:
        """Let a port go."""
        self.ports.remove(port)
        self._look_anew()

    def _look_anew(self) -> None:
        here, others = {port.server for port in self.ports}, len(self.ports) - 1
        self.is_whole = all(port.hears.keys() <= here for port in self.ports)
        self._each_hears_all = all(len(port.hears) == others for port in self.ports)
        self.cell = 0  # links of whoever has left still point to the one it had
        self.begin_anew()

    def begin_anew(self) -> None:
        """Beat to all: one of them has news."""
        self.tick.put(self, goes_round=False)
        self._burst = None

    def beat(self) -> None:
        """Beat to all."""
        self.sent_ns = self._to_all.send()

    @property
    def _to_all(self) -> Burst:
        if self._burst is None:
            here = {port.server for port in self.ports}
            links = [link for port in self.ports for link in port.hears.items()]
            self._burst = Burst.of(
                [(port, port.frame) for port in self.ports if port.frame],
                [place for neighbour, place in links if neighbour in here],
            )
        return self._burst

    def is_missed(self, table: HeardTable) -> bool:
        """Tell whether the last heart-beats to all are to be sent again, or let them go round."""
        places = self._to_all.places
        if self.is_whole and self._each_hears_all and table.are_well(places, self.sent_ns):
            self.to_all -= 1
            if self.to_all <= 0 and len(self.ports) > 1:
                self._go_round(table)
            return False
        return bool(self.repeats) and table.is_missing(places, self.sent_ns)

    def _go_round(self, table: HeardTable) -> None:
        """Let who hears one, in whichever turn, beat to the next, until it is back at the first."""
        ports = self.ports
        if max(len(port.frame) for port in ports) > LONGEST_ANSWER:
            return
        self.cell = table.join(self._to_all.places, self.cell)
        if not self.cell:
            return
        for turn in range(1, len(ports)):
            for at, port in enumerate(ports):
                is_first = at < gcd(turn, len(ports))
                answer = b"" if is_first else port.to(ports[(at + turn) % len(ports)])
                table.answer(port.hears[ports[at - turn].server], answer)
        self.tick.put(self, goes_round=True)

    def firsts(self, turn: int) -> list[tuple[Port, bytes]]:
        """Return what the pacer sends in a turn: how far a port is from the one it beats to."""
        first = self.ports[: gcd(turn, len(self.ports))]
        return [(port, port.to(self.ports[at + turn])) for at, port in enumerate(first)]

    def heard(self, turn: int) -> list[int]:
        """Return the places of the links by which something is heard in a turn."""
        return [port.hears[self.ports[at - turn].server] for at, port in enumerate(self.ports)]

    def break_off(self) -> None:
        """Beat to all for a while."""
        self.tick.put(self, goes_round=False)
        self.to_all, self.repeats = TO_ALL, MOST_REPEATS


class Round(NamedTuple):
    """What goes round in all segments of a tick, at one turn of each."""

    burst: Burst
    cells: array[int]
    parts: list[tuple[Segment, int, list[int]]]  # with its cell, and its part of all places

    @classmethod
    def of(cls, segments: list[Segment], count: int) -> Round:
        """Make the one that comes after so many others."""
        turns = [(segment, count % (len(segment.ports) - 1) + 1) for segment in segments]
        parts = [(segment, segment.cell, segment.heard(turn)) for segment, turn in turns]
        burst = Burst.of(
            [first for segment, turn in turns for first in segment.firsts(turn)],
            [place for _, _, places in parts for place in places],
        )
        return cls(burst, array("I", [cell for _, cell, _ in parts]), parts)

    def confirm(self, table: HeardTable, since_ns: int) -> Iterator[Segment]:
        """Vouch for all who were heard since then; yield where one was not."""
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
    """Segments that beat at one time."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []  # that beat to all
        self._going: list[Segment] = []  # where heart-beats go round
        self._count = 0  # of rounds
        self._period = 1  # after which all is the same
        self._made: dict[int, Round] = {}

    def __len__(self) -> int:
        return len(self.segments) + len(self._going)

    def put(self, segment: Segment, *, goes_round: bool) -> None:
        """Let a segment's heart-beats go round from now on, or not."""
        if goes_round != segment.goes_round:
            segment.goes_round = goes_round
            (self.segments if goes_round else self._going).remove(segment)
            (self._going if goes_round else self.segments).append(segment)
            self._period = lcm(*(len(one.ports) - 1 for one in self._going))
            self._made.clear()

    def next_round(self) -> Round | None:
        """Return what goes round next, if anything does."""
        if not self._going:
            return None
        self._count = (self._count + 1) % self._period
        if self._count not in self._made:
            if len(self._made) == MOST_MADE:
                self._made.clear()
            self._made[self._count] = Round.of(self._going, self._count)
        return self._made[self._count]
