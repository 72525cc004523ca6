"""A lab's page, for as long as somebody visits it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from experiments.control.client import ask
from experiments.page import process
from experiments.page.process import Page

PATIENCE_S = 60.0


def visited(lab: Any, visit: Callable[[Any, str], Awaitable[None]], requests: Any = None) -> None:
    """Open the page of a lab that runs, and let somebody visit it who may operate."""
    from experiments.control.service import Service

    service = Service(lab, requests)
    door = process.opened()
    page = Page(door, partial(ask, lab.folder), lab.folder)
    try:
        asyncio.run(asyncio.wait_for(visit(lab, door.url("operate")), PATIENCE_S))
    finally:
        page.close()
        service.close()
