"""Receive filters of packet sockets: a socket keeps the frames that pass a few byte tests.

The kernel needs 0.1 ms to verify and compile a program, and the same time to free it. So if eBPF
programs are allowed, all sockets with the same tests share one program, including sockets of
processes forked later. Otherwise each socket has its own classic BPF program.
"""

from __future__ import annotations

import socket
import struct
from functools import cache
from typing import NamedTuple

from hosts.linux.bpf import SOCKET_FILTER, BpfError, load
from hosts.linux.calls import attach_filter
from hosts.linux.instructions import (
    AND,
    BYTE,
    DIFFERENT,
    EQUAL,
    EXIT,
    R0,
    R1,
    R6,
    calculate,
    copy,
    load_packet,
    set_register,
    skip_if,
)

SO_ATTACH_BPF = 50
KEPT_BYTES = 65600  # accepted length of a frame in bytes, larger than any frame
# Opcodes of classic BPF, which works on an accumulator.
LOAD_BYTE, AND_WITH, IS_EQUAL, RETURN = 0x30, 0x54, 0x15, 0x06
# classic BPF instruction: code, jumps if true and if false, operand
_CLASSIC = struct.Struct("=HBBI")


class Byte(NamedTuple):
    """A test of one byte of a frame: the masked byte equals `value` (or differs from `value`)."""

    at: int
    value: int
    mask: int = 0xFF
    equal: bool = True


def keep(taker: socket.socket, *tests: Byte) -> None:
    """Attach a filter to a packet socket that accepts only frames that pass all byte tests.

    Frames that are too short for a test are not kept.
    """
    program = shared(tests)
    if program is None:
        attach_filter(taker, classic(tests))
    else:
        taker.setsockopt(socket.SOL_SOCKET, SO_ATTACH_BPF, program)


@cache
def shared(tests: tuple[Byte, ...]) -> int | None:
    """Return the cached eBPF socket filter for these byte tests, None without eBPF."""
    try:
        return load(modern(tests), SOCKET_FILTER)
    except (OSError, BpfError):
        return None


def modern(tests: tuple[Byte, ...]) -> bytes:
    """Return an eBPF program that performs the byte tests of a frame."""
    program = copy(R6, R1)
    for at, value, mask, equal in tests:
        program += load_packet(BYTE, at) + calculate(AND, R0, mask)
        program += skip_if(EQUAL if equal else DIFFERENT, R0, value, 2)
        program += set_register(R0, 0) + EXIT
    return program + set_register(R0, KEPT_BYTES) + EXIT


def classic(tests: tuple[Byte, ...]) -> bytes:
    """Return a classic BPF program that performs the byte tests of a frame."""
    program = b""
    for at, value, mask, equal in tests:
        program += _CLASSIC.pack(LOAD_BYTE, 0, 0, at) + _CLASSIC.pack(AND_WITH, 0, 0, mask)
        program += _CLASSIC.pack(IS_EQUAL, int(equal), int(not equal), value)
        program += _CLASSIC.pack(RETURN, 0, 0, 0)
    return program + _CLASSIC.pack(RETURN, 0, 0, KEPT_BYTES)
