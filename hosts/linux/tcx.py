"""eBPF programs attached directly to interfaces (TCX, Linux 6.6), without a filter.

TCX avoids the memory accesses of a traffic-control filter for each packet. Like filters, programs
remain attached until they are detached or the interface is deleted.

At each attachment and detachment the kernel waits for an RCU grace period, during which no
interface can be changed. That takes 10 to 20 ms, and a lab has thousands of attachment points; with
expedited grace periods (rcu_expedited) it takes 0.1 ms. Without them, labs use filters.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pillarbox.hosts.linux.bpf import ATTRIBUTES, NAME, BpfError, call_bpf

HURRY = Path("/sys/kernel/rcu_expedited")
PROGRAM_ATTACH, PROGRAM_DETACH, FILE_OF_PROGRAM, INFO, PROGRAM_QUERY = 8, 9, 13, 15, 16
INCOMING, OUTGOING = 46, 47  # attach types BPF_TCX_INGRESS and BPF_TCX_EGRESS of linux/bpf.h
BEFORE = 1 << 3  # flag BPF_F_BEFORE of bpf(2): attach before another program
UNTOUCHED = 1  # revision number of an attachment point (TCX) that never had a program
MOST = 64  # maximum number of programs at one TCX attachment point
INFO_BYTES, NAME_AT = 80, 64  # size of struct bpf_prog_info, and offset of the program's name
LOOPBACK = 1  # index of the loopback interface, the first of every namespace


def detaches_fast() -> bool:
    """Return True if TCX programs detach fast: TCX exists, and RCU grace periods are expedited."""
    try:
        expedited = HURRY.read_text().strip() != "0"
    except OSError:
        return False
    return expedited and is_supported()


def is_supported() -> bool:
    """Return True if this kernel has TCX (attached eBPF programs) and this process may query it."""
    try:
        attached_program_ids(LOOPBACK, egress=False)
    except (OSError, BpfError):
        return False
    return True


def attach(program: int, ifindex: int, *, egress: bool, before: int | None = None) -> None:
    """Attach an eBPF program to an interface's egress or ingress by TCX.

    The program runs before the program `before` (0: before all others), or by default after all
    others.
    """
    flags, other = (0, 0) if before is None else (BEFORE, before)
    attributes = struct.pack("=6I", ifindex, program, _attach_type(egress), flags, 0, other)
    call_bpf(PROGRAM_ATTACH, attributes)


def replace_dead_programs(program: int, ifindex: int, *, egress: bool) -> None:
    """Attach an eBPF program to an interface, replacing those of a dead Pillarbox process."""
    attributes = struct.pack("=6IQ", ifindex, program, _attach_type(egress), 0, 0, 0, UNTOUCHED)
    try:
        call_bpf(PROGRAM_ATTACH, attributes)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        for stale in _own_programs(ifindex, egress=egress):
            detach(stale, ifindex, egress=egress)
        attach(program, ifindex, egress=egress)


def detach(program: int, ifindex: int, *, egress: bool) -> None:
    """Detach an eBPF program from the egress or ingress of an interface."""
    call_bpf(PROGRAM_DETACH, struct.pack("=4I", ifindex, program, _attach_type(egress), 0))


def _attach_type(egress: bool) -> int:
    """Return the TCX attach type (from linux/bpf.h) of egress or ingress."""
    return OUTGOING if egress else INCOMING


def _own_programs(ifindex: int, *, egress: bool) -> Iterator[int]:
    """Yield descriptors of Pillarbox's eBPF programs at an interface; each is closed after use."""
    for number in attached_program_ids(ifindex, egress=egress):
        with suppress(FileNotFoundError):  # an eBPF program was detached after its id was read
            program = call_bpf(FILE_OF_PROGRAM, struct.pack("=I", number))
            try:
                if _program_name(program) == NAME:
                    yield program
            finally:
                os.close(program)


def attached_program_ids(ifindex: int, *, egress: bool) -> list[int]:
    """Return the ids of the eBPF programs attached to an interface, in execution order."""
    numbers = (ctypes.c_uint32 * MOST)()
    query = struct.pack(
        "=4IQI", ifindex, _attach_type(egress), 0, 0, ctypes.addressof(numbers), MOST
    )
    attributes = ctypes.create_string_buffer(query, ATTRIBUTES)
    call_bpf(PROGRAM_QUERY, attributes)
    (count,) = struct.unpack_from("=I", attributes, 24)
    return numbers[:count]


def _program_name(program: int) -> bytes:
    """Return the name of a loaded eBPF program."""
    info = ctypes.create_string_buffer(INFO_BYTES)
    call_bpf(INFO, struct.pack("=IIQ", program, INFO_BYTES, ctypes.addressof(info)))
    return info.raw[NAME_AT:].rstrip(b"\0")
