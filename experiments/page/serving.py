"""What a page's server does from its start to its end."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

from aiohttp import web

from experiments.page.link import LabLink
from experiments.page.recorder import Recorder
from experiments.page.server import FIRST_REQUEST_S, PageServer
from topos.base.spec import parse


async def serve(
    listening: socket.socket,
    lab: socket.socket,
    give_up_rights: Callable[[], None],
    *,
    name: str,
    tokens: dict[str, str],
    period_s: float | None,
) -> None:
    """Serve until the lab is gone."""
    link = await LabLink.over(lab)
    about = await link.ask(ask="status")
    topology = parse(about["network"])
    recorder = Recorder(link, topology, about, period_s)  # draws, and reads fonts for it
    server = PageServer(tokens, name, link, recorder)
    give_up_rights()
    runner = web.AppRunner(server.application(), access_log=None, handle_signals=False)
    await runner.setup()
    loop = asyncio.get_running_loop()
    assert runner.server is not None
    await loop.create_server(lambda: impatient(runner.server, loop), sock=listening)
    sys.stdout.write("ready\n")
    sys.stdout.close()
    await recorder.run()


def impatient(factory: Any, loop: asyncio.AbstractEventLoop) -> asyncio.Protocol:
    """Return a connection's protocol that ends a connection on which nothing is asked."""
    protocol: Any = factory()

    def look() -> None:
        if protocol.transport is not None and protocol._current_request is None:
            protocol.transport.abort()

    loop.call_later(FIRST_REQUEST_S, look)
    made: asyncio.Protocol = protocol
    return made
