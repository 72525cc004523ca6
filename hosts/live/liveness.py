"""Liveness of neighbours, as detected by the kernel: liveness.h records and evaluates heartbeats.

Every link has an entry in a table that the kernel and this process share in memory. The kernel
writes whether the neighbour is heard, and whether the neighbour hears this server; this process
writes the state that it has processed. While the two differ, the kernel rings a bell: a descriptor
to wait for, with no data to read. So state changes arrive immediately, none is lost, and a
heartbeat that changes nothing wakes no process.

State: the table is in the kernel, one for all servers of a lab, with a range of entries per server.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from enum import IntFlag
from typing import NamedTuple

from pillarbox.hosts.base.path import Step
from pillarbox.hosts.live.lab_programs import LabPrograms, ServerPrograms

NS = 1_000_000_000
_LINK = struct.Struct("=QQ4sIII2x6sI4sI12x")  # struct link of liveness.h: a link to a neighbour
_NOT_BEFORE_AT, _STATE_AT, _TOLD_AT, _COUNT_AT, _SEGMENT_AT = 8, 20, 24, 28, 48
_TIMES, _NUMBERS, _STATE, _SEGMENT = (
    _LINK.size // 8,
    _LINK.size // 4,
    _STATE_AT // 4,
    _SEGMENT_AT // 4,
)
SPREAD, SPREAD_OVER = 0x9E3779B1, 20  # parameters of the link table's hash, as in liveness.h
_ANSWER = struct.Struct("=I252x")
LONGEST_ANSWER = _ANSWER.size - 4
# struct watch of liveness.h after its timer: timeout, entries of all servers and per server
_WATCH = struct.Struct("=16xQII")
_INDEX, _POSITION = struct.Struct("=I"), struct.Struct("=Q")


class NeighbourState(IntFlag):
    """State of a neighbour: silent, heard by its heartbeats, or also hearing this server."""

    SILENT = 0
    HEARD = 1
    HEARS_ME = 2


_WELL = int(NeighbourState.HEARD | NeighbourState.HEARS_ME)


class NeighbourLink(NamedTuple):
    """A watched link to a neighbour: hop, neighbour's uid and MAC address, local interface."""

    step: Step
    uid: int
    ifindex: int
    mac: bytes


def start_detection(lab: LabPrograms, timeout_s: float) -> None:
    """Start the eBPF program that detects silent neighbours, for all servers of a lab."""
    every = lab.servers * lab.room
    watch = _WATCH.pack(int(timeout_s * NS), every, lab.room)
    lab.loaded.maps["watches"][_INDEX.pack(0)] = watch
    lab.loaded.run_program("begin")


class NeighbourLinkTable:
    """The kernel's table of links to neighbours, as the heartbeat pacer reads and writes it.

    Parameters
    ----------
    table, vouched, answers : int
        Open files of three maps: the links; the time at which all links of a segment were last
        heard; and the frame that is sent in response to a heartbeat, per link.
    entries : int
        Number of entries in each map.
    """

    def __init__(self, table: int, vouched: int, answers: int, entries: int) -> None:
        memory = mmap.mmap(table, _whole_pages(entries * _LINK.size))
        self._times_ns, self._numbers = memoryview(memory).cast("Q"), memoryview(memory).cast("I")
        memory = mmap.mmap(vouched, _whole_pages(entries * _POSITION.size))
        self._vouched_ns = memoryview(memory).cast("Q")
        self._answers = mmap.mmap(answers, _whole_pages(entries * _ANSWER.size))
        self._free = range(1, entries)
        self._taken: set[int] = set()  # cell numbers that an earlier heartbeat pacer has assigned

    def is_any_missing(self, links: Iterable[int], since_ns: int) -> bool:
        """Return True if the neighbour of any link that is up was not heard since `since_ns`."""
        times_ns, numbers = self._times_ns, self._numbers
        for link in links:
            if times_ns[link * _TIMES] < since_ns and numbers[link * _NUMBERS + _STATE]:
                return True
        return False

    def end_excuses(self, links: Iterable[int], now_ns: int) -> None:
        """Count links as heard at `now_ns` instead of at a later time, which excuses silence."""
        for link in links:
            self._times_ns[link * _TIMES] = min(self._times_ns[link * _TIMES], now_ns)

    def are_heard(self, links: Sequence[int], since_ns: int) -> bool:
        """Return True if the neighbours of all links were heard since `since_ns`.

        A neighbour that was never heard does not count: its entry starts with a time in the future.
        """
        times_ns, now_ns = self._times_ns, time.monotonic_ns()
        return all(since_ns <= times_ns[link * _TIMES] <= now_ns for link in links)

    def are_heard_both_ways(self, links: Sequence[int], since_ns: int) -> bool:
        """Return True if all links' neighbours were heard since `since_ns` and hear this side."""
        well = (self._numbers[link * _NUMBERS + _STATE] == _WELL for link in links)
        return self.are_heard(links, since_ns) and all(well)

    def reserve_cells_of(self, links: Iterable[int]) -> None:
        """Reserve the cell numbers of these links, which an earlier heartbeat pacer has assigned.

        Times stored in these cells count until the links join a new cell.
        """
        self._taken |= {self._numbers[link * _NUMBERS + _SEGMENT] for link in links}

    def assign_cell(self, links: Iterable[int], cell: int = 0) -> int:
        """Assign links to this cell, or to a new one, for their common heard time; return the cell.

        The result is 0 if no cell is left.
        """
        while not cell and self._free:
            first, self._free = self._free[0], self._free[1:]
            cell = 0 if first in self._taken else first
        for link in links:
            self._numbers[link * _NUMBERS + _SEGMENT] = cell
        return cell

    def set_answer(self, link: int, frame: bytes) -> None:
        """Set the frame that eBPF sends in response to a link's heartbeats, b"" for none."""
        at = link * _ANSWER.size
        # Length 0 disables the response while its frame is written.
        _ANSWER.pack_into(self._answers, at, 0)
        self._answers[at + 4 : at + 4 + len(frame)] = frame
        _INDEX.pack_into(self._answers, at, len(frame))

    def record_cell_heard(self, cell: int, since_ns: int) -> None:
        """Record that the neighbours of all links of a cell were heard at `since_ns`."""
        self._vouched_ns[cell] = since_ns


def _whole_pages(size: int) -> int:
    """Return a size rounded up to whole memory pages."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


class Liveness:
    """Watched links of one server: eBPF programs on its ports record received heartbeats.

    Parameters
    ----------
    programs : ServerPrograms
        Programs with the tables of liveness.h, large enough for all future links.
    links : sequence of Link
        Links to all neighbours: each counts as heard from the start, and as hearing this
        server.
    uid : int
        Address of this server.
    from_s : float
        Time in CLOCK_MONOTONIC, which the kernel reads as well, at which all links count as
        heard.
    """

    def __init__(
        self, programs: ServerPrograms, links: Sequence[NeighbourLink], uid: int, from_s: float
    ) -> None:
        maps = programs.maps
        self._room = programs.lab.links_of(programs.server)
        self._uid = uid.to_bytes(4, "big")
        self._free = set(self._room)
        self._numbers: dict[Step, int] = {}
        self._table = mmap.mmap(maps["links"].fd, _whole_pages(maps["links"].entries * _LINK.size))
        self.bell = programs.add_own_map("bells").fd
        self._heard_to = mmap.mmap(self.bell, mmap.PAGESIZE)
        self._rung_to = mmap.mmap(
            self.bell, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ, offset=mmap.PAGESIZE
        )
        for link in links:
            self._add_kernel_entry(link, from_s)

    def resize(self, links: Sequence[NeighbourLink], from_s: float) -> None:
        """Watch these links for heartbeats from now on; new links count as heard at `from_s`."""
        kept = {link.step for link in links}
        for step in [step for step in self._numbers if step not in kept]:
            number = self._numbers.pop(step)
            at = number * _LINK.size
            self._table[at : at + _LINK.size] = bytes(_LINK.size)
            self._free.add(number)
        for link in links:
            if link.step not in self._numbers:
                self._add_kernel_entry(link, from_s)

    def _add_kernel_entry(self, link: NeighbourLink, heard_s: float) -> None:
        number = self._numbers[link.step] = self._take_free_index(link)
        key = link.mac, link.ifindex, self._uid
        entry = int(heard_s * NS), 0, link.uid.to_bytes(4, "big"), _WELL, _WELL, 0, *key, 0
        _LINK.pack_into(self._table, number * _LINK.size, *entry)

    def _take_free_index(self, link: NeighbourLink) -> int:
        """Take a table entry for a link: the first free one from where the kernel looks it up."""
        begin = (int.from_bytes(link.mac[2:], "big") * SPREAD & 0xFFFFFFFF) >> SPREAD_OVER
        places = (self._room[(begin + i) % len(self._room)] for i in range(len(self._room)))
        free = next(place for place in places if place in self._free)
        self._free.remove(free)
        return free

    def link_indices(self, port: int) -> dict[int, int]:
        """Return the indices of a port's links in the kernel's table, by neighbour."""
        numbers = self._numbers.items()
        return {step.peer: number for step, number in numbers if step.port == port}

    def changed_links(self) -> Iterator[tuple[Step, NeighbourState]]:
        """Yield (hop, new state) of the neighbours whose state has changed."""
        self.disable_events()
        for step, number in self._numbers.items():
            state, known = struct.unpack_from("=II", self._table, number * _LINK.size + _STATE_AT)
            if state != known:
                _INDEX.pack_into(self._table, number * _LINK.size + _TOLD_AT, state)
                yield step, NeighbourState(state)

    def disable_events(self) -> None:
        """Stop the eBPF events about silent and returned neighbours."""
        self._heard_to[: _POSITION.size] = self._rung_to[: _POSITION.size]

    def mark_silent(self, step: Step, until_s: float) -> None:
        """Mark a neighbour as silent; eBPF ignores its heartbeats until `until_s`."""
        at = self._numbers[step] * _LINK.size
        _POSITION.pack_into(self._table, at + _NOT_BEFORE_AT, int(max(0.0, until_s) * NS))
        struct.pack_into(
            "=II", self._table, at + _STATE_AT, NeighbourState.SILENT, NeighbourState.SILENT
        )

    def hears(self, step: Step) -> bool:
        """Return True if this forwarder last recorded that the neighbour is heard."""
        at = self._numbers[step] * _LINK.size
        return bool(_INDEX.unpack_from(self._table, at + _TOLD_AT)[0])

    @property
    def heartbeats(self) -> int:
        """Number of heartbeats received on all watched links of the server."""
        counts = (number * _LINK.size + _COUNT_AT for number in self._room)
        return sum(_INDEX.unpack_from(self._table, at)[0] for at in counts)
