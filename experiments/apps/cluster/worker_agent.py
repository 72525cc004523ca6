"""Agent of a lab on a Dask worker: starts its machine's part and forwards requests to the part.

A Dask worker has threads, and a process with threads must not fork into a sandbox, so the part is
a process of its own (`part`). The part ends when its standard input is closed. That happens when
the worker ends for any reason, and when the lab's process is gone, since Dask then releases the
agent.
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

from pillarbox.experiments.apps.cluster import worker_program
from pillarbox.experiments.apps.cluster.dask_process import source_hash
from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.lab.emulation.tunnel_programs import missing
from pillarbox.experiments.lab.linux import offloads
from pillarbox.experiments.runs.control.client import ask
from pillarbox.hosts.linux.netlink import Netlink
from pillarbox.topos.base.errors import PillarboxError, require

NEWS = "pillarbox"  # Dask topic of events in the lab's parts, such as the end of a forwarder
# environment variable with the processor count for timers, equal on all machines of a lab
PROCESSORS = "PILLARBOX_PROCESSORS"


def facts() -> dict[str, Any]:
    """Return hardware, kernel, network card and Pillarbox version of this Dask worker's machine."""
    address = str(urlsplit(get_worker().address).hostname)
    card = Netlink().link_with(address)
    return {
        "host": platform.node(),
        "address": address,
        "code": source_hash(),
        "root": os.geteuid() == 0,
        "kernel": platform.release(),
        "processors": os.cpu_count() or 1,
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "card": card.name if card else "",
        "card_mtu": card.mtu if card else 0,
        "no_packing": missing(),
        "cuts_tunnels": card is not None and offloads.is_on(card.name, offloads.TUNNEL_SEGMENTS),
    }


class LabPartActor:
    """Dask actor on a machine's worker that owns the machine's part of the lab."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order, self._folder = order, Path(order["folder"])
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        worker = get_worker()
        worker.handlers[worker_program.OPERATION] = worker_program.run
        self._part = subprocess.Popen(
            module_command("pillarbox.experiments.apps.cluster.part"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, PROCESSORS: str(order["processors"])},
        )
        assert self._part.stdin
        self._part.stdin.write(json.dumps(order).encode() + b"\n")
        self._part.stdin.flush()
        said = _event(self._part)
        require(said is not None, f"the part of machine {order['machine']} ended during its start")
        assert said is not None
        if said["event"] != "up":
            self._part.wait()
            _clean(order)
            raise PillarboxError(said["why"])
        # No thread may refer to the agent: its finalizer has to run when the lab releases the
        # agent.
        self._ending = weakref.finalize(self, self._part.stdin.close)
        threading.Thread(target=_forward, args=[worker, order, self._part], daemon=True).start()

    async def ask(self, request: dict[str, Any]) -> Any:
        """Return the part's answer or raise PillarboxError; requests may run in parallel."""
        return await asyncio.to_thread(ask, self._folder, **request)

    async def end(self) -> None:
        """End the part; return when everything that the part created is gone."""
        self._ending()
        await asyncio.to_thread(self._part.wait)


def _clean(order: dict[str, Any]) -> None:
    if order["remove"]:
        shutil.rmtree(order["folder"], ignore_errors=True)


def _event(part: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """Return the next event that this machine's part of a lab reports, None at its end."""
    assert part.stdout
    line = part.stdout.readline()
    return dict(json.loads(line)) if line else None


def _forward(worker: Any, order: dict[str, Any], part: subprocess.Popen[bytes]) -> None:
    """Forward a part's events to Dask's topic until the part ends, then remove its folder."""
    names = {"machine": order["machine"], "lab": order["lab"]}
    while (said := _event(part)) is not None:
        worker.log_event(NEWS, {**names, **said})
    part.wait()
    _clean(order)
    # the lab ignores this event if it has ended the part
    worker.log_event(NEWS, {**names, "event": "lost"})
