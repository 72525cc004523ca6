"""Reader and writer of the pcapng file format, restricted to captures of several ports.

A file is a sequence of blocks: one for the section, with a comment, one for each interface, one for
each frame (Internet-Draft draft-ietf-opsawg-pcapng). Times are in nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from pillarbox.topos.base.errors import PillarboxError

SECTION, INTERFACE, FRAME = 0x0A0D0D0A, 1, 6
BYTE_ORDER = 0x1A2B3C4D
ETHERNET = 1
END_OF_OPTIONS, COMMENT, NAME, RESOLUTION, FLAGS = 0, 1, 2, 9, 2
NANOSECONDS = 9
LONGEST_BLOCK = 1 << 20  # bytes
INCOMING, OUTGOING = 1, 2  # direction of a frame, in the flags of its pcapng block
_BLOCK = struct.Struct("<II")
_FRAME = struct.Struct(
    "<IIIII"
)  # pcapng frame block: interface, time (2 words), captured and original length


class Interface(NamedTuple):
    """Interface in a capture file: its name, and the maximum bytes stored of each frame."""

    name: str
    longest: int  # maximum bytes stored of each frame


class CapturedFrame(NamedTuple):
    """A frame of a capture with its interface, time and direction."""

    interface: str
    at_ns: int
    data: bytes
    length: int  # length of the frame before truncation, in bytes
    outgoing: bool


class Writer:
    """Writer of a capture: writes frames to a pcapng file, one by one."""

    def __init__(self, file: BinaryIO, interfaces: Iterable[Interface], comment: str = "") -> None:
        self._file = file
        body = struct.pack("<IHHq", BYTE_ORDER, 1, 0, -1)
        self._write_block(
            SECTION, body + _encoded_options((COMMENT, comment.encode()) if comment else ())
        )
        for interface in interfaces:
            body = struct.pack("<HHI", ETHERNET, 0, interface.longest)
            named = _encoded_options(
                (NAME, interface.name.encode()), (RESOLUTION, bytes([NANOSECONDS]))
            )
            self._write_block(INTERFACE, body + named)

    def write(
        self, interface: int, at_ns: int, data: bytes, *, outgoing: bool, length: int = 0
    ) -> None:
        """Write a captured frame to the file; `data` may be only the frame's beginning."""
        head = _FRAME.pack(
            interface, at_ns >> 32, at_ns & 0xFFFFFFFF, len(data), max(length, len(data))
        )
        flags = struct.pack("<I", OUTGOING if outgoing else INCOMING)
        self._write_block(FRAME, head + _padded_to_4_bytes(data) + _encoded_options((FLAGS, flags)))

    def _write_block(self, kind: int, body: bytes) -> None:
        size = 12 + len(body)
        self._file.write(_BLOCK.pack(kind, size) + body + struct.pack("<I", size))


class Reader:
    """Reader of the pcapng files that `Writer` writes; iteration yields the captured frames.

    Attributes
    ----------
    comment : str
        Comment of the section.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._blocks = _read_blocks(file)
        try:
            kind, body = next(self._blocks, (0, b""))
        except PillarboxError:
            kind, body = 0, b""
        if kind != SECTION or len(body) < 16:
            raise PillarboxError("this file is no pcapng file: make one with `pillarbox capture`")
        self.comment = dict(_read_options(body[16:])).get(COMMENT, b"").decode(errors="replace")
        self._names: list[str] = []

    def __iter__(self) -> Iterator[CapturedFrame]:
        for kind, body in self._blocks:
            if kind == INTERFACE:
                options = dict(_read_options(body[8:]))
                self._names.append(options.get(NAME, b"").decode(errors="replace"))
            elif kind == FRAME and len(body) >= _FRAME.size:
                yield self._parsed_frame(body)

    def _parsed_frame(self, body: bytes) -> CapturedFrame:
        interface, high, low, kept, length = _FRAME.unpack_from(body)
        data = body[_FRAME.size : _FRAME.size + kept]
        if interface >= len(self._names) or len(data) < kept:
            raise PillarboxError("the capture file is damaged: capture the packets again")
        options = dict(_read_options(body[_FRAME.size + kept + -kept % 4 :]))
        flags = int.from_bytes(options.get(FLAGS, b""), "little")
        return CapturedFrame(
            self._names[interface], high << 32 | low, data, length, flags & 3 == OUTGOING
        )


def _read_blocks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield kind and body of each block of a pcapng file; ignore an incomplete last block."""
    while len(head := file.read(_BLOCK.size)) == _BLOCK.size:
        kind, size = _BLOCK.unpack(head)
        if size > LONGEST_BLOCK:
            raise PillarboxError("the capture file is damaged: capture the packets again")
        body = file.read(max(0, size - 12))
        if size < 12 or size % 4 or len(file.read(4)) < 4:
            return
        yield kind, body


def _padded_to_4_bytes(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _encoded_options(*options: tuple[int, bytes] | tuple[()]) -> bytes:
    written = b"".join(
        struct.pack("<HH", option[0], len(option[1])) + _padded_to_4_bytes(option[1])
        for option in options
        if option
    )
    return written + bytes(4) if written else b""


def _read_options(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from("<HH", data, at)
        if code == END_OF_OPTIONS:
            return
        yield code, data[at + 4 : at + 4 + size]
        at += 4 + size + -size % 4
