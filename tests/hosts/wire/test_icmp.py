"""What a packet's sender is told: no server has the address, or its hops are used up."""

from __future__ import annotations

import struct

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Deliver, Drop
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.router import EXPIRED_BURST, EXPIRED_PER_S
from pillarbox.hosts.wire.frame import ETH_IP, Frame
from pillarbox.hosts.wire.header_layout import checksum
from pillarbox.hosts.wire.icmp import time_exceeded, unreachable
from pillarbox.hosts.wire.ipv4 import ICMP, TCP, UDP, Ipv4Header
from pillarbox.topos.ficonn import SWITCH

NOBODY = 0x04000003  # 4.0.0.3, which is what the system makes of 4.3
PORTS = struct.pack(">HHI", 40000, 80, 7)


def test_the_error_names_the_packet_and_both_checksums_are_right() -> None:
    packet = Ipv4Header(0x0A000001, NOBODY, TCP, options=b"\x94\x04\0\0").pack(PORTS + bytes(40))
    said = unreachable(packet)
    assert said
    header, body = Ipv4Header.parse(said)
    assert (header.source, header.destination, header.protocol) == (0x0A000001, 0x0A000001, ICMP)
    assert body[:2] == bytes([3, 1])
    assert checksum(body) in (0, 0xFFFF)
    assert body[8:] == packet[:32]  # the header with its option, and 8 bytes


@pytest.mark.parametrize(
    ("packet", "why"),
    [
        (Ipv4Header(1, NOBODY, ICMP).pack(bytes([3, 1]) + bytes(34)), "it is an error itself"),
        (Ipv4Header(1, NOBODY, UDP, fragment=5).pack(bytes(8)), "the first fragment is answered"),
        (Ipv4Header(1, 0xE00000FB, UDP).pack(PORTS), "to a group"),
        (Ipv4Header(1, 0xFFFFFFFF, UDP).pack(PORTS), "to everyone"),
    ],
)
def test_what_is_never_answered(packet: bytes, why: str) -> None:
    assert unreachable(packet) is None, why
    assert time_exceeded(packet, 1) is None, why


@pytest.mark.parametrize("spec", ["dpillar,4,2", "dcell,4,1", "bcube,4,1", "ficonn,4,1"])
def test_every_routing_tells_the_sender(spec: str) -> None:
    topology = topos.parse(spec)
    for found in algorithms(topology).values():
        if found.router:
            packet = Ipv4Header(topology.ipv4(0), NOBODY, UDP).pack(PORTS)
            dropped, told = found.router(topology, 0).send(packet, 0.0)
            assert dropped == Drop("destination is no server of this network", packet)
            assert told == Deliver(unreachable(packet))


def test_errors_of_relays_are_bounded() -> None:
    topology = topos.parse("ficonn,4,1")
    relay = algorithms(topology)["tor"].router(topology, 1)  # type: ignore[misc]
    packet = Ipv4Header(topology.ipv4(0), topology.ipv4(5), UDP, ttl=1).pack(PORTS)
    frame = Frame(ETH_IP, packet)

    def told(now: float, times: int = 1000) -> int:
        """Return how many of so many packets were answered."""
        found = [relay.receive(SWITCH, 0, frame, now) for _ in range(times)]
        for dropped, *answers in found:
            assert dropped == Drop("TTL expired", packet)
            for one in answers:
                assert one.frame.data == time_exceeded(packet, topology.ipv4(1))  # type: ignore[union-attr]
        return sum(len(one) - 1 for one in found)

    assert told(0.0) == EXPIRED_BURST
    assert told(1.0) == EXPIRED_PER_S
