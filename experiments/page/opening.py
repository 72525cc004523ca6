"""The page of a lab that has a prompt: opened with the lab or later, and closed with the lab.

A lab's sandbox has no access to the machine's network, so the port of its page is reserved before
the lab enters the sandbox. Nothing listens at the port until the page is opened.
"""

from __future__ import annotations

import re
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from experiments.page.process import Page

LOOPBACK = "127.0.0.1"


class ReservedPort(NamedTuple):
    """A bound socket that does not listen yet, and the address as the user wrote it."""

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
    require(port < 1 << 16, f"port {port} does not exist: use a port up to 65535")
    made = None
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if port:  # connections of an earlier page may be in TIME_WAIT
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where[:2])
    except OSError as error:
        if made:
            made.close()
        raise PillarboxError(f"cannot listen on {listen or address}: {error.strerror}") from None
    return ReservedPort(made, address)


class LabPage:
    """The page of one lab; its port is reserved from the beginning.

    The arguments are those of `reserved_port` and `process.opened`.
    """

    def __init__(self, listen: str, *, plain_http: bool, terminals: bool) -> None:
        self._port = reserved_port(listen)
        self._rights = {"plain_http": plain_http, "terminals": terminals}
        self._page: Page | None = None
        self._welcome = ""

    def open(self, folder: Path) -> str:
        """Open the page of the lab with this folder, unless it is open; return its addresses."""
        # Imported when needed: the page's server takes longer to import than a lab to answer.
        from experiments.control.client import ask
        from experiments.page import process

        known, _ = process.address_in(folder)
        if known:
            return self._welcome or f"page: {known}"
        require(self._page is None, "the page was closed: sudo ./pillarbox page opens another")
        door = process.door_at(self._port, **self._rights)
        self._page = process.Page(door, partial(ask, folder), folder)
        self._welcome = process.welcome(door)
        return self._welcome

    def close(self) -> None:
        """Close the page if it is open, and release the port."""
        if self._page:
            self._page.close()
        self._port.socket.close()
