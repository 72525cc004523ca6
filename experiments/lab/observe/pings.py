"""Simultaneous pings from many servers, by ICMP sockets of this process in their namespaces."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from pillarbox.hosts.linux.calls import readable
from pillarbox.hosts.wire.header_layout import WireError, checksum
from pillarbox.hosts.wire.ipv4 import ECHO, ICMP, Ipv4Header
from pillarbox.topos.base.addressing import End, dotted_quad
from pillarbox.topos.base.topology import Topology

REQUEST, REPLY = 8, 0
WAIT_S = 1.0
BODY = b"pillarbox".ljust(56, b".")  # payload of an ICMP echo, of ping's default size
LARGEST = 1 << 16
_SERIALS = count(os.getpid())  # ICMP identifiers: each echo is a separate flow, as with ping


def echoes(
    namespace: AbstractContextManager[Any],
    topology: Topology,
    destinations: Sequence[int],
    wait_s: float = WAIT_S,
    own_ip: str = "",
    port: int | None = None,
) -> dict[int, float | None]:
    """Ping each destination once from a server's namespace.

    Parameters
    ----------
    namespace, topology, destinations, wait_s
        Namespace of the source, the network, the servers to ping, and the timeout in seconds.
    own_ip : str
        Source address of the echoes; "" for the server's own.
    port : int, optional
        Port whose address is pinged at each destination, instead of the server's own address.

    Returns
    -------
    dict
        Round-trip times in ms by destination, None after a timeout.
    """
    found: dict[int, float | None] = dict.fromkeys(destinations)
    serial = next(_SERIALS) & 0xFFFF
    addresses = {server: topology.end_ipv4(End(server, port)) for server in destinations}
    waiting = {ipv4: server for server, ipv4 in addresses.items()}
    with namespace:
        made = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with made:
        made.bind((own_ip, 0))
        sent_s = {}
        for server in destinations:
            sent_s[server] = time.monotonic()
            try:
                made.sendto(_echo_request(serial), (dotted_quad(addresses[server]), 0))
            except OSError:  # no route to the server
                waiting.pop(addresses[server], None)
        deadline = time.monotonic() + wait_s
        while waiting and readable([made], deadline - time.monotonic()):
            replier = waiting.pop(_replier_address(made.recv(LARGEST), serial), None)
            if replier is not None:
                found[replier] = (time.monotonic() - sent_s[replier]) * 1e3
    return found


def _echo_request(serial: int) -> bytes:
    body = ECHO.pack(REQUEST, 0, 0, serial, 1) + BODY
    return body[:2] + struct.pack(">H", checksum(body)) + body[4:]


def _replier_address(packet: bytes, serial: int) -> int:
    """Return the IPv4 source address of an ICMP echo reply, 0 for any other packet."""
    try:
        header, body = Ipv4Header.parse(packet)
    except WireError:
        return 0
    if header.protocol != ICMP or len(body) < ECHO.size:
        return 0
    kind, _, _, identifier, _ = ECHO.read(body)
    return header.source if (kind, identifier) == (REPLY, serial) else 0
