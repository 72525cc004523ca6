"""What a Dask worker does for a lab: it starts its machine's part, and hands on what is asked.

A worker has threads, and a process that has threads must not be forked into a sandbox: so the part
is a process of its own (`part`). The two end together. When the worker ends, however it does, the
part's input ends; when the part ends by itself, the worker leaves the cluster.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from distributed import get_worker

from experiments.control.client import ask
from topos.base.errors import PillarboxError, require

NEWS = "pillarbox"  # Dask's topic of what happens to parts by themselves


class Agent:
    """The part of one machine: a Dask actor, which lives on that machine's worker."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._machine, self._folder = order["machine"], Path(order["folder"])
        self._worker, self._ending = get_worker(), False
        self._part = subprocess.Popen(
            [sys.executable, "-m", "experiments.machines.part"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._part.stdin
        self._part.stdin.write(json.dumps(order).encode() + b"\n")
        self._part.stdin.flush()
        said = self._next()
        require(said is not None, f"the part of machine {self._machine} ended at once")
        assert said is not None
        if said["event"] != "up":
            raise PillarboxError(said["why"])
        threading.Thread(target=self._pass_on, daemon=True).start()

    async def ask(self, request: dict[str, Any]) -> Any:
        """Return the part's answer, or raise PillarboxError; many may ask at once."""
        return await asyncio.to_thread(ask, self._folder, **request)

    async def end(self) -> None:
        """End the part, and wait until all that it made is gone."""
        self._ending = True
        assert self._part.stdin
        self._part.stdin.close()
        await asyncio.to_thread(self._part.wait)

    def _next(self) -> dict[str, Any] | None:
        """Return what the part says next, None if it has ended."""
        assert self._part.stdout
        line = self._part.stdout.readline()
        return dict(json.loads(line)) if line else None

    def _pass_on(self) -> None:
        while (said := self._next()) is not None:
            self._worker.log_event(NEWS, {"machine": self._machine, **said})
        if not self._ending:
            os._exit(1)
