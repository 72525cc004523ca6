"""How a program that many servers share stands at one server's interfaces."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl

from hosts.linux import tcx
from hosts.linux.bpf import MAP_CREATE, Map, call, load, refused
from hosts.linux.calls import current_namespace, inside
from hosts.linux.instructions import entrance
from hosts.linux.interfaces import Changes

PROG_ARRAY = 3  # a kind of map
MOST_ENTRANCES = 4  # programs that one server has attached
# A descriptor above all others: the kernel closes those of a dead process downwards.
CLOSED_FIRST = 255

_NUMBER = struct.Struct("=I")


class Entrance:
    """One server's way into programs that it shares with others: open while its process lives.

    What is attached are a few instructions of this server's: they note its numbers for the program,
    and go there by a table of programs. The kernel empties it as soon as no process holds it, and
    from then on they drop what comes: a server that is dead must not forward, and what is attached
    outlives the process that did it.

    Parameters
    ----------
    *numbers : int
        What the programs find beside each packet: which server it is, and whatever they need.
    by_filters : bool
        Whether filters of traffic control call them, and not interfaces by themselves (see `tcx`).
    """

    def __init__(self, *numbers: int, by_filters: bool) -> None:
        low = call(MAP_CREATE, struct.pack("=5I", PROG_ARRAY, 4, 4, MOST_ENTRANCES, 0))
        made = fcntl(low, F_DUPFD_CLOEXEC, CLOSED_FIRST)
        os.close(low)
        self._numbers, self._table = numbers, Map(made, 4, 4, MOST_ENTRANCES)
        self._by_filters = by_filters
        self._entrances: dict[int, int] = {}  # by the program that they lead to
        self._files = [made]
        self._attached: list[tuple[int, int, bool]] = []  # an entrance, where, and at which side
        self._namespace = -1  # the interfaces'

    def attach(self, program: int, ifindex: int, *, egress: bool) -> None:
        """Let a program see what an interface sends, or else receives; all are in one namespace."""
        fd = self._entrances.get(program) or self._open(program)
        try:
            if self._by_filters:
                changes = Changes()
                changes.attach(ifindex, fd, egress=egress)
                changes.make()
            else:
                tcx.attach_anew(fd, ifindex, egress=egress)
        except OSError as error:
            sentence = f"a program cannot be attached to interface {ifindex}"
            raise refused(sentence, error.errno or 0) from None
        if self._namespace < 0:
            self._namespace = current_namespace()
        self._attached.append((fd, ifindex, egress))

    def _open(self, program: int) -> int:
        place = len(self._entrances)
        self._table[_NUMBER.pack(place)] = _NUMBER.pack(program)
        try:
            made = load(entrance(self._numbers, self._table.fd, place))
        except OSError as error:
            raise refused("the kernel refused a server's entrance", error.errno or 0) from None
        self._entrances[program] = made
        self._files.append(made)
        return made

    def close(self) -> None:
        """Detach everything. Without this, the end of the process leaves what drops."""
        if self._attached:
            with inside(self._namespace):
                for each in self._attached:
                    self._detach(*each)
            os.close(self._namespace)
        for fd in self._files:
            os.close(fd)
        self._attached, self._files, self._entrances, self._namespace = [], [], {}, -1

    def _detach(self, fd: int, ifindex: int, egress: bool) -> None:
        with suppress(OSError):  # an interface may be gone, and all at it
            if self._by_filters:
                changes = Changes()
                changes.detach(ifindex, egress=egress)
                changes.make()
            else:
                tcx.detach(fd, ifindex, egress=egress)
