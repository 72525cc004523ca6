"""A lab's page, for as long as somebody visits it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from pillarbox.experiments.apps.page import process
from pillarbox.experiments.apps.page.process import Page
from pillarbox.experiments.runs.control.client import ask

PATIENCE_S = 60.0


def run_client(visit: Coroutine[Any, Any, None], patience_s: float = PATIENCE_S) -> None:
    """Run a client of a page to its end, and leave no connection behind.

    A connection with unsent bytes stays open although its session is closed. If the event loop
    ends first, the interpreter reports that connection in whichever test happens to be next.
    """

    async def run() -> None:
        try:
            await asyncio.wait_for(visit, patience_s)
        finally:
            transports = asyncio.get_running_loop()._transports  # type: ignore[attr-defined]
            for transport in list(transports.values()):
                transport.abort()
            await asyncio.sleep(0)

    asyncio.run(run())


def visited(
    lab: Any, visit: Callable[[Any, str], Coroutine[Any, Any, None]], requests: Any = None
) -> None:
    """Open the page of a lab that runs, and let somebody visit it who may operate."""
    from pillarbox.experiments.runs.control.service import Service

    service = Service(lab, requests)
    door = process.opened()
    page = Page(door, partial(ask, lab.folder), lab.folder)
    try:
        run_client(visit(lab, door.url("operate")))
    finally:
        page.close()
        service.close()
