"""Dask's scheduler or a worker, on a machine, for as long as whoever started it is there.

    python -m experiments.machines.joined      its order is a line of JSON on standard input

It is the same in a namespace of this computer and, by ssh, on another one. The keys of TLS come
with the order, so that they are on no command line and in no file. It says in a line of JSON where
it listens, or why it does not, and ends when its input does.
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

from experiments.files import CHECKOUT
from topos.base.errors import PillarboxError, require

PACKAGES = ("topos", "hosts", "experiments")
SUFFIXES = (".py", ".c", ".h")
SILENCE_S = 30
END_S = 3.0  # for a worker to leave in good order
CONFIG = {
    "distributed.scheduler.worker-ttl": f"{SILENCE_S}s",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.comm.retry.count": 0,
    # Of Dask's web servers, which have no TLS, only what tells of their health.
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.worker.http.routes": ["distributed.http.health"],
}


@cache
def code() -> str:
    """Return a hash of Pillarbox's own code: all machines of a lab have to have the same."""
    found = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted((CHECKOUT / package).rglob("*")):
            if file.suffix in SUFFIXES:
                found.update(file.relative_to(CHECKOUT).as_posix().encode())
                found.update(file.read_bytes())
    return found.hexdigest()[:12]


def security_of(keys: dict[str, str]) -> Any:
    """Return Dask's security by keys (its own names, contents in PEM); None for none."""
    from distributed.security import Security

    return Security(require_encryption=True, **keys) if keys else None


def main() -> None:
    """Be what the order says until standard input ends."""
    with open(0, "rb", buffering=0, closefd=False) as orders:  # reads no byte more than the line
        line = orders.readline()
    try:
        require(bool(line), "nobody has said what is to be joined: it is for `cluster up`")
        order = json.loads(line)
        _check(order)
        try:
            asyncio.run(_serve(order))
        finally:
            if order["remove"]:
                shutil.rmtree(order["folder"], ignore_errors=True)
    except (PillarboxError, OSError, ImportError) as error:
        _tell({"event": "failed", "why": str(error)})
        sys.exit(1)


def _check(order: dict[str, Any]) -> None:
    require(
        os.geteuid() == 0,
        "Pillarbox is no root there, and has to make namespaces: let ssh log in as root",
    )
    here = code()
    require(
        here == order["code"],
        f"it has another version of Pillarbox ({here}, not {order['code']}): install the same on "
        "all machines",
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
        _tell({"event": "ready", "address": server.address})
        threading.Thread(target=_end_with_input, args=[server, loop], daemon=True).start()
        await server.finished()


def _end_with_input(server: Any, loop: asyncio.AbstractEventLoop) -> None:
    while os.read(0, 1 << 12):
        continue
    leaving = threading.Timer(END_S, os._exit, [1])
    leaving.daemon = True
    leaving.start()
    asyncio.run_coroutine_threadsafe(server.close(), loop)


def _tell(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
