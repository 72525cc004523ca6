"""The page of a lab that has a prompt: opened with the lab or later, and closed with the lab.

A lab's sandbox has no access to the machine's network, so the port of its page is reserved before
the lab enters the sandbox. Nothing listens at the port until the page is opened.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pillarbox.experiments.apps.page.reserved_ports import reserved_port
from pillarbox.topos.base.errors import require

if TYPE_CHECKING:
    from pillarbox.experiments.apps.page.process import Page


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
        # Imported only for a page, because importing the page's server takes long.
        from pillarbox.experiments.apps.page import process
        from pillarbox.experiments.runs.control.client import ask

        known, _ = process.address_in(folder)
        if known:
            return self._welcome or f"page: {known}"
        require(self._page is None, "the page was closed: sudo ./pillarbox page opens another")
        listening = process.socket_at(self._port, **self._rights)
        self._page = process.Page(listening, partial(ask, folder), folder)
        self._welcome = process.welcome(listening)
        return self._welcome

    def close(self) -> None:
        """Close the page if it is open, and release the port."""
        if self._page:
            self._page.close()
        self._port.socket.close()
