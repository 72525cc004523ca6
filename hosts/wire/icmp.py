"""ICMP error messages that servers send: destination unreachable, time exceeded (RFC 792)."""

from __future__ import annotations

from pillarbox.hosts.wire.header_layout import checksum
from pillarbox.hosts.wire.ipv4 import ECHO, ICMP, SIZE, Ipv4Header

UNREACHABLE, NO_SUCH_HOST = 3, 1
TIME_EXCEEDED, IN_TRANSIT = 11, 0
# ICMP error types, which must not cause further errors (RFC 1122, 3.2.2).
ERRORS = {b"\x03", b"\x04", b"\x05", b"\x0b", b"\x0c"}
QUOTED = 8  # bytes that an ICMP error quotes after the IP header: they contain the ports
MULTICAST = 224 << 24  # first multicast address; higher addresses are multicast or broadcast


def unreachable(packet: bytes, relay: int | None = None) -> bytes | None:
    """Return the ICMP error "host unreachable" for a packet, or None.

    Its source is a relay, or the sender's own address, as for errors from the sender's kernel.

    >>> said = unreachable(Ipv4Header(0x0A000001, 0x04000003, 17).pack(bytes(8)))
    >>> said[9], said[12:20].hex(" ", -4), said[20:22].hex()
    (1, '0a000001 0a000001', '0301')
    """
    header, _ = Ipv4Header.parse(packet)
    by = header.source if relay is None else relay
    return _icmp_error(packet, by, UNREACHABLE, NO_SUCH_HOST)


def time_exceeded(packet: bytes, relay: int) -> bytes | None:
    """Return the ICMP error "time exceeded" from a relay for a packet with expired TTL, or None.

    >>> expired = Ipv4Header(0x0A000001, 0x0A000003, 17, ttl=1).pack(bytes(8))
    >>> said = time_exceeded(expired, 0x0A000002)
    >>> said[9], said[12:20].hex(" ", -4), said[20:22].hex()
    (1, '0a000002 0a000001', '0b00')
    """
    return _icmp_error(packet, relay, TIME_EXCEEDED, IN_TRANSIT)


def _icmp_error(packet: bytes, by: int, kind: int, code: int) -> bytes | None:
    """Return an ICMP error about an IPv4 packet, None for packets that must not cause an error.

    These are ICMP errors, fragments other than the first, and packets to multicast addresses.
    """
    header, payload = Ipv4Header.parse(packet)
    about_error = header.protocol == ICMP and payload[:1] in ERRORS
    if about_error or header.fragment or header.destination >= MULTICAST:
        return None
    quoted = packet[: SIZE + len(header.options) + QUOTED]
    body = bytearray(ECHO.pack(kind, code, 0, 0, 0) + quoted)
    body[2:4] = checksum(bytes(body)).to_bytes(2, "big")
    return Ipv4Header(by, header.source, ICMP).pack(bytes(body))
