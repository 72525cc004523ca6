"""Where a packet goes among switches: seen on the wire, at every port that it arrives at.

Switches keep no trace of single packets. So a socket listens at all their ports for a packet with a
mark (`hosts.wire.marks`). That holds whatever the switches are: bridges, routers, Open vSwitch.
"""

from __future__ import annotations

import socket
from typing import Any

from hosts.linux.calls import attach_filter
from hosts.linux.sieve import Byte, classic
from hosts.wire.frame import ETH_IP
from hosts.wire.marks import serial_of

ETH_P_ALL = 0x0003
PACKET_IGNORE_OUTGOING = 23
SOL_PACKET = 263
UDP = 17
LONGEST_FRAME = 2048
TTL_AT = 22  # in a frame


class Follower:
    """Hears the marked packets that come to switches on a UDP port; use it in ``with``."""

    def __init__(
        self,
        net: Any,  # the network that runs
        port: int,  # the UDP port that marked packets go to
    ) -> None:
        self._switch_of: dict[str, str] = {}  # by the interface's name
        namespaces = {}
        for link in net.links:
            for intf in (link.intf1, link.intf2):
                if intf.node in net.switches:
                    self._switch_of[intf.name] = intf.node.name
                    namespace = intf.node.live_namespace()
                    namespaces[namespace.descriptor] = namespace
        self._sockets = [_listener(namespace, port) for namespace in namespaces.values()]
        # What was heard: mark, time to live and switch, with the moment as a count.
        self._heard: dict[tuple[int, int, str], int] = {}

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Hear no more."""
        for listening in self._sockets:
            listening.close()

    def passed(self, serial: int) -> list[str]:
        """Return the switches that the packet with this mark has come to, in order."""
        return [name for _, name in self.heard(serial)]

    def heard(self, serial: int) -> list[tuple[int, str]]:
        """Return with what time to live the packet with this mark has come to which switch.

        Switches that route lower it, and have a socket each; bridges do not, but share one socket,
        which keeps the order.
        """
        for listening in self._sockets:
            self._read(listening)
        found = [
            (-ttl, at, name) for (heard, ttl, name), at in self._heard.items() if heard == serial
        ]
        return [(-low, name) for low, _, name in sorted(found)]

    def _read(self, listening: socket.socket) -> None:
        while True:
            try:
                frame, place = listening.recvfrom(LONGEST_FRAME)
            except BlockingIOError:
                return
            serial, switch = serial_of(frame), self._switch_of.get(place[0])
            if serial is not None and switch is not None:
                # A bridge's port shows a frame and its clone (see `bpf.own`): the first counts.
                self._heard.setdefault((serial, frame[TTL_AT], switch), len(self._heard))


def _listener(namespace: Any, port: int) -> socket.socket:
    """Return a socket that gets what comes to that UDP port, at every interface there."""
    with namespace:
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        made = socket.socket(socket.AF_PACKET, kind, socket.htons(ETH_P_ALL))
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    attach_filter(made, _udp_to(port))
    return made


def _udp_to(port: int) -> bytes:
    """Return the filter for UDP over IPv4 without options to a port."""
    ethertype, ports = ETH_IP.to_bytes(2, "big"), port.to_bytes(2, "big")
    wanted = {12: ethertype[0], 13: ethertype[1], 14: 0x45, 23: UDP, 36: ports[0], 37: ports[1]}
    return classic(tuple(Byte(at, value) for at, value in wanted.items()))
