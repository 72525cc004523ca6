"""Programs that stand at an interface by themselves, called by no filter (TCX, Linux 6.6).

What a filter needs is then not fetched from memory for each packet. They stay until they are
taken away or the interface goes, as filters do.

Whenever one comes or goes the kernel waits until no processor can be in what was there before, and
nobody can change any interface meanwhile. That takes 10 to 20 ms, and a lab has thousands of
places; where the kernel was told to hurry it takes 0.1 ms. Elsewhere filters have to serve.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hosts.linux.bpf import ATTRIBUTES, NAME, BpfError, call

HURRY = Path("/sys/kernel/rcu_expedited")
PROGRAM_ATTACH, PROGRAM_DETACH, FILE_OF_PROGRAM, INFO, PROGRAM_QUERY = 8, 9, 13, 15, 16
INCOMING, OUTGOING = 46, 47  # kinds of places, in linux/bpf.h
BEFORE = 1 << 3
UNTOUCHED = 1  # the revision of a place where no program has been
MOST = 64  # programs at one place
INFO_BYTES, NAME_AT = 80, 64  # of what the kernel tells of a program
LOOPBACK = 1  # the first interface of every namespace


def is_quick() -> bool:
    """Tell whether programs can stand at interfaces by themselves, without a long wait for each."""
    try:
        hurries = HURRY.read_text().strip() != "0"
    except OSError:
        return False
    return hurries and is_known()


def is_known() -> bool:
    """Tell whether this kernel knows such places, and lets this process see them."""
    try:
        standing(LOOPBACK, egress=False)
    except (OSError, BpfError):
        return False
    return True


def attach(program: int, ifindex: int, *, egress: bool, before: int | None = None) -> None:
    """Let a program see what an interface sends, or else receives.

    It runs before another program there, or after all others.
    """
    flags, other = (0, 0) if before is None else (BEFORE, before)
    place = struct.pack("=6I", ifindex, program, _kind(egress), flags, 0, other)
    call(PROGRAM_ATTACH, place)


def attach_anew(program: int, ifindex: int, *, egress: bool) -> None:
    """Let a program see what passes there, in place of those of ours that a dead process left."""
    place = struct.pack("=6IQ", ifindex, program, _kind(egress), 0, 0, 0, UNTOUCHED)
    try:
        call(PROGRAM_ATTACH, place)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        for left in _ours(ifindex, egress=egress):
            detach(left, ifindex, egress=egress)
        attach(program, ifindex, egress=egress)


def detach(program: int, ifindex: int, *, egress: bool) -> None:
    """Take away what `attach` put there."""
    call(PROGRAM_DETACH, struct.pack("=4I", ifindex, program, _kind(egress), 0))


def _kind(egress: bool) -> int:
    return OUTGOING if egress else INCOMING


def _ours(ifindex: int, *, egress: bool) -> Iterator[int]:
    """Yield each program there that was put together here, as a file that is open meanwhile."""
    for number in standing(ifindex, egress=egress):
        with suppress(FileNotFoundError):  # gone since
            program = call(FILE_OF_PROGRAM, struct.pack("=I", number))
            try:
                if _name(program) == NAME:
                    yield program
            finally:
                os.close(program)


def standing(ifindex: int, *, egress: bool) -> list[int]:
    """Return the numbers of the programs that stand there, in their order."""
    numbers = (ctypes.c_uint32 * MOST)()
    there = struct.pack("=4IQI", ifindex, _kind(egress), 0, 0, ctypes.addressof(numbers), MOST)
    asked = ctypes.create_string_buffer(there, ATTRIBUTES)
    call(PROGRAM_QUERY, asked)
    (count,) = struct.unpack_from("=I", asked, 24)
    return numbers[:count]


def _name(program: int) -> bytes:
    info = ctypes.create_string_buffer(INFO_BYTES)
    call(INFO, struct.pack("=IIQ", program, INFO_BYTES, ctypes.addressof(info)))
    return info.raw[NAME_AT:].rstrip(b"\0")
