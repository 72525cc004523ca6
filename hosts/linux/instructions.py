"""eBPF instruction encoding, for short programs assembled without a compiler."""

from __future__ import annotations

import struct
from collections.abc import Iterable

TAIL_CALL = 12  # number of the helper function bpf_tail_call
CB = 48  # offset of the scratch words `cb` in the packet context (struct __sk_buff)
DROP = 2  # traffic-control verdict TC_ACT_SHOT


def instruction(code: int, register: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    """Return an encoded instruction; `register` is 16 * source + destination register."""
    return struct.pack("=BBhi", code, register, offset, constant)


def set_register(register: int, constant: int) -> bytes:
    """Return the instruction that loads a constant into a register."""
    return instruction(0xB7, register, 0, constant)


def store(at: int, number: int) -> bytes:
    """Return the instructions that store a 32-bit number in the packet context at an offset.

    The number is loaded into a register first: before Linux 6.3 the context does not accept
    constants.
    """
    return set_register(2, number) + instruction(0x63, 0x21, at)  # *(u32 *)(r1 + at) = r2


def call_helper(helper: int) -> bytes:
    """Return the instruction that calls a helper function of the kernel."""
    return instruction(0x85, 0, 0, helper)


EXIT = instruction(0x95)


def entrance(numbers: Iterable[int], programs: int, place: int) -> bytes:
    """Return the program that stores numbers in the packet context and makes a tail call.

    The target is entry `place` of a program array (file descriptor `programs`). If the entry is
    empty, the packet is dropped.
    """
    return b"".join(
        [
            *(store(CB + 4 * word, number) for word, number in enumerate(numbers)),
            *(instruction(0x18, 0x12, 0, programs), instruction(0)),  # r2 = program array
            set_register(3, place),
            call_helper(TAIL_CALL),
            set_register(0, DROP) + EXIT,
        ]
    )
