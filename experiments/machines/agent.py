"""What a Dask worker does for a lab: it starts its machine's part, and hands on what is asked.

A worker has threads, and a process that has threads must not be forked into a sandbox: so the part
is a process of its own (`part`). When the worker ends, however it does, the part's input ends, and
with it the part. So it does when whoever leads the lab is gone: Dask then lets go of the agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import subprocess
import threading
import weakref
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distributed import get_worker

from experiments.control.client import ask
from experiments.emulation.packing import missing
from experiments.interpreter import module_command
from experiments.linux import offloads
from experiments.linux.netlink import Netlink
from experiments.machines import program
from experiments.machines.joined import code
from topos.base.errors import PillarboxError, require

NEWS = "pillarbox"  # Dask's topic of what happens to parts by themselves
PROCESSORS = "PILLARBOX_PROCESSORS"  # the same on all machines: timers follow it


def facts() -> dict[str, Any]:
    """Return what there is to know of this worker's machine."""
    address = str(urlsplit(get_worker().address).hostname)
    card = Netlink().link_with(address)
    return {
        "host": platform.node(),
        "address": address,
        "code": code(),
        "root": os.geteuid() == 0,
        "kernel": platform.release(),
        "processors": os.cpu_count() or 1,
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "card": card.name if card else "",
        "card_mtu": card.mtu if card else 0,
        "no_packing": missing(),
        "cuts_tunnels": card is not None and offloads.is_on(card.name, offloads.TUNNEL_SEGMENTS),
    }


class Agent:
    """The part of one machine: a Dask actor, which lives on that machine's worker."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order, self._folder = order, Path(order["folder"])
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        worker = get_worker()
        worker.handlers[program.OPERATION] = program.run
        self._part = subprocess.Popen(
            module_command("experiments.machines.part"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, PROCESSORS: str(order["processors"])},
        )
        assert self._part.stdin
        self._part.stdin.write(json.dumps(order).encode() + b"\n")
        self._part.stdin.flush()
        said = _next(self._part)
        require(said is not None, f"the part of machine {order['machine']} ended at once")
        assert said is not None
        if said["event"] != "up":
            self._part.wait()
            _clean(order)
            raise PillarboxError(said["why"])
        # No thread may hold the agent itself: it is there as long as somebody leads the lab.
        self._ending = weakref.finalize(self, self._part.stdin.close)
        threading.Thread(target=_pass_on, args=[worker, order, self._part], daemon=True).start()

    async def ask(self, request: dict[str, Any]) -> Any:
        """Return the part's answer, or raise PillarboxError; many may ask at once."""
        return await asyncio.to_thread(ask, self._folder, **request)

    async def end(self) -> None:
        """End the part, and wait until all that it made is gone."""
        self._ending()
        await asyncio.to_thread(self._part.wait)


def _clean(order: dict[str, Any]) -> None:
    if order["remove"]:
        shutil.rmtree(order["folder"], ignore_errors=True)


def _next(part: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """Return what a part says next, None if it has ended."""
    assert part.stdout
    line = part.stdout.readline()
    return dict(json.loads(line)) if line else None


def _pass_on(worker: Any, order: dict[str, Any], part: subprocess.Popen[bytes]) -> None:
    """Pass on what a part says until its end, and clean up behind it."""
    names = {"machine": order["machine"], "lab": order["lab"]}
    while (said := _next(part)) is not None:
        worker.log_event(NEWS, {**names, **said})
    part.wait()
    _clean(order)
    worker.log_event(NEWS, {**names, "event": "lost"})  # of no interest where it was ended
