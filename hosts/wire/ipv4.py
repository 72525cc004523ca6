"""IPv4 headers, flow keys of packets, and DPillar's IP-in-IP tunnel.

Applications send IP packets in every network. A flow is defined as in Guo 2009 (section 4.1): the
packets with the same source, destination, protocol and ports, in one direction.

DPillar needs no additional header format (Liao 2012, section 4.4). To send a packet over one of
several paths s -> s' ... d' -> d, the source encapsulates the packet in another IPv4 packet (IP in
IP, RFC 2003) from the proxy source s' to the proxy destination d'. The direction, clockwise or
counter-clockwise, is encoded in the addresses of Fig. 5: their lowest bit is the NIC, and the NIC
by which the packet leaves s' determines the direction. So

    outer source        s', with the direction in the NIC bit
    outer destination   d', with the NIC bit 0
"""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.hosts.wire.header_layout import (
    CHECKSUM,
    Field,
    HeaderLayout,
    WireError,
    payload_behind,
    with_changed_byte,
)

VERSION = 4
ICMP, IP_IN_IP, TCP, UDP = 1, 4, 6, 17
DONT_FRAGMENT, MORE_FRAGMENTS = 0b010, 0b001
NIC_BIT = 1
# IPv4 broadcast addresses: 255.255.255.255, and 10.255.255.255 of the network 10.0.0.0/8.
BROADCASTS = frozenset([0xFFFFFFFF, 0x0AFFFFFF])

_ECHO_TYPES = (0, 8)  # ICMP types echo reply and echo request

LAYOUT = HeaderLayout(
    [
        Field("version", 4, constant=VERSION, reason="bad version"),
        Field("ihl", 4, "IHL", reason="bad length"),
        Field("tos", 8, "Type of Service"),
        Field("total_length", 16, reason="bad length"),
        Field("identification", 16),
        Field("flags", 3),
        Field("fragment", 13, "Fragment Offset"),
        Field("ttl", 8, "Time to Live"),
        Field("protocol", 8, meaning={ICMP: "ICMP", IP_IN_IP: "IPv4", TCP: "TCP", UDP: "UDP"}),
        Field(CHECKSUM, 16, "Header Checksum"),
        Field("source", 32, "Source Address"),
        Field("destination", 32, "Destination Address"),
    ],
    title="IPv4 header",
)
SIZE = LAYOUT.size  # IPv4 header size without options, in bytes
_TTL = LAYOUT.byte("ttl")
_CHECKSUM = LAYOUT.byte(CHECKSUM)

# First 8 bytes of TCP, UDP and ICMP headers, which every first fragment contains.
PORTS = HeaderLayout([Field("source_port", 16), Field("destination_port", 16), Field("other", 32)])
ECHO = HeaderLayout(
    [
        Field("type", 8),
        Field("code", 8),
        Field("icmp_checksum", 16),
        Field("identifier", 16),
        Field("sequence", 16),
    ]
)

# Fields that identify a flow in control messages: addresses, protocol, ports.
FLOW_FIELDS = [
    Field("flow_source", 32),
    Field("flow_destination", 32),
    Field("flow_protocol", 8),
    Field("reserved", 24, constant=0),
    Field("flow_source_port", 16),
    Field("flow_destination_port", 16),
]


class Ipv4Header(NamedTuple):
    """IPv4 header of one packet (RFC 791); addresses are 32-bit numbers.

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |Version|  IHL  |Type of Service|          Total Length         |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |         Identification        |Flags|     Fragment Offset     |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |  Time to Live |    Protocol   |        Header Checksum        |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                         Source Address                        |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                      Destination Address                      |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> header = Ipv4Header(source=0x0A000001, destination=0x0A000002, protocol=UDP)
    >>> packet = header.pack(b"hello")
    >>> packet.hex(" ", -4)
    '45000019 00000000 401166d2 0a000001 0a000002 68656c6c 6f'
    >>> Ipv4Header.parse(packet) == (header, b"hello")
    True
    """

    source: int
    destination: int
    protocol: int
    ttl: int = 64
    identification: int = 0
    tos: int = 0
    flags: int = 0
    fragment: int = 0  # fragment offset in units of 8 bytes
    options: bytes = b""

    def pack(self, payload: bytes) -> bytes:
        """Return the packet: this IPv4 header followed by the payload."""
        words, odd = divmod(SIZE + len(self.options), 4)
        if odd:
            raise WireError("bad length", "IPv4 options fill whole words of 4 bytes")
        header = LAYOUT.pack(
            words,
            self.tos,
            4 * words + len(payload),
            self.identification,
            self.flags,
            self.fragment,
            self.ttl,
            self.protocol,
            self.source,
            self.destination,
            rest=self.options,
        )
        return header + payload

    @classmethod
    def parse(cls, data: bytes) -> tuple[Ipv4Header, bytes]:
        """Return the IPv4 header and the payload of a packet, or raise WireError."""
        size = (data[0] & 0xF) * 4 if data else SIZE
        _, tos, total, identification, flags, fragment, ttl, protocol, source, destination = (
            LAYOUT.unpack(data, size)
        )
        if not SIZE <= size <= total:
            raise _length_error(size, total)
        options = data[SIZE:size]
        header = cls(
            source, destination, protocol, ttl, identification, tos, flags, fragment, options
        )
        return header, payload_behind(data, size, total - size)


class FlowKey(NamedTuple):
    """Key of a flow: addresses, protocol and ports (0 for protocols without ports).

    >>> FlowKey(1, 2, TCP, 40000, 80).reversed()
    FlowKey(source=2, destination=1, protocol=6, source_port=80, destination_port=40000)
    """

    source: int
    destination: int
    protocol: int
    source_port: int
    destination_port: int

    def reversed(self) -> FlowKey:
        """Return the key of the reverse flow."""
        return FlowKey(
            self.destination,
            self.source,
            self.protocol,
            self.destination_port,
            self.source_port,
        )


def flow_key(packet: bytes) -> FlowKey:
    """Return the flow key of an IPv4 packet, or raise WireError.

    The identifier of an ICMP echo serves as both ports, so that replies belong to the reverse flow.
    A fragment other than the first has no ports. The checksum is not verified, since that was done
    when the packet was created or received.

    >>> flow_key(Ipv4Header(1, 2, UDP).pack(bytes.fromhex("9c40 0035 0008 0000")))
    FlowKey(source=1, destination=2, protocol=17, source_port=40000, destination_port=53)
    """
    ihl, _, total, _, _, fragment, _, protocol, source, destination = _header_values(packet)
    size = 4 * ihl
    if not SIZE <= size <= total:
        raise _length_error(size, total)
    if total > len(packet):
        raise WireError("truncated", f"the packet has {total} bytes, not {len(packet)}")
    if fragment or protocol not in (TCP, UDP, ICMP):
        return FlowKey(source, destination, protocol, 0, 0)
    if total < size + PORTS.size:
        raise WireError("truncated", f"{total - size} bytes are no header of TCP, UDP or ICMP")
    if protocol == ICMP:
        kind, _, _, identifier, _ = ECHO.read(packet, size)
        first = second = identifier if kind in _ECHO_TYPES else 0
    else:
        first, second, _ = PORTS.read(packet, size)
    return FlowKey(source, destination, protocol, first, second)


class Tunnel(NamedTuple):
    """DPillar's IP-in-IP tunnel between two proxy servers: source, destination, direction.

    The addresses have NIC bit 0; the direction is 0 for clockwise, 1 for counter-clockwise.
    """

    source: int
    destination: int
    direction: int


def encapsulate(packet: bytes, tunnel: Tunnel, ttl: int, identification: int) -> bytes:
    """Return an IPv4 packet in a tunnel's outer header, with its type of service and DF (RFC 2003).

    >>> inner = Ipv4Header(0x0A000000, 0x0B000004, UDP).pack(b"hello")
    >>> tunnel = Tunnel(0x0B000002, 0x0A000004, direction=1)
    >>> outer = encapsulate(inner, tunnel, ttl=64, identification=7)
    >>> outer[12:20].hex(" ", -4)
    '0b000003 0a000004'
    >>> found, header, packet = decapsulate(outer)
    >>> found == tunnel, header.ttl, packet == inner
    (True, 64, True)
    """
    _, tos, _, _, flags, *_ = _header_values(packet)
    source, destination, direction = tunnel
    if (source | destination) & NIC_BIT or direction not in (0, NIC_BIT):
        raise WireError("bad field", "a tunnel has addresses without NIC bit, and direction 0 or 1")
    outer = Ipv4Header(
        source=source | direction,
        destination=destination,
        protocol=IP_IN_IP,
        ttl=ttl,
        identification=identification,
        tos=tos,
        flags=flags & DONT_FRAGMENT,
    )
    return outer.pack(packet)


def decapsulate(data: bytes) -> tuple[Tunnel, Ipv4Header, bytes]:
    """Return DPillar's tunnel, the outer header and the inner packet, or raise WireError.

    The inner packet is not checked.
    """
    header, inner = Ipv4Header.parse(data)
    if header.protocol != IP_IN_IP:
        raise WireError("unknown message", f"a tunnel has protocol 4, not {header.protocol}")
    if header.fragment or header.flags & MORE_FRAGMENTS:
        raise WireError("bad field", "a tunnel carries whole packets, and this is a fragment")
    if header.destination & NIC_BIT:
        raise WireError("bad field", "the destination of a tunnel has the NIC bit 0")
    tunnel = Tunnel(header.source & ~NIC_BIT, header.destination, header.source & NIC_BIT)
    return tunnel, header, inner


def decrement_ttl(packet: bytes) -> bytes:
    """Return an IPv4 packet with decremented TTL; raise WireError if its TTL is 0.

    The caller must have verified the header.
    """
    if len(packet) < SIZE:
        raise _truncated_error(packet)
    if not packet[_TTL]:
        raise WireError("bad field", "TTL is 0 already")
    return with_changed_byte(packet, _TTL, -1, _CHECKSUM)


def _header_values(packet: bytes) -> tuple[int, ...]:
    """Return the field values of an IPv4 header without verifying its checksum."""
    if len(packet) < SIZE:
        raise _truncated_error(packet)
    if packet[0] >> 4 != VERSION:
        raise WireError("bad version", f"the version of IPv4 is 4, not {packet[0] >> 4}")
    return LAYOUT.read(packet)


def _truncated_error(packet: bytes) -> WireError:
    """Return the error for a truncated IPv4 header."""
    return WireError("truncated", f"the IPv4 header has {SIZE} bytes, not {len(packet)}")


def _length_error(size: int, total: int) -> WireError:
    """Return the error for inconsistent header length and total length."""
    return WireError(
        "bad length",
        f"an IPv4 packet has {SIZE} bytes of header or more and a total length of no less: "
        f"not {size} and {total}",
    )
