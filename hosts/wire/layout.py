"""A header, declared once: its bytes, its limits, its checksum and its picture.

A `Layout` is a sequence of fields, most significant bit first, as RFCs draw them. From it come

- `pack` and `unpack`, compiled to `struct`: they take and give the values of the fields that are
  neither constant nor the checksum, in their order. Constants and checksum are filled in when
  packing, and demanded when unpacking;
- `picture`, the drawing that stands in the docstrings;
- `fields` and `places`, for whoever wants to describe the header to others.

A `Body` is a layout with entries behind it, as many as its field `count` says. Its checksum
covers them as well.

One set of values has one encoding: what unpacks packs to the same bytes again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Any, Literal, get_args

Reason = Literal[
    "truncated",
    "bad version",
    "bad length",
    "bad checksum",
    "bad field",
    "bad path",
    "unknown message",
]
REASONS: tuple[str, ...] = get_args(Reason)

CHECKSUM = "checksum"
COUNT = "count"
ROW_BITS = 32
WORDS = {8: "B", 16: "H", 32: "I", 64: "Q"}


class WireError(ValueError):
    """Bytes that are no packet, or values that fit into none.

    The text is one sentence; `reason` is one of `REASONS`, to count by.
    """

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(reason, sentence)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[1])


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071): the complement of the one's complement sum.

    >>> hex(checksum(bytes.fromhex("4500 0030 4422 4000 8006 0000 8c7c 19ac ae24 1e2b")))
    '0x442e'
    """
    return _checksum(_number(data))


def _number(data: bytes) -> int:
    """Return the data as one number, padded to whole 16-bit words as RFC 1071 demands."""
    return int.from_bytes(data, "big") << 8 * (len(data) & 1)


def _checksum(number: int) -> int:
    """Return the checksum of 16-bit words written as one number.

    A sum with end-around carry is a remainder by 2^16 - 1, except that it is only zero when all
    words are.
    """
    return -number % 0xFFFF if number else 0xFFFF


def payload(data: bytes, start: int, length: int) -> bytes:
    """Return what follows a header, without Ethernet's padding."""
    found = data[start : start + length]
    if len(found) < length:
        raise WireError("truncated", f"{length} bytes follow the header, not {len(found)}")
    return found


def names(values: type[IntEnum]) -> dict[int, str]:
    """Return the meaning of each value of an enumeration, as `Field` wants it."""
    return {value.value: value.name.lower().replace("_", " ") for value in values}


@dataclass(frozen=True)
class Field:
    """Some bits of a header.

    A field of the name ``checksum`` is the Internet checksum of its header, one of the name
    ``count`` the number of entries behind it.
    """

    name: str
    bits: int
    title: str = ""  # as it is drawn
    constant: int | None = None  # the only value there is
    least: int = 0
    most: int = -1  # by default what the bits can hold
    meaning: Mapping[int, str] | None = None
    reason: Reason = "bad field"  # to count refused values by

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name.replace("_", " ").title())
        object.__setattr__(self, "most", 2**self.bits - 1 if self.most < 0 else self.most)

    @property
    def is_value(self) -> bool:
        """Whether it takes part in `Layout.pack` and `Layout.unpack`."""
        return self.constant is None and self.name != CHECKSUM

    def refusal(self, value: int) -> WireError:
        """Return the error of a value that the field does not hold."""
        right = f"from {self.least} to {self.most}" if self.constant is None else self.constant
        return WireError(self.reason, f"{self.title} is {value}, it must be {right}")


class Layout:
    """The fields of a header of fixed size.

    >>> layout = Layout([Field("kind", 4, constant=2), Field("level", 4, most=3), Field("uid", 16)])
    >>> layout.size, layout.pack(1, 258), layout.unpack(b"!\\x01\\x02")
    (3, b'!\\x01\\x02', (1, 258))
    >>> print(layout.picture())
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Kind | Level |              Uid              |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    """

    def __init__(self, fields: Sequence[Field], *, title: str = "header") -> None:
        self.fields = tuple(fields)
        self.title = title
        bits = sum(field.bits for field in fields)
        self.size = bits // 8
        self.values = tuple(field for field in fields if field.is_value)
        # Constants are compared, and the checksum is computed, on the header as one number.
        self._mask = self._constants = 0
        self._checksum_shift: int | None = None
        for offset, field in self.places():
            shift = bits - offset - field.bits
            if field.constant is not None:
                self._mask |= (2**field.bits - 1) << shift
                self._constants |= field.constant << shift
            elif field.name == CHECKSUM:
                self._checksum_shift = shift
        # Values of whole words come out of struct as they are; the parts of other words are
        # (shift, mask), listed with the index of the first among the values.
        self._splits: list[tuple[int, list[tuple[int, int]]]] = []
        self._struct = struct.Struct(">" + "".join(self._formats()))
        split = {index + i for index, parts in self._splits for i in range(len(parts))}
        self._limits = [
            (index, field.least, field.most)
            for index, field in enumerate(self.values)
            if index in split or field.least > 0 or field.most < 2**field.bits - 1
        ]

    def places(self) -> Iterator[tuple[int, Field]]:
        """Yield every field, constants and checksum included, behind its offset in bits."""
        offset = 0
        for field in self.fields:
            yield offset, field
            offset += field.bits

    def byte(self, name: str) -> int:
        """Return the offset of a field in bytes."""
        return next(offset for offset, field in self.places() if field.name == name) // 8

    def pack(self, *values: int, rest: bytes = b"") -> bytes:
        """Return the header and the rest, which the checksum covers as well."""
        for index, least, most in self._limits:
            if not least <= values[index] <= most:
                raise self.values[index].refusal(values[index])
        words = values
        if self._splits:
            joined = list(values)
            for index, parts in reversed(self._splits):
                end = index + len(parts)
                word = 0
                for value, (shift, _) in zip(joined[index:end], parts, strict=True):
                    word |= value << shift
                joined[index:end] = [word]
            words = tuple(joined)
        try:
            number = int.from_bytes(self._struct.pack(*words), "big") | self._constants
        except struct.error:
            self._refuse(values)
            raise  # not a number, or not as many as there are fields: a fault of the program
        if self._checksum_shift is not None:
            covered = (number << 8 * len(rest + rest[:0])) if not rest else number
            number |= _checksum(covered + _number(rest)) << self._checksum_shift
        return number.to_bytes(self.size, "big") + rest
