"""eBPF instruction encoding, for short programs assembled without a compiler."""

from __future__ import annotations

import struct
from collections.abc import Iterable

TAIL_CALL = 12  # number of the helper function bpf_tail_call
CB = 48  # byte offset of the scratch words `cb` in the packet context struct __sk_buff
DROP = 2  # traffic-control verdict TC_ACT_SHOT: drop the packet


# Registers of eBPF programs; R1 holds the context at the start, R10 the stack.
R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = range(11)

# Size codes of eBPF loads and stores: 32, 16, 8 and 64 bits.
WORD, HALF, BYTE, DOUBLE = 0x00, 0x08, 0x10, 0x18
# Operation codes of eBPF arithmetic; the first operand is a register, which gets the result.
ADD, SUBTRACT, MULTIPLY, DIVIDE, OR, AND, SHIFT_LEFT = 0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60
SHIFT_RIGHT = 0x70
# Condition codes of eBPF jumps, which compare unsigned values.
EQUAL, ABOVE, AT_LEAST, DIFFERENT, BELOW, AT_MOST = 0x10, 0x20, 0x30, 0x50, 0xA0, 0xB0


def instruction(code: int, register: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    """Return an encoded eBPF instruction; `register` is 16 * source + destination register."""
    return struct.pack("=BBhi", code, register, offset, constant)


def _register_byte(to: int, source: int) -> int:
    return 16 * source + to


def set_register(register: int, constant: int, *, bits: int = 64) -> bytes:
    """Return the eBPF instruction that loads a constant into a register."""
    return instruction(0xB7 if bits == 64 else 0xB4, register, 0, constant)


def copy(to: int, source: int, *, bits: int = 64) -> bytes:
    """Return the eBPF instruction that copies a register, or its low 32 bits."""
    return instruction(0xBF if bits == 64 else 0xBC, _register_byte(to, source))


def set_map(register: int, descriptor: int) -> bytes:
    """Return the eBPF instructions that load a map's address, by its file descriptor."""
    return instruction(0x18, _register_byte(register, 1), 0, descriptor) + instruction(0)


def load(size: int, to: int, pointer: int, offset: int = 0) -> bytes:
    """Return the eBPF instruction that loads memory: to = *(size *)(pointer + offset)."""
    return instruction(0x61 | size, _register_byte(to, pointer), offset)


def store(size: int, pointer: int, offset: int, source: int) -> bytes:
    """Return the eBPF instruction that stores a register: *(size *)(pointer + offset) = source."""
    return instruction(0x63 | size, _register_byte(pointer, source), offset)


def load_packet(size: int, at: int, *, beyond: int | None = None) -> bytes:
    """Return the eBPF instruction that loads bytes of R6's packet into R0, in host byte order.

    The position is `at`, or `at` plus the register `beyond`. A position behind the packet's end
    ends the program, with 0.
    """
    if beyond is None:
        return instruction(0x20 | size, 0, 0, at)
    return instruction(0x40 | size, _register_byte(0, beyond), 0, at)


def calculate(operation: int, to: int, constant: int) -> bytes:
    """Return the eBPF instruction that computes a register from itself and a constant."""
    return instruction(0x07 | operation, to, 0, constant)


def calculate_with(operation: int, to: int, source: int) -> bytes:
    """Return the eBPF instruction that computes a register from itself and another register."""
    return instruction(0x0F | operation, _register_byte(to, source))


def to_network_order(register: int, bits: int) -> bytes:
    """Return the eBPF instruction that converts a register to network byte order."""
    return instruction(0xDC, register, 0, bits)


def skip(count: int) -> bytes:
    """Return the eBPF instruction that jumps over the next `count` instructions."""
    return instruction(0x05, 0, count)


def skip_if(condition: int, register: int, constant: int, count: int, *, bits: int = 64) -> bytes:
    """Return the eBPF instruction that skips `count` instructions if a comparison holds."""
    return instruction((0x05 if bits == 64 else 0x06) | condition, register, count, constant)


def skip_if_register(condition: int, register: int, other: int, count: int) -> bytes:
    """Return the eBPF instruction that skips `count` others if a register comparison holds."""
    return instruction(0x0D | condition, _register_byte(register, other), count)


def length(program: bytes) -> int:
    """Return the number of instructions of an eBPF program, the unit of jumps."""
    return len(program) // 8


def store_in_context(at: int, number: int) -> bytes:
    """Return the eBPF instructions that store a 32-bit number in the packet context.

    The number is loaded into a register first: before Linux 6.3 the context does not accept
    constants.
    """
    return set_register(R2, number) + store(WORD, R1, at, R2)


def call_helper(helper: int) -> bytes:
    """Return the eBPF instruction that calls a helper function of the kernel by number."""
    return instruction(0x85, 0, 0, helper)


EXIT = instruction(0x95)


def entry_program(numbers: Iterable[int], programs: int, place: int) -> bytes:
    """Return an eBPF program that stores numbers in the packet context and makes a tail call.

    The target is entry `place` of a program array (file descriptor `programs`). If the entry is
    empty, the packet is dropped.
    """
    return b"".join(
        [
            *(store_in_context(CB + 4 * word, number) for word, number in enumerate(numbers)),
            set_map(R2, programs),
            set_register(R3, place),
            call_helper(TAIL_CALL),
            set_register(R0, DROP) + EXIT,
        ]
    )
