"""Paths of marked packets among switches, observed at every port at which they arrive.

Switches keep no trace of single packets. So a packet socket listens at all their ports for packets
with a mark (`pillarbox.hosts.wire.marks`). This works with bridges, routers and Open vSwitch alike.
"""

from __future__ import annotations

import socket
from typing import Any

from pillarbox.hosts.linux.calls import attach_filter
from pillarbox.hosts.linux.sieve import ByteTest, classic_filter
from pillarbox.hosts.wire.frame import ETH_IP
from pillarbox.hosts.wire.marks import serial_of

ETH_P_ALL = 0x0003
PACKET_IGNORE_OUTGOING = 23
SOL_PACKET = 263
UDP = 17
LONGEST_FRAME = 2048
TTL_AT = 22  # offset of the IPv4 time to live in a frame


class SwitchTracer:
    """Records the switches that marked UDP packets pass, by packet sockets; a context manager."""

    def __init__(
        self,
        net: Any,  # Mininet network of the running lab
        port: int,  # destination UDP port of marked packets
    ) -> None:
        # name of the switch that has an interface, by interface name
        self._switch_of: dict[str, str] = {}
        namespaces = {}
        for link in net.links:
            for intf in (link.intf1, link.intf2):
                if intf.node in net.switches:
                    self._switch_of[intf.name] = intf.node.name
                    namespace = intf.node.live_namespace()
                    namespaces[namespace.descriptor] = namespace
        self._sockets = [_udp_packet_socket(namespace, port) for namespace in namespaces.values()]
        # Order of the captured packets, by mark, time to live and switch.
        self._observations: dict[tuple[int, int, str], int] = {}

    def __enter__(self) -> SwitchTracer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the packet sockets that record marked packets at switches."""
        for listening in self._sockets:
            listening.close()

    def passed(self, serial: int) -> list[str]:
        """Return the switches that a marked packet has passed, in order."""
        return [name for _, name in self.heard(serial)]

    def heard(self, serial: int) -> list[tuple[int, str]]:
        """Return time to live and name of each switch that a marked packet has passed, in order.

        Routing switches decrement the time to live, and have a socket each; bridges do not, but
        share a socket, which keeps the order.
        """
        for listening in self._sockets:
            self._record_packets(listening)
        found = [
            (-ttl, at, name)
            for (heard, ttl, name), at in self._observations.items()
            if heard == serial
        ]
        return [(-low, name) for low, _, name in sorted(found)]

    def _record_packets(self, listening: socket.socket) -> None:
        while True:
            try:
                frame, place = listening.recvfrom(LONGEST_FRAME)
            except BlockingIOError:
                return
            serial, switch = serial_of(frame), self._switch_of.get(place[0])
            if serial is not None and switch is not None:
                # A switch port captures a frame and its clone by `detach_from_socket`: only the
                # first counts.
                self._observations.setdefault(
                    (serial, frame[TTL_AT], switch), len(self._observations)
                )


def _udp_packet_socket(namespace: Any, port: int) -> socket.socket:
    """Return a packet socket for packets to a UDP port, at every interface of a namespace."""
    with namespace:
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        made = socket.socket(socket.AF_PACKET, kind, socket.htons(ETH_P_ALL))
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    attach_filter(made, _udp_filter(port))
    return made


def _udp_filter(port: int) -> bytes:
    """Return the BPF filter for UDP over IPv4 without options to a port."""
    ethertype, ports = ETH_IP.to_bytes(2, "big"), port.to_bytes(2, "big")
    wanted = {12: ethertype[0], 13: ethertype[1], 14: 0x45, 23: UDP, 36: ports[0], 37: ports[1]}
    return classic_filter(tuple(ByteTest(at, value) for at, value in wanted.items()))
