"""Instructions of eBPF, for programs of a handful of them, which need no compiler."""

from __future__ import annotations

import struct

TAIL_CALL = 12  # a helper function
CB = 48  # where in a packet's context (struct __sk_buff) are words for those who see it in turn
DROP = 2  # a verdict of traffic control


def instruction(code: int, register: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    """Return one instruction; two registers are 16 times the source plus the destination."""
    return struct.pack("=BBhi", code, register, offset, constant)


def set_register(register: int, constant: int) -> bytes:
    """Return the instruction that puts a number into a register."""
    return instruction(0xB7, register, 0, constant)


def call_helper(helper: int) -> bytes:
    """Return the instruction that calls a function of the kernel's."""
    return instruction(0x85, 0, 0, helper)


EXIT = instruction(0x95)


def entrance(number: int, programs: int, place: int) -> bytes:
    """Return the program that writes a number beside the packet and goes on with another program.

    That one stands at a place of a table of programs (an open file). Where there is none any more,
    the packet is dropped.
    """
    return b"".join(
        [
            set_register(2, number),
            instruction(0x63, 0x21, CB),  # *(u32 *)(r1 + CB) = r2
            *(instruction(0x18, 0x12, 0, programs), instruction(0)),  # r2 = the table
            set_register(3, place),
            call_helper(TAIL_CALL),
            set_register(0, DROP) + EXIT,
        ]
    )
