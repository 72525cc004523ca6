"""A page that attacks are made on, and sockets to make them with."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from yarl import URL

from pillarbox.experiments.apps.page import process
from pillarbox.experiments.apps.page.process import Page, PageSocket
from tests.experiments.apps.page.test_page_server import Lab
from tests.experiments.apps.page.visiting import run_client
from tests.harness.page_client import Client

DEADLINE_S = 100.0
SENTENCE = "pillarbox: page: "
MOST_SAMPLES = 25  # that the page records while an operator's page opens: 5 s
Attack = Callable[[PageSocket, Page], Coroutine[Any, Any, None]]


def attacked(
    attack: Attack, folder: Path, lab: Lab | None = None, door: PageSocket | None = None
) -> None:
    """Serve a page, and let somebody attack it."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    door = door or process.opened()
    page = Page(door, (lab or Lab()).ask, folder)
    try:
        run_client(attack(door, page), DEADLINE_S)
    finally:
        page.close()


def connected(door: PageSocket, request: str = "", receive_buffer: int = 0) -> socket.socket:
    """Return a connection that has sent a request."""
    made = socket.socket()
    made.settimeout(DEADLINE_S)
    if receive_buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.connect(("127.0.0.1", door.port))
    made.sendall(request.encode())
    return made


@contextmanager
def flood(
    door: PageSocket, count: int, request: str = "", receive_buffer: int = 0
) -> Iterator[None]:
    """Keep many connections that ask for something, or for nothing, and read nothing."""
    made = [connected(door, request, receive_buffer) for _ in range(count)]
    try:
        yield
    finally:
        for one in made:
            one.close()


def request_for(door: PageSocket, role: str, name: str, headers: str = "") -> str:
    """Return an HTTP request for something that the page serves to a role."""
    where = URL(door.url(role)).join(URL(name)).with_query(token=door.tokens[role])
    return f"GET {where.raw_path_qs} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n"


async def sentences(page: Client, complaints: Callable[[], str]) -> list[str]:
    """Return what the page's server has written to standard error, as soon as it is anything."""
    text = ""
    while not text.endswith("\n"):
        await page.heard("sample")
        text += complaints()
    return text.splitlines()
