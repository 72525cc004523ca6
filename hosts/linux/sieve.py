"""What a socket keeps of the frames that come: those that pass each of a few tests of a byte.

For each program the kernel takes a tenth of a millisecond, to check and to compile it, and as long
to throw it away. So where it takes programs of eBPF, all sockets that keep the same share one,
also those of processes forked later. Elsewhere each has one of classic BPF.
"""

from __future__ import annotations

import socket
import struct
from functools import cache
from typing import NamedTuple

from hosts.linux.bpf import SOCKET_FILTER, BpfError, load
from hosts.linux.calls import attach_filter
from hosts.linux.instructions import EXIT, instruction, set_register

SO_ATTACH_BPF = 50
KEPT_BYTES = 65600  # of a frame: all
# The same number in both languages; the loaded byte is in the register 0, or the only one.
LOAD_BYTE, AND_WITH, IS_EQUAL = 0x30, 0x54, 0x15
IS_OTHER, COPY, RETURN = 0x55, 0xBF, 0x06
_CLASSIC = struct.Struct("=HBBI")  # code, jumps if true and if false, operand


class Byte(NamedTuple):
    """A test: whether a byte of a frame, as far as the mask goes, has a value, or else another."""

    at: int
    value: int
    mask: int = 0xFF
    equal: bool = True


def keep(taker: socket.socket, *tests: Byte) -> None:
    """Let a socket keep only the frames that pass all tests; shorter ones do not."""
    program = shared(tests)
    if program is None:
        attach_filter(taker, classic(tests))
    else:
        taker.setsockopt(socket.SOL_SOCKET, SO_ATTACH_BPF, program)


@cache
def shared(tests: tuple[Byte, ...]) -> int | None:
    """Return a program for all sockets with these tests, None where the kernel takes none."""
    try:
        return load(modern(tests), SOCKET_FILTER)
    except (OSError, BpfError):
        return None


def modern(tests: tuple[Byte, ...]) -> bytes:
    """Return the tests as a program of eBPF."""
    program = instruction(COPY, 0x16)  # where a load looks for the frame
    for at, value, mask, equal in tests:
        program += instruction(LOAD_BYTE, 0, 0, at) + instruction(AND_WITH, 0, 0, mask)
        program += instruction(IS_EQUAL if equal else IS_OTHER, 0, 2, value)
        program += set_register(0, 0) + EXIT
    return program + set_register(0, KEPT_BYTES) + EXIT


def classic(tests: tuple[Byte, ...]) -> bytes:
    """Return the tests as a program of classic BPF."""
    program = b""
    for at, value, mask, equal in tests:
        program += _CLASSIC.pack(LOAD_BYTE, 0, 0, at) + _CLASSIC.pack(AND_WITH, 0, 0, mask)
        program += _CLASSIC.pack(IS_EQUAL, int(equal), int(not equal), value)
        program += _CLASSIC.pack(RETURN, 0, 0, 0)
    return program + _CLASSIC.pack(RETURN, 0, 0, KEPT_BYTES)
