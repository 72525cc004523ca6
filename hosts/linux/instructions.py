"""Instructions of eBPF, for programs of a handful of them, which need no compiler."""

from __future__ import annotations

import struct
from collections.abc import Iterable

TAIL_CALL = 12  # a helper function
CB = 48  # where in a packet's context (struct __sk_buff) are words for those who see it in turn
DROP = 2  # a verdict of traffic control


def instruction(code: int, register: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    """Return one instruction; two registers are 16 times the source plus the destination."""
    return struct.pack("=BBhi", code, register, offset, constant)


def set_register(register: int, constant: int) -> bytes:
    """Return the instruction that puts a number into a register."""
    return instruction(0xB7, register, 0, constant)


def store(at: int, number: int) -> bytes:
    """Return what writes a number there in the packet's context, a word.

    It goes by a register: before Linux 6.3 no constant may be stored in the context.
    """
    return set_register(2, number) + instruction(0x63, 0x21, at)  # *(u32 *)(r1 + at) = r2


def call_helper(helper: int) -> bytes:
    """Return the instruction that calls a function of the kernel's."""
    return instruction(0x85, 0, 0, helper)


EXIT = instruction(0x95)


def entrance(numbers: Iterable[int], programs: int, place: int) -> bytes:
    """Return the program that writes numbers beside the packet and goes on with another program.

    That one stands at a place of a table of programs (an open file). Where there is none any more,
    the packet is dropped.
    """
    return b"".join(
        [
            *(store(CB + 4 * word, number) for word, number in enumerate(numbers)),
            *(instruction(0x18, 0x12, 0, programs), instruction(0)),  # r2 = the table
            set_register(3, place),
            call_helper(TAIL_CALL),
            set_register(0, DROP) + EXIT,
        ]
    )
