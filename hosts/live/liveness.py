"""Which neighbours live, as the kernel knows it: see liveness.h, which notes and judges.

Every link has an entry in a table that the kernel and this process both have in their memory. The
kernel writes down whether the neighbour is heard, and whether it hears this server; this process,
what of that it has taken note of. As long as the two differ, the kernel rings a bell: a descriptor
to wait on, with nothing to read. So news comes at once, none is lost, and nobody is woken up by a
heart-beat that says what is known.

State: the table is the kernel's, one for all servers of a lab, of which each has its part.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from enum import IntFlag
from typing import NamedTuple

from hosts.base.path import Step
from hosts.live.bpf import LabPrograms, Programs

NS = 1_000_000_000
_LINK = struct.Struct("=QQ4sIII2x6sI4sI12x")  # as liveness.h has it
_NOT_BEFORE_AT, _STATE_AT, _TOLD_AT, _COUNT_AT, _SEGMENT_AT = 8, 20, 24, 28, 48
_TIMES, _NUMBERS, _STATE, _SEGMENT = (
    _LINK.size // 8,
    _LINK.size // 4,
    _STATE_AT // 4,
    _SEGMENT_AT // 4,
)
SPREAD, SPREAD_OVER = 0x9E3779B1, 20  # as liveness.h has both
_ANSWER = struct.Struct("=I252x")
LONGEST_ANSWER = _ANSWER.size - 4
_WATCH = struct.Struct("=16xQII")  # the timer comes first
_INDEX, _POSITION = struct.Struct("=I"), struct.Struct("=Q")


class State(IntFlag):
    """What is known of a neighbour."""

    SILENT = 0
    HEARD = 1
    HEARS_ME = 2


_WELL = int(State.HEARD | State.HEARS_ME)


class Link(NamedTuple):
    """A neighbour: its link's name, the port's interface here, and its port's MAC address."""

    step: Step
    uid: int
    ifindex: int
    mac: bytes


def begin(lab: LabPrograms, timeout_s: float) -> None:
    """Let the kernel find out, for all servers of a lab, who is not heard for so long."""
    every = lab.servers * lab.room
    watch = _WATCH.pack(int(timeout_s * NS), every, lab.room)
    lab.loaded.maps["watches"][_INDEX.pack(0)] = watch
    lab.loaded.run("begin")


class HeardTable:
    """The table of all links, for the process that sends heart-beats.

    Parameters
    ----------
    table, vouched, answers : int
        Open files: of the links, of when all of a segment's were heard, and of what is sent when a
        heart-beat comes by a link.
    entries : int
        How many each has.
    """

    def __init__(self, table: int, vouched: int, answers: int, entries: int) -> None:
        memory = mmap.mmap(table, _pages(entries * _LINK.size))
        self._times_ns, self._numbers = memoryview(memory).cast("Q"), memoryview(memory).cast("I")
        memory = mmap.mmap(vouched, _pages(entries * _POSITION.size))
        self._vouched_ns = memoryview(memory).cast("Q")
        self._answers = mmap.mmap(answers, _pages(entries * _ANSWER.size))
        self._free = range(1, entries)
        self._taken: set[int] = set()  # cells of a pacer that has ended

    def is_missing(self, links: Iterable[int], since_ns: int) -> bool:
        """Tell whether one of these is up, but its neighbour was not heard since then."""
        times_ns, numbers = self._times_ns, self._numbers
        for link in links:
            if times_ns[link * _TIMES] < since_ns and numbers[link * _NUMBERS + _STATE]:
                return True
        return False

    def are_heard(self, links: Sequence[int], since_ns: int) -> bool:
        """Tell whether the neighbours of all these were heard since then.

        Who was never heard is not, though it counts as heard at first: its time is a later one.
        """
        times_ns, now_ns = self._times_ns, time.monotonic_ns()
        return all(since_ns <= times_ns[link * _TIMES] <= now_ns for link in links)

    def are_well(self, links: Sequence[int], since_ns: int) -> bool:
        """Tell whether all these neighbours were heard since then, and hear who hears them."""
        well = (self._numbers[link * _NUMBERS + _STATE] == _WELL for link in links)
        return self.are_heard(links, since_ns) and all(well)

    def leave_cells_of(self, links: Iterable[int]) -> None:
        """Give the cells of these links to no others: they are those of a pacer that has ended.

        What is vouched for there counts until these links join a new cell.
        """
        self._taken |= {self._numbers[link * _NUMBERS + _SEGMENT] for link in links}

    def join(self, links: Iterable[int], cell: int = 0) -> int:
        """Let these links be vouched for by this cell, or by one that no others ever had.

        Return which it is; 0 if none is left.
        """
        while not cell and self._free:
            first, self._free = self._free[0], self._free[1:]
            cell = 0 if first in self._taken else first
        for link in links:
            self._numbers[link * _NUMBERS + _SEGMENT] = cell
        return cell

    def answer(self, link: int, frame: bytes) -> None:
        """Let a server send this when it is sent a heart-beat by that link, nothing if empty."""
        at = link * _ANSWER.size
        _ANSWER.pack_into(self._answers, at, 0)  # while it is written
        self._answers[at + 4 : at + 4 + len(frame)] = frame
        _INDEX.pack_into(self._answers, at, len(frame))

    def vouch(self, cell: int, since_ns: int) -> None:
        """Count the neighbours of all its links as heard then."""
        self._vouched_ns[cell] = since_ns


def _pages(size: int) -> int:
    """Return the size of memory that has room for so many bytes."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


class Liveness:
    """The links of one server, watched by programs that see what comes in by its ports.

    Parameters
    ----------
    programs : Programs
        They have the tables of liveness.h, with room for all links that there may ever be.
    links : sequence of Link
        All neighbours: each counts as heard from now on, and as hearing this server.
    uid : int
        This server's.
    from_s : float
        From when on, by CLOCK_MONOTONIC, which the kernel reads as well: all count as heard then.
    """

    def __init__(self, programs: Programs, links: Sequence[Link], uid: int, from_s: float) -> None:
        maps = programs.maps
        self._room = programs.lab.links_of(programs.server)
        self._uid = uid.to_bytes(4, "big")
        self._free = set(self._room)
        self._numbers: dict[Step, int] = {}
        self._table = mmap.mmap(maps["links"].fd, _pages(maps["links"].entries * _LINK.size))
        self.bell = programs.add("bells").fd
        self._heard_to = mmap.mmap(self.bell, mmap.PAGESIZE)
        self._rung_to = mmap.mmap(
            self.bell, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ, offset=mmap.PAGESIZE
        )
        for link in links:
            self._add(link, from_s)

    def resize(self, links: Sequence[Link], from_s: float) -> None:
        """Watch these links from now on; new ones count as those at first."""
        kept = {link.step for link in links}
        for step in [step for step in self._numbers if step not in kept]:
            number = self._numbers.pop(step)
            at = number * _LINK.size
            self._table[at : at + _LINK.size] = bytes(_LINK.size)
            self._free.add(number)
        for link in links:
            if link.step not in self._numbers:
                self._add(link, from_s)

    def _add(self, link: Link, from_s: float) -> None:
        number = self._numbers[link.step] = self._free_place(link)
        key = link.mac, link.ifindex, self._uid
        entry = int(from_s * NS), 0, link.uid.to_bytes(4, "big"), _WELL, _WELL, 0, *key, 0
        _LINK.pack_into(self._table, number * _LINK.size, *entry)

    def _free_place(self, link: Link) -> int:
        """Take the first free place from where on the kernel looks for the link."""
        begin = (int.from_bytes(link.mac[2:], "big") * SPREAD & 0xFFFFFFFF) >> SPREAD_OVER
        places = (self._room[(begin + i) % len(self._room)] for i in range(len(self._room)))
        free = next(place for place in places if place in self._free)
        self._free.remove(free)
        return free

    def places(self, port: int) -> dict[int, int]:
        """Return where in the table a port's links are, by neighbour."""
        numbers = self._numbers.items()
        return {step.peer: number for step, number in numbers if step.port == port}

    def news(self) -> Iterator[tuple[Step, State]]:
        """Yield the links whose state is another than this process knew."""
        self.quiet()
        for step, number in self._numbers.items():
            state, known = struct.unpack_from("=II", self._table, number * _LINK.size + _STATE_AT)
            if state != known:
                _INDEX.pack_into(self._table, number * _LINK.size + _TOLD_AT, state)
                yield step, State(state)

    def quiet(self) -> None:
        """Stop the bell."""
        self._heard_to[: _POSITION.size] = self._rung_to[: _POSITION.size]

    def forget(self, step: Step, until_s: float) -> None:
        """Count a neighbour as silent, as this process does, whatever is heard until then."""
        at = self._numbers[step] * _LINK.size
        _POSITION.pack_into(self._table, at + _NOT_BEFORE_AT, int(max(0.0, until_s) * NS))
        struct.pack_into("=II", self._table, at + _STATE_AT, State.SILENT, State.SILENT)

    def hears(self, step: Step) -> bool:
        """Tell whether this process has taken note that the neighbour is heard."""
        at = self._numbers[step] * _LINK.size
        return bool(_INDEX.unpack_from(self._table, at + _TOLD_AT)[0])

    @property
    def heart_beats(self) -> int:
        """How many came."""
        counts = (number * _LINK.size + _COUNT_AT for number in self._room)
        return sum(_INDEX.unpack_from(self._table, at)[0] for at in counts)
