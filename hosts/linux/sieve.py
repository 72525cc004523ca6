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

from pillarbox.hosts.linux.bpf import SOCKET_FILTER, BpfError, load_program
from pillarbox.hosts.linux.calls import attach_filter
from pillarbox.hosts.linux.instructions import (
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
KEPT_BYTES = 65600  # result of the socket filter: bytes of a frame to keep, more than any has
# Opcodes of classic BPF, the socket filter language with one accumulator register.
LOAD_BYTE, AND_WITH, IS_EQUAL, RETURN = 0x30, 0x54, 0x15, 0x06
# Classic BPF instruction: code, jumps if true and if false, operand
_CLASSIC = struct.Struct("=HBBI")


class ByteTest(NamedTuple):
    """A test of one byte of a frame: the masked byte equals `value` (or differs from `value`)."""

    at: int
    value: int
    mask: int = 0xFF
    equal: bool = True


def attach_byte_filter(taker: socket.socket, *tests: ByteTest) -> None:
    """Attach a filter to a packet socket that accepts only frames that pass all byte tests.

    Frames that are too short for a test are not kept.
    """
    program = shared_filter(tests)
    if program is None:
        attach_filter(taker, classic_filter(tests))
    else:
        taker.setsockopt(socket.SOL_SOCKET, SO_ATTACH_BPF, program)


@cache
def shared_filter(tests: tuple[ByteTest, ...]) -> int | None:
    """Return the descriptor of the cached eBPF filter for these byte tests; None without eBPF."""
    try:
        return load_program(ebpf_filter(tests), SOCKET_FILTER)
    except (OSError, BpfError):
        return None


def ebpf_filter(tests: tuple[ByteTest, ...]) -> bytes:
    """Return an eBPF socket filter that accepts frames that pass all byte tests."""
    program = copy(R6, R1)
    for at, value, mask, equal in tests:
        program += load_packet(BYTE, at) + calculate(AND, R0, mask)
        program += skip_if(EQUAL if equal else DIFFERENT, R0, value, 2)
        program += set_register(R0, 0) + EXIT
    return program + set_register(R0, KEPT_BYTES) + EXIT


def classic_filter(tests: tuple[ByteTest, ...]) -> bytes:
    """Return a classic BPF socket filter that accepts frames that pass all byte tests."""
    program = b""
    for at, value, mask, equal in tests:
        program += _CLASSIC.pack(LOAD_BYTE, 0, 0, at) + _CLASSIC.pack(AND_WITH, 0, 0, mask)
        program += _CLASSIC.pack(IS_EQUAL, int(equal), int(not equal), value)
        program += _CLASSIC.pack(RETURN, 0, 0, 0)
    return program + _CLASSIC.pack(RETURN, 0, 0, KEPT_BYTES)
