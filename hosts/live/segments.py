"""Super-packets that the kernel hands up, cut into the packets that a wire would have carried.

Linux moves up to 64 KiB of a TCP stream as one packet, and leaves its checksum to whoever cuts it.
What a program in the kernel forwards stays whole. What comes up to Python, because nothing was
decided yet, is cut here: a router sees only packets that could have been on the wire.

In front of every frame stands the kernel's note of what is left to do (``struct virtio_net_hdr``):
flags, kind of super-packet, header length, segment size, where the checksum starts and where it
belongs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from hosts.wire.layout import checksum

NOTE = struct.Struct("=BBHHHH")
NOTHING_TO_DO = bytes(NOTE.size)
NEEDS_CHECKSUM = 1
NOT_CUT, TCP4, UDP = 0, 1, 5
ECN = 0x80
ETHERNET_BYTES = 14
FIN_PSH = 0x09
# Where DCN's, BCube's and IPv4's header alike have their length and checksum.
LENGTH_AT, CHECKSUM_AT = 2, 10


def cut(note: bytes, frame: bytes) -> Iterator[bytes]:
    """Yield what is behind the Ethernet header of each packet that is in a frame.

    What is neither whole nor of a kind that is known is left as it is: its checksums will tell.
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
            # The field holds the sum of the pseudo header already.
            data[start + offset : start + offset + 2] = _sum(data[start:])
        yield bytes(data[ETHERNET_BYTES:])
        return
    head = 8 if kind == UDP else (frame[start + 12] >> 4) * 4
    first = start + head
    for i, begin in enumerate(range(first, len(frame), size)):
        payload = frame[begin : begin + size]
        last = begin + size >= len(frame)
        transport = _transport(kind, frame[start:first], begin - first, len(payload), last=last)
        ip = _ip(frame[at:start], len(transport) + len(payload), i)
        pseudo = ip[12:20] + struct.pack(">HH", ip[9], len(transport) + len(payload))
        transport[offset : offset + 2] = _sum(pseudo + bytes(transport) + payload)
        outer = _outer(frame[ETHERNET_BYTES:at], len(frame) - first - len(payload))
        yield outer + ip + bytes(transport) + payload


def _transport(kind: int, header: bytes, before: int, length: int, *, last: bool) -> bytearray:
    """Return the TCP or UDP header of a segment, without its checksum."""
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


def _ip(header: bytes, length: int, number: int) -> bytes:
    """Return the IPv4 header of a segment."""
    own = bytearray(header)
    own[2:4] = (len(header) + length).to_bytes(2, "big")
    identification = int.from_bytes(header[4:6], "big") + number
    own[4:6] = (identification & 0xFFFF).to_bytes(2, "big")
    return _with_checksum(own)


def _outer(header: bytes, less: int) -> bytes:
    """Return the header in front of the IPv4 header for a packet with so many bytes less."""
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
    """Return where the IPv4 header in front of a transport header begins, None if nowhere."""
    for words in range(5, 16):
        at = transport_at - 4 * words
        if at >= ETHERNET_BYTES and frame[at] == 0x40 | words:
            return at
    return None


def _sum(data: bytes | bytearray) -> bytes:
    return checksum(bytes(data)).to_bytes(2, "big")
