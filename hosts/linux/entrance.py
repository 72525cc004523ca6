"""Attachment of shared eBPF programs to the interfaces of one server."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl

from pillarbox.hosts.linux import tcx
from pillarbox.hosts.linux.bpf import MAP_CREATE, Map, call_bpf, load_program, refusal_error
from pillarbox.hosts.linux.calls import current_namespace, inside
from pillarbox.hosts.linux.instructions import entry_program
from pillarbox.hosts.linux.interfaces import InterfaceChanges

PROG_ARRAY = 3  # eBPF map type BPF_MAP_TYPE_PROG_ARRAY, an array of programs for tail calls
MOST_ENTRANCES = 4  # maximum number of different eBPF programs that one server attaches
# Minimum descriptor number of the eBPF program array, higher than all others of the process.
# The kernel closes the files of a dead process from the highest descriptor down.
CLOSED_FIRST = 255

_NUMBER = struct.Struct("=I")


class EntryPrograms:
    """One server's entry programs, which tail-call the lab's shared eBPF programs.

    The attached programs consist of a few instructions: they store this server's numbers in the
    packet's context and make a tail call through an array of programs. The kernel empties the array
    as soon as no process holds it; then the attached programs drop all packets. A dead server must
    not forward packets, but attached programs outlive the process that attached them.

    Parameters
    ----------
    *numbers : int
        Values that programs read from each packet's context, such as the number of the server.
    by_filters : bool
        True to attach as traffic-control filters, False to attach to interfaces with `tcx`.
    """

    def __init__(self, *numbers: int, by_filters: bool) -> None:
        low = call_bpf(MAP_CREATE, struct.pack("=5I", PROG_ARRAY, 4, 4, MOST_ENTRANCES, 0))
        made = fcntl(low, F_DUPFD_CLOEXEC, CLOSED_FIRST)
        os.close(low)
        self._numbers, self._table = numbers, Map(made, 4, 4, MOST_ENTRANCES)
        self._by_filters = by_filters
        # descriptors of entry programs, by the descriptor of the shared program that each calls
        self._entrances: dict[int, int] = {}
        self._files = [made]
        # Attached programs: (entry program, interface index, True for egress).
        self._attached: list[tuple[int, int, bool]] = []
        self._namespace = -1  # descriptor of the interfaces' network namespace; -1 before the first

    def attach(self, program: int, ifindex: int, *, egress: bool) -> None:
        """Attach an eBPF program to an interface's egress or ingress.

        All interfaces must be in one network namespace.
        """
        fd = self._entrances.get(program) or self._load_entry_program(program)
        try:
            if self._by_filters:
                changes = InterfaceChanges()
                changes.attach(ifindex, fd, egress=egress)
                changes.apply()
            else:
                tcx.replace_dead_programs(fd, ifindex, egress=egress)
        except OSError as error:
            sentence = f"a program cannot be attached to interface {ifindex}"
            raise refusal_error(sentence, error.errno or 0) from None
        if self._namespace < 0:
            self._namespace = current_namespace()
        self._attached.append((fd, ifindex, egress))

    def _load_entry_program(self, program: int) -> int:
        """Load the entry program for a shared program and return its descriptor."""
        index = len(self._entrances)
        self._table[_NUMBER.pack(index)] = _NUMBER.pack(program)
        try:
            made = load_program(entry_program(self._numbers, self._table.fd, index))
        except OSError as error:
            raise refusal_error(
                "the kernel refused a server's eBPF entry program", error.errno or 0
            ) from None
        self._entrances[program] = made
        self._files.append(made)
        return made

    def close(self) -> None:
        """Detach the entry programs; if a process ends without this, its interfaces drop all."""
        if self._attached:
            with inside(self._namespace):
                for attachment in self._attached:
                    self._detach(*attachment)
            os.close(self._namespace)
        for fd in self._files:
            os.close(fd)
        self._attached, self._files, self._entrances, self._namespace = [], [], {}, -1

    def _detach(self, fd: int, ifindex: int, egress: bool) -> None:
        """Detach an eBPF entry program from an interface's egress or ingress."""
        # The interface may already be deleted, together with its eBPF programs.
        with suppress(OSError):
            if self._by_filters:
                changes = InterfaceChanges()
                changes.detach(ifindex, egress=egress)
                changes.apply()
            else:
                tcx.detach(fd, ifindex, egress=egress)
