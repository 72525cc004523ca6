"""Ports of live pages, bound before anything listens at them."""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require

LOOPBACK = "127.0.0.1"


class ReservedPort(NamedTuple):
    """A bound TCP socket for the page that does not listen yet, and the user's address text."""

    socket: socket.socket
    name: str


def reserved_port(listen: str = "") -> ReservedPort:
    """Reserve ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT; by default a free port of the loopback."""
    found = re.fullmatch(
        r"(\[[0-9a-fA-F:.]+\]|[^:]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*)(?::(\d+))?", listen
    )
    require(
        found is not None or not listen,
        f"{listen!r} is not an address: write ADDRESS or ADDRESS:PORT",
    )
    address = found[1].strip("[]") if found else LOOPBACK
    port = int(found[2] or 0) if found else 0
    require(port < 1 << 16, f"port {port} does not exist: use a port up to 65535", UnknownNameError)
    made = None
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if port:  # sockets of an earlier page may be in TIME_WAIT
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where[:2])
    except OSError as error:
        if made:
            made.close()
        raise PillarboxError(f"cannot listen on {listen or address}: {error.strerror}") from None
    return ReservedPort(made, address)
