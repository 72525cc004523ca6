"""Which neighbours live, as the kernel knows it: see liveness.h, which notes and judges.

Every link has an entry in a table that the kernel and this process both have in their memory. The
kernel writes down whether the neighbour is heard, and whether it hears this server; this process,
what of that it has taken note of. As long as the two differ, the kernel rings a bell: a descriptor
to wait on, with nothing to read. So news comes at once, none is lost, and nobody is woken up by a
heart-beat that says what is known.

State: the table is the kernel's. It ends with this process, as does the timer that finds silence.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from enum import IntFlag
from functools import cache
from typing import NamedTuple

from hosts.base.path import Step
from hosts.linux.bpf import Object
from hosts.linux.calls import nowhere
from hosts.live.bpf import LIVENESS, LOOPBACK, build
from topos.base.errors import PillarboxError

NS = 1_000_000_000
_LINK = struct.Struct("=QQ4sIII")  # as liveness.h has it
_NOT_BEFORE_AT, _STATE_AT, _TOLD_AT, _COUNT_AT = 8, 20, 24, 28
_KEY = struct.Struct("=6sHI")
_WATCH = struct.Struct("=16xQ4sI")  # the timer comes first
_INDEX, _POSITION = struct.Struct("=I"), struct.Struct("=Q")


class State(IntFlag):
    """What is known of a neighbour."""

    SILENT = 0
    HEARD = 1
    HEARS_ME = 2


class Link(NamedTuple):
    """A neighbour: its link's name, the port's interface here, and its port's MAC address."""

    step: Step
    uid: int
    ifindex: int
    mac: bytes


@cache
def available() -> bool:
    """Tell whether the kernel can watch where it does not forward: it is tried where nobody is."""
    try:
        with nowhere():
            loaded = load([LOOPBACK], 1)
            loaded.close()
    except PillarboxError:
        return False
    return True


def load(interfaces: Sequence[int], links: int) -> Object:
    """Let a program of its own see the heart-beats that come in by these interfaces."""
    loaded = Object(build(LIVENESS), entries(links))
    for index in interfaces:
        loaded.attach("port_in", index, egress=False)
    return loaded


def entries(links: int) -> dict[str, int]:
    """Return how large the tables are for so many links."""
    return {"links": links, "link_of": links}


class Liveness:
    """The links of one server, watched by programs that see what comes in by its ports.

    Parameters
    ----------
    programs : Object
        They have the tables of liveness.h, with room for all links that there may ever be.
    links : sequence of Link
        All neighbours: each counts as heard from now on, and as hearing this server.
    uid : int
        This server's.
    timeout_s : float
        Who is not heard for so long is silent.
    from_s : float
        From when on, by CLOCK_MONOTONIC, which the kernel reads as well: all count as heard then.
    """

    def __init__(
        self, programs: Object, links: Sequence[Link], uid: int, timeout_s: float, from_s: float
    ) -> None:
        maps = programs.maps
        self._link_of, self._room = maps["link_of"], maps["links"].entries
        self._free = list(reversed(range(self._room)))
        self._numbers: dict[Step, int] = {}
        self._links: dict[Step, Link] = {}
        pages = -(-_LINK.size * self._room // mmap.PAGESIZE)
        self._table = mmap.mmap(maps["links"].fd, pages * mmap.PAGESIZE)
        for link in links:
            self._add(link, from_s)
        watch = _WATCH.pack(int(timeout_s * NS), uid.to_bytes(4, "big"), 0)
        maps["watches"][_INDEX.pack(0)] = watch
        self.bell = maps["bell"].fd
        self._heard_to = mmap.mmap(self.bell, mmap.PAGESIZE)
        self._rung_to = mmap.mmap(
            self.bell, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ, offset=mmap.PAGESIZE
        )
        programs.run("begin")

    def resize(self, links: Sequence[Link], from_s: float) -> None:
        """Watch these links from now on; new ones count as those at first."""
        kept = {link.step for link in links}
        for step in [step for step in self._links if step not in kept]:
            self._link_of.discard(_key(self._links.pop(step)))
            self._free.append(self._numbers[step])
            self.forget(step, 0.0)
            del self._numbers[step]
        for link in links:
            if link.step not in self._links:
                self._add(link, from_s)

    def _add(self, link: Link, from_s: float) -> None:
        well = State.HEARD | State.HEARS_ME
        number = self._numbers[link.step] = self._free.pop()
        self._links[link.step] = link
        entry = int(from_s * NS), 0, link.uid.to_bytes(4, "big"), well, well, 0
        _LINK.pack_into(self._table, number * _LINK.size, *entry)
        self._link_of[_key(link)] = _INDEX.pack(number)

    def news(self) -> Iterator[tuple[Step, State]]:
        """Yield the links whose state is another than this process knew."""
        self.quiet()
        for step, number in self._numbers.items():
            state, told = struct.unpack_from("=II", self._table, number * _LINK.size + _STATE_AT)
            if state != told:
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
        counts = range(_COUNT_AT, self._room * _LINK.size, _LINK.size)
        return sum(_INDEX.unpack_from(self._table, at)[0] for at in counts)


def _key(link: Link) -> bytes:
    """Return what the kernel finds a link by."""
    return _KEY.pack(link.mac, 0, link.ifindex)
