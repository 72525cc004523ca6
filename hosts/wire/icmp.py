"""ICMP as far as servers send it themselves: a packet cannot get where it is to go (RFC 792)."""

from __future__ import annotations

from hosts.wire.ipv4 import ECHO, ICMP, SIZE, Ipv4Header
from hosts.wire.layout import checksum

UNREACHABLE, NO_SUCH_HOST = 3, 1
TIME_EXCEEDED, IN_TRANSIT = 11, 0
ERRORS = {
    b"\x03",
    b"\x04",
    b"\x05",
    b"\x0b",
    b"\x0c",
}  # types of ICMP to which nothing is answered (RFC 1122, 3.2.2)
QUOTED = 8  # bytes behind the IP header, which name the socket that sent the packet
MULTICAST = 224 << 24  # from here on addresses name groups, or everyone


def unreachable(packet: bytes) -> bytes | None:
    """Return what tells the sender of a packet that no server has its destination's address.

    It comes from the sender's own address, as from its own kernel.

    >>> said = unreachable(Ipv4Header(0x0A000001, 0x04000003, 17).pack(bytes(8)))
    >>> said[9], said[12:20].hex(" ", -4), said[20:22].hex()
    (1, '0a000001 0a000001', '0301')
    """
    header, _ = Ipv4Header.parse(packet)
    return _error(packet, header.source, UNREACHABLE, NO_SUCH_HOST)


def time_exceeded(packet: bytes, relay: int) -> bytes | None:
    """Return what tells the sender of a packet that a relay found its time to live used up.

    >>> expired = Ipv4Header(0x0A000001, 0x0A000003, 17, ttl=1).pack(bytes(8))
    >>> said = time_exceeded(expired, 0x0A000002)
    >>> said[9], said[12:20].hex(" ", -4), said[20:22].hex()
    (1, '0a000002 0a000001', '0b00')
    """
    return _error(packet, relay, TIME_EXCEEDED, IN_TRANSIT)


def _error(packet: bytes, by: int, kind: int, code: int) -> bytes | None:
    """Return an error, None for what is answered by nothing.

    That are errors themselves, fragments behind the first, and packets to groups.
    """
    header, payload = Ipv4Header.parse(packet)
    about_error = header.protocol == ICMP and payload[:1] in ERRORS
    if about_error or header.fragment or header.destination >= MULTICAST:
        return None
    quoted = packet[: SIZE + len(header.options) + QUOTED]
    body = bytearray(ECHO.pack(kind, code, 0, 0, 0) + quoted)
    body[2:4] = checksum(bytes(body)).to_bytes(2, "big")
    return Ipv4Header(by, header.source, ICMP).pack(bytes(body))
