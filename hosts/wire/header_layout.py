"""Declaration of headers: byte layout, limits of values, checksum and RFC-style picture.

A `HeaderLayout` is a sequence of fields, most significant bit first, as drawn in RFCs. It provides

- `pack` and `unpack`, based on `struct`, which convert the values of all fields except constants
  and the checksum, in their order. Packing fills in constants and checksum, and unpacking verifies
  them;
- `picture`, the drawing in the docstrings;
- `fields` and `places`, for tools that describe the header.

A `Body` is a layout followed by entries; its field ``count`` holds their number. The checksum also
covers the entries.

Each set of values has exactly one encoding: unpacked values are packed to the same bytes again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, get_args

Reason = Literal[
    "truncated",
    "bad version",
    "bad length",
    "bad checksum",
    "bad field",
    "bad path",
    "unknown message",
]
REASONS: tuple[Reason, ...] = get_args(Reason)

CHECKSUM = "checksum"
COUNT = "count"
ROW_BITS = 32
WORDS = {8: "B", 16: "H", 32: "I", 64: "Q"}


class WireError(ValueError):
    """Error: bytes are not a valid packet, or values do not fit into a header.

    The message is one sentence; `reason` is one of `REASONS`, for counters.
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
    return checksum_of(_padded_number(data))


def _padded_number(data: bytes) -> int:
    """Return the data as one number, padded to whole 16-bit words (RFC 1071)."""
    return int.from_bytes(data, "big") << 8 * (len(data) & 1)


def checksum_of(number: int) -> int:
    """Return the Internet checksum of 16-bit words that form one number.

    The sum with end-around carry is the remainder modulo 2^16 - 1, but zero only if all words are.
    """
    return -number % 0xFFFF if number else 0xFFFF


def payload_behind(data: bytes, start: int, length: int) -> bytes:
    """Return the payload after a header, without Ethernet padding, or raise WireError."""
    payload = data[start : start + length]
    if len(payload) < length:
        raise WireError(
            "truncated", f"{length} bytes should follow the header, and {len(payload)} do"
        )
    return payload


def with_changed_byte(data: bytes, at: int, amount: int, checksum_at: int) -> bytes:
    """Return a packet with one byte incremented by `amount` and the header checksum updated.

    The checksum decreases by the growth of the byte's 16-bit word (RFC 1624): a correct checksum
    stays correct, and a wrong checksum stays wrong.
    """
    changed = bytearray(data)
    changed[at] += amount
    growth = amount if at % 2 else amount << 8
    before = changed[checksum_at] << 8 | changed[checksum_at + 1]
    changed[checksum_at : checksum_at + 2] = ((before - growth) % 0xFFFF).to_bytes(2, "big")
    return bytes(changed)


def value_texts(values: type[IntEnum]) -> dict[int, str]:
    """Return a text for each value of an enumeration, as the `meaning` of a header field."""
    return {value.value: value.name.lower().replace("_", " ") for value in values}


@dataclass(frozen=True)
class Field:
    """Declaration of a header field: name, size in bits and valid values.

    The field named ``checksum`` is the Internet checksum of the header, the field named ``count``
    is the number of entries after the header.
    """

    name: str
    bits: int
    title: str = ""  # title of the field in the header drawing
    constant: int | None = None  # the only valid value of the field, None if several are valid
    most: int = -1  # maximum value of the field; -1: all bits set
    meaning: Mapping[int, str] | None = None  # texts of the field's values, by value
    reason: Reason = "bad field"  # reason of the WireError for invalid values

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name.replace("_", " ").title())
        object.__setattr__(self, "most", 2**self.bits - 1 if self.most < 0 else self.most)

    @property
    def is_value(self) -> bool:
        """True if the field carries a value: it is neither a constant nor the checksum."""
        return self.constant is None and self.name != CHECKSUM

    def refusal(self, value: int) -> WireError:
        """Return the error for a value that is invalid in this field."""
        valid = f"at most {self.most}" if self.constant is None else self.constant
        return WireError(self.reason, f"{self.title} must be {valid}, not {value}")


class HeaderLayout:
    """Fields of a header of fixed size.

    >>> layout = HeaderLayout(
    ...     [Field("kind", 4, constant=2), Field("level", 4), Field("hops", 8), Field("uid", 16)]
    ... )
    >>> layout.pack(1, 3, 258)
    b'!\\x03\\x01\\x02'
    >>> layout.unpack(b"!\\x03\\x01\\x02")
    (1, 3, 258)
    >>> print(layout.picture())
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Kind | Level |      Hops     |              Uid              |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    """

    def __init__(self, fields: Sequence[Field], *, title: str = "header") -> None:
        self.fields = tuple(fields)
        self.title = title
        bits = sum(field.bits for field in fields)
        self.size = bits // 8
        self.values = tuple(field for field in fields if field.is_value)
        # In the header as one big-endian number: mask and value of all constant fields, and shift
        # of the checksum.
        self._constant_bits = self._constants = 0
        self._checksum_shift: int | None = None
        for offset, field in self.places():
            shift = bits - offset - field.bits
            if field.constant is not None:
                self._constant_bits |= (1 << field.bits) - 1 << shift
                self._constants |= field.constant << shift
            elif field.name == CHECKSUM:
                if offset % 16 or bits % 16:
                    raise ValueError(f"the checksum of the {title} is not a word among words")
                self._checksum_shift = shift
        # Words that hold several fields: index of the first field; shift and mask of each field.
        self._splits: list[tuple[int, list[tuple[int, int]]]] = []
        self._struct = struct.Struct(">" + "".join(self._struct_formats()))
        split = {first + i for first, parts in self._splits for i in range(len(parts))}
        self._limits = [
            (index, field.most)
            for index, field in enumerate(self.values)
            if index in split or field.most < (1 << field.bits) - 1
        ]

    def _struct_formats(self) -> Iterator[str]:
        """Yield the `struct` format of each run of header fields that fills whole bytes."""
        run: list[Field] = []
        index = 0
        for field in self.fields:
            run.append(field)
            bits = sum(field.bits for field in run)
            if bits % 8:
                continue
            values = sum(field.is_value for field in run)
            if not values:
                yield f"{bits // 8}x"
            else:
                yield WORDS[bits]
                if len(run) > 1:
                    self._splits.append((index, list(_shifts_and_masks(run))))
            index += values
            run = []
        if run:
            raise ValueError(f"the fields of the {self.title} do not fill whole bytes")

    def places(self) -> Iterator[tuple[int, Field]]:
        """Yield (offset in bits, field) of every header field, with constants and checksum."""
        offset = 0
        for field in self.fields:
            yield offset, field
            offset += field.bits

    def byte(self, name: str) -> int:
        """Return the offset in bytes of a header field."""
        return next(offset for offset, field in self.places() if field.name == name) // 8

    def pack(self, *values: int, rest: bytes = b"") -> bytes:
        """Return the header bytes followed by `rest`, which the checksum also covers."""
        for index, most in self._limits:
            if not 0 <= values[index] <= most:
                raise self.values[index].refusal(values[index])
        words: Sequence[int] = values
        if self._splits:
            words = list(values)
            for first, parts in reversed(self._splits):
                end = first + len(parts)
                joined = 0
                for value, (shift, _) in zip(words[first:end], parts, strict=True):
                    joined |= value << shift
                words[first:end] = [joined]
        try:
            number = int.from_bytes(self._struct.pack(*words), "big") | self._constants
        except struct.error:
            for field, value in zip(self.values, values, strict=True):
                if not 0 <= value <= field.most:
                    raise field.refusal(value) from None
            raise  # programming error: a header value is not an int
        if self._checksum_shift is not None:
            covered = number + _padded_number(rest) if rest else number
            number |= checksum_of(covered) << self._checksum_shift
        return number.to_bytes(self.size, "big") + rest

    def unpack(self, data: bytes, covered: int = 0) -> tuple[int, ...]:
        """Return the field values of the header at the beginning of the data, or raise WireError.

        The checksum covers the header, or `covered` bytes if that is more.
        """
        size = self.size
        if len(data) < size or len(data) < covered:
            raise WireError(
                "truncated", f"the {self.title} has {max(size, covered)} bytes, not {len(data)}"
            )
        number = int.from_bytes(data[:size], "big")
        checksum_ok = True
        if self._checksum_shift is not None:
            stored = number >> self._checksum_shift & 0xFFFF
            rest = number - (stored << self._checksum_shift)
            if covered > size:
                rest += _padded_number(data[size:covered])
            # The checksum is compared: a test for sum 0 would accept 0xFFFF for 0 (RFC 1624, 3).
            checksum_ok = stored == checksum_of(rest)
        if number & self._constant_bits != self._constants or not checksum_ok:
            raise self._unpack_error(number, checksum_ok)
        values = self.read(data)
        for index, most in self._limits:
            if values[index] > most:
                raise self.values[index].refusal(values[index])
        return values

    def read(self, data: bytes, start: int = 0) -> tuple[int, ...]:
        """Return the field values of a complete header at offset `start`, without checks."""
        values = self._struct.unpack_from(data, start)
        if self._splits:
            words = list(values)
            for first, parts in self._splits:
                joined = words[first]
                words[first : first + 1] = [joined >> shift & mask for shift, mask in parts]
            values = tuple(words)
        return values

    def _unpack_error(self, number: int, checksum_ok: bool) -> WireError:
        """Return the error for a header with wrong constants or a wrong checksum."""
        wrong = []
        for offset, field in self.places():
            value = number >> (8 * self.size - offset - field.bits) & (1 << field.bits) - 1
            if field.constant not in (None, value):
                wrong.append(field.refusal(value))
        wrong.sort(key=lambda error: REASONS.index(error.reason))
        if wrong and (checksum_ok or wrong[0].reason != "bad field"):
            return wrong[0]
        return WireError("bad checksum", f"the checksum of the {self.title} is wrong")

    # -- the picture -----------------------------------------------------------------------------

    def picture(self) -> str:
        """Return the RFC-style drawing of the header, 32 bits per row."""
        tens = "".join(f"{bit // 10 if bit % 10 == 0 else ' '} " for bit in range(ROW_BITS))
        units = "".join(f"{bit % 10} " for bit in range(ROW_BITS))
        return "\n".join(
            [f" {tens}".rstrip(), f" {units}".rstrip(), _border(ROW_BITS), *self.rows()]
        )

    def rows(self) -> Iterator[str]:
        """Yield the lines of the header drawing below its first border."""
        row, filled = "", 0
        for field in self.fields:
            if field.bits > ROW_BITS:  # header fields of several rows have no borders between them
                lines = 2 * field.bits // ROW_BITS - 1
                for i in range(lines):
                    text = field.title if i == lines // 2 else ""
                    edge = "+" if i % 2 else "|"
                    yield edge + text.center(2 * ROW_BITS - 1) + edge
                yield _border(ROW_BITS)
                continue
            row += "|" + field.title.center(2 * field.bits - 1)
            filled += field.bits
            if filled == ROW_BITS:
                yield row + "|"
                yield _border(filled)
                row, filled = "", 0
        if row:
            yield row + "|"
            yield _border(filled)


def _shifts_and_masks(fields: Sequence[Field]) -> Iterator[tuple[int, int]]:
    """Yield (shift, mask) of each value within the word formed by these fields."""
    shift = sum(field.bits for field in fields)
    for field in fields:
        shift -= field.bits
        if field.is_value:
            yield shift, (1 << field.bits) - 1


def _border(bits: int) -> str:
    """Return a border line of the header drawing, `bits` wide."""
    return "+-" * bits + "+"


class Body:
    """Layout of a control message's body: a head, then as many entries as the head says.

    The body extends to the end of its packet.
    """

    def __init__(
        self, fields: Sequence[Field], each: HeaderLayout | None = None, *, title: str
    ) -> None:
        self.head = HeaderLayout(fields, title=title)
        self.each = each
        self._count = next((i for i, f in enumerate(self.head.values) if f.name == COUNT), None)

    def pack(self, *values: int, entries: Iterable[tuple[int, ...]] = ()) -> bytes:
        """Return the message body with these head values (without the entry count) and entries."""
        if self.each is None or self._count is None:
            return self.head.pack(*values)
        packed = [self.each.pack(*entry) for entry in entries]
        values = (*values[: self._count], len(packed), *values[self._count :])
        return self.head.pack(*values, rest=b"".join(packed))

    def unpack(self, data: bytes) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        """Return the head values (without the count) and the entries, or raise WireError."""
        size = self.head.size
        values = self.head.unpack(data, len(data))
        entries: list[tuple[int, ...]] = []
        if self.each is not None and self._count is not None:
            count = values[self._count]
            values = values[: self._count] + values[self._count + 1 :]
            size += count * self.each.size
            if size == len(data):
                starts = range(self.head.size, size, self.each.size)
                entries = [
                    self.each.unpack(data[start : start + self.each.size]) for start in starts
                ]
        if size != len(data):
            raise WireError(
                "bad length", f"the {self.head.title} has {size} bytes, not {len(data)}"
            )
        return values, entries

    def picture(self) -> str:
        """Return the RFC-style drawing of a message body: its head and one entry."""
        if self.each is None:
            return self.head.picture()
        *head, _ = self.head.picture().splitlines()
        times = " as often as Count says ".center(2 * ROW_BITS - 1, "=")
        return "\n".join([*head, f"+{times}+", *self.each.rows()])
