"""Run Dask's scheduler or a worker on a machine, until standard input is closed.

    python -m pillarbox.experiments.apps.cluster.dask_process

The order is a line of JSON on standard input.
The same program runs in a namespace of this computer and, by ssh, on another computer. TLS keys
come with the order, so that they appear on no command line and in no file. The process prints a
line of JSON with the address it listens on, or with the error that prevented it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require

PACKAGES = ("topos", "hosts", "experiments")
SUFFIXES = (".py", ".c", ".h")
SILENCE_S = 30
END_S = 3.0  # time limit for the orderly shutdown of a Dask worker, in seconds
CONFIG = {
    "distributed.scheduler.worker-ttl": f"{SILENCE_S}s",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.comm.retry.count": 0,
    # Web pages of Dask that are served: only its health checks, as its web servers have no TLS.
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.worker.http.routes": ["distributed.http.health"],
}


@cache
def source_hash() -> str:
    """Return a hash of Pillarbox's source code, which has to be equal on all machines of a lab."""
    found = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted((CHECKOUT / package).rglob("*")):
            if file.suffix in SUFFIXES:
                found.update(file.relative_to(CHECKOUT).as_posix().encode())
                found.update(file.read_bytes())
    return found.hexdigest()[:12]


def security_of(keys: dict[str, str]) -> Any:
    """Return Dask's `Security` with TLS keys (in PEM, by Dask's names), None without keys."""
    from distributed.security import Security

    return Security(require_encryption=True, **keys) if keys else None


def main() -> None:
    """Run a Dask scheduler or worker as ordered, until standard input is closed."""
    # unbuffered: reads only the order, and leaves other input unread
    with open(0, "rb", buffering=0, closefd=False) as orders:
        line = orders.readline()
    try:
        require(
            bool(line),
            "the Dask process has no order on standard input: start it with `cluster up`",
        )
        order = json.loads(line)
        _check(order)
        try:
            asyncio.run(_serve(order))
        finally:
            if order["remove"]:
                shutil.rmtree(order["folder"], ignore_errors=True)
    except (PillarboxError, OSError, ImportError) as error:
        _report({"event": "failed", "why": str(error)})
        sys.exit(1)


def _check(order: dict[str, Any]) -> None:
    require(
        os.geteuid() == 0,
        "Pillarbox needs root on each host of a cluster, for namespaces: let ssh log in as root",
        NotPermittedError,
    )
    here = source_hash()
    require(
        here == order["code"],
        f"the host has another version of Pillarbox ({here}, not {order['code']}): install the "
        "same version on all hosts of the cluster",
    )


async def _serve(order: dict[str, Any]) -> None:
    import dask
    from distributed import Scheduler, Worker

    dask.config.set({**CONFIG, "temporary-directory": order["folder"]})
    Path(order["folder"]).mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chdir("/")
    kind = {"scheduler": Scheduler, "worker": Worker}[order["role"]]
    server = kind(**order["options"], security=security_of(order["keys"]))
    loop = asyncio.get_running_loop()
    async with server:
        _report({"event": "ready", "address": server.address})
        threading.Thread(target=_end_with_input, args=[server, loop], daemon=True).start()
        await server.finished()


def _end_with_input(server: Any, loop: asyncio.AbstractEventLoop) -> None:
    while os.read(0, 1 << 12):
        continue
    leaving = threading.Timer(END_S, os._exit, [1])
    leaving.daemon = True
    leaving.start()
    asyncio.run_coroutine_threadsafe(server.close(), loop)


def _report(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
