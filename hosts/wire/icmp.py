"""ICMP as far as servers send it themselves: a packet cannot get where it is to go (RFC 792)."""

from __future__ import annotations

from hosts.wire.ipv4 import ECHO, ICMP, SIZE, Ipv4Header
from hosts.wire.layout import checksum

UNREACHABLE, NO_SUCH_HOST = 3, 1
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

    It comes from the sender's own address, as from its own kernel. None for what is answered by
    nothing: errors themselves, fragments behind the first, and packets to groups.

    >>> said = unreachable(Ipv4Header(0x0A000001, 0x04000003, 17).pack(bytes(8)))
    >>> said[9], said[12:20].hex(" ", -4), said[20:22].hex()
    (1, '0a000001 0a000001', '0301')
    """
    header, payload = Ipv4Header.parse(packet)
    about_error = header.protocol == ICMP and payload[:1] in ERRORS
    if about_error or header.fragment or header.destination >= MULTICAST:
        return None
    quoted = packet[: SIZE + len(header.options) + QUOTED]
    body = bytearray(ECHO.pack(UNREACHABLE, NO_SUCH_HOST, 0, 0, 0) + quoted)
    body[2:4] = checksum(bytes(body)).to_bytes(2, "big")
    return Ipv4Header(header.source, header.source, ICMP).pack(bytes(body))
