"""Main function of a page's server process: connect to the lab, drop rights, serve."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable

from aiohttp import web

from pillarbox.experiments.apps.page import bounded_log
from pillarbox.experiments.apps.page.access import Access
from pillarbox.experiments.apps.page.admission import KEEP_ALIVE_S, Admission
from pillarbox.experiments.apps.page.certificate import server_context
from pillarbox.experiments.apps.page.link import LabConnection
from pillarbox.experiments.apps.page.recorder import Recorder
from pillarbox.experiments.apps.page.server import PageServer
from pillarbox.topos.base.spec import parse

LINGER_S = 1.0  # timeout to read the rest of an already answered request, in seconds


async def serve(
    listening: socket.socket,
    lab: socket.socket,
    give_up_rights: Callable[[], None],
    *,
    name: str,
    tokens: dict[str, str],
    paths: dict[str, str],
    certificate: str,
    period_s: float | None,
) -> None:
    """Serve a lab's page until the lab ends."""
    bounded_log.install(asyncio.get_running_loop())
    link = await LabConnection.over(lab)
    about = await link.ask(ask="status")
    topology = parse(about["network"])
    recorder = Recorder(link, topology, about, period_s)  # reads fonts: before rights are dropped
    admission = Admission(listening, server_context(certificate) if certificate else None)
    access = Access(tokens, paths, name, tls=bool(certificate))
    server = PageServer(access, admission, link, recorder)
    give_up_rights()
    runner = web.AppRunner(
        server.application(),
        access_log=None,
        handle_signals=False,
        keepalive_timeout=KEEP_ALIVE_S,
        lingering_time=LINGER_S,
    )
    await runner.setup()
    assert runner.server is not None
    admission.begin(runner.server)
    sys.stdout.write("ready\n")
    sys.stdout.close()
    await recorder.run()
