"""Segmentation of super-packets that the kernel passes to Python.

Linux moves up to 64 KiB of a TCP stream as one packet, and leaves its checksums to the code that
segments it. Packets that a program in the kernel forwards stay whole. Packets that reach Python,
because no decision exists yet, are segmented here: a router sees only packets that could have been
on the wire.

Every frame is preceded by the kernel's note on the remaining work (``struct virtio_net_hdr``):
flags, type of super-packet, header length, segment size, start of the checksummed data and offset
of the checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pillarbox.hosts.wire.header_layout import checksum

NOTE = struct.Struct("=BBHHHH")
NOTHING_TO_DO = bytes(NOTE.size)
NEEDS_CHECKSUM = 1
NOT_CUT, TCP4, UDP = 0, 1, 5
ECN = 0x80
ETHERNET_BYTES = 14
FIN_PSH = 0x09
# Byte offsets of length and checksum, the same in the headers of DCN, BCube and IPv4.
LENGTH_AT, CHECKSUM_AT = 2, 10


def split_frame(note: bytes, frame: bytes) -> Iterator[bytes]:
    """Yield the packets of a received frame or super-packet (GSO), without Ethernet header.

    Frames that are incomplete or of unknown type are not segmented: their checksums are then wrong.
    """
    flags, kind, _, size, start, offset = NOTE.unpack(note)
    if not flags & NEEDS_CHECKSUM:
        yield frame[ETHERNET_BYTES:]
        return
    kind &= ~ECN
    at = _ip_header_at(frame, start)
    if kind == NOT_CUT or kind not in (TCP4, UDP) or size == 0 or at is None:
        data = bytearray(frame)
        if start + offset + 2 <= len(data):
            # The transport checksum field already contains the sum of the pseudo-header.
            data[start + offset : start + offset + 2] = _checksum_bytes(data[start:])
        yield bytes(data[ETHERNET_BYTES:])
        return
    head = 8 if kind == UDP else (frame[start + 12] >> 4) * 4
    first = start + head
    for i, begin in enumerate(range(first, len(frame), size)):
        payload = frame[begin : begin + size]
        last = begin + size >= len(frame)
        transport = _transport_header(
            kind, frame[start:first], begin - first, len(payload), last=last
        )
        ip = _ipv4_header(frame[at:start], len(transport) + len(payload), i)
        pseudo = ip[12:20] + struct.pack(">HH", ip[9], len(transport) + len(payload))
        transport[offset : offset + 2] = _checksum_bytes(pseudo + bytes(transport) + payload)
        outer = _outer_header(frame[ETHERNET_BYTES:at], len(frame) - first - len(payload))
        yield outer + ip + bytes(transport) + payload


def _transport_header(
    kind: int, header: bytes, before: int, length: int, *, last: bool
) -> bytearray:
    """Return the TCP or UDP header of a segment of a GSO packet, without its checksum."""
    cut_off = bytearray(header)
    if kind == UDP:
        cut_off[4:6] = (len(header) + length).to_bytes(2, "big")
        cut_off[6:8] = bytes(2)
        return cut_off
    sequence = int.from_bytes(header[4:8], "big") + before
    cut_off[4:8] = (sequence & 0xFFFFFFFF).to_bytes(4, "big")
    if not last:
        cut_off[13] &= ~FIN_PSH
    cut_off[16:18] = bytes(2)
    return cut_off


def _ipv4_header(header: bytes, length: int, number: int) -> bytes:
    """Return the IPv4 header of a segment of a GSO packet."""
    own = bytearray(header)
    own[2:4] = (len(header) + length).to_bytes(2, "big")
    identification = int.from_bytes(header[4:6], "big") + number
    own[4:6] = (identification & 0xFFFF).to_bytes(2, "big")
    return _with_checksum(own)


def _outer_header(header: bytes, less: int) -> bytes:
    """Return the header before a segment's IPv4 header, with its length reduced by `less` bytes."""
    if not header:
        return b""
    own = bytearray(header)
    length = int.from_bytes(header[LENGTH_AT : LENGTH_AT + 2], "big") - less
    own[LENGTH_AT : LENGTH_AT + 2] = (length & 0xFFFF).to_bytes(2, "big")
    return _with_checksum(own)


def _with_checksum(header: bytearray) -> bytes:
    header[CHECKSUM_AT : CHECKSUM_AT + 2] = bytes(2)
    header[CHECKSUM_AT : CHECKSUM_AT + 2] = checksum(bytes(header)).to_bytes(2, "big")
    return bytes(header)


def _ip_header_at(frame: bytes, transport_at: int) -> int | None:
    """Return the offset of the IPv4 header before a transport header, None if not found."""
    for words in range(5, 16):
        at = transport_at - 4 * words
        if at >= ETHERNET_BYTES and frame[at] == 0x40 | words:
            return at
    return None


def _checksum_bytes(data: bytes | bytearray) -> bytes:
    return checksum(bytes(data)).to_bytes(2, "big")
