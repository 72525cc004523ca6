"""IPv4 packets with serial numbers, for tests, traces and the network in memory."""

from __future__ import annotations

import struct

from pillarbox.hosts.wire.ipv4 import Ipv4Header
from pillarbox.topos.base.addressing import NO_PORTS, End, EndPorts
from pillarbox.topos.base.topology import Topology

# Type of service of traced packets, which data planes always pass to the router (see packet.h).
# The value is DSCP 63, which is reserved for local use (RFC 2474).
TRACED = 0xFC
UDP = 17
_MARK = b"pillarbox trip "
_UDP_HEADER = struct.Struct(">HHHH")
_SERIAL = struct.Struct(">Q")


def udp_packet(
    topology: Topology,
    source: int,
    destination: int,
    *,
    serial: int = 0,
    source_port: int = 4000,
    destination_port: int = 5000,
    size: int = 0,
    ports: EndPorts = NO_PORTS,
) -> bytes:
    """Return a UDP packet with a serial number between two servers, padded to `size` bytes.

    `ports` are the servers' ports whose addresses the packet has, in labs with port addresses.
    """
    payload = udp_payload(serial)
    payload += bytes(max(0, size - 28 - len(payload)))
    udp = _UDP_HEADER.pack(source_port, destination_port, 8 + len(payload), 0) + payload
    begin = topology.end_ipv4(End(source, ports[0]))
    header = Ipv4Header(begin, topology.end_ipv4(End(destination, ports[1])), UDP, ttl=64)
    return header.pack(udp)


def udp_payload(serial: int) -> bytes:
    """Return the UDP payload that contains a serial number."""
    return _MARK + _SERIAL.pack(serial)


def serial_of(data: bytes) -> int | None:
    """Return the serial number of a traced packet in a frame, None if the packet has none.

    >>> from pillarbox import topos
    >>> serial_of(b"any header" + udp_packet(topos.parse("bcube,4,1"), 0, 5, serial=7))
    7
    """
    at = data.find(_MARK)
    if at < 0 or len(data) < at + len(_MARK) + _SERIAL.size:
        return None
    serial: int = _SERIAL.unpack_from(data, at + len(_MARK))[0]
    return serial
