"""Handles on Dask processes (`dask_process`) that run on a machine here or, by ssh, on another.

    in a machine's namespace:   python -m pillarbox.experiments.apps.cluster.dask_process
    on another computer:        ssh HOST /path/to/pillarbox cluster join

The process lasts as long as its standard input is open. The input is closed when its holder dies
for any reason; sshd closes it when the connection is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pillarbox.experiments.apps.cluster.dask_process import source_hash
from pillarbox.hosts.linux.calls import readable
from pillarbox.topos.base.errors import require

END_S = 5.0
WORKER = {
    "nthreads": 1,
    "memory_limit": 0,
    "dashboard": False,
    "death_timeout": 60,  # seconds without a scheduler until a worker ends
}


def keys_for(security: Any, role: str) -> dict[str, str]:
    """Return the TLS keys of Dask's scheduler, worker or client, by names of `Security`."""
    if security is None:
        return {}
    found = security.get_tls_config_for_role(role)
    names = {"ca_file": "tls_ca_file", "cert": f"tls_{role}_cert", "key": f"tls_{role}_key"}
    return {names[kind]: found[kind] for kind in names}


def order_for(
    role: str, host: str, folder: Path, security: Any, *, remove: bool, **options: Any
) -> dict[str, Any]:
    """Return the settings with which to start a Dask scheduler or worker at one address.

    With `remove` the process deletes its folder when it ends.
    """
    # Dask always starts its web server, without TLS: let it listen on the loopback only.
    given = {"host": host, "dashboard_address": "127.0.0.1:0", **options}
    if role == "worker":
        given |= {**WORKER, "local_directory": str(folder)}
    keys = keys_for(security, role)
    known = {"role": role, "code": source_hash(), "folder": str(folder), "remove": remove}
    return {**known, "keys": keys, "options": given}


def address_in(said: bytes, last_words: Callable[[], str]) -> str:
    """Return a Dask process's address from its first line of output, or raise its error."""
    try:
        message = json.loads(said)
    except (ValueError, RecursionError):
        message = None
    message = message if isinstance(message, dict) else {}
    require(message.get("event") == "ready", str(message.get("why") or last_words()))
    return str(message.get("address"))


class DaskChildProcess:
    """A running scheduler or worker of Dask, in a child process.

    Parameters
    ----------
    command : sequence of str
        Command that starts the process.
    order : dict
        Order for the process; see `order_for`.
    log : Path
        File for the process's standard error.
    """

    def __init__(
        self,
        command: Sequence[str],
        order: dict[str, Any],
        log: Path,
    ) -> None:
        self._log = log
        with log.open("wb") as words:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                cwd="/",
                start_new_session=True,  # Ctrl-C goes to the prompt only
            )
        assert self.process.stdin
        with suppress(BrokenPipeError):  # the Dask process has ended; its log says why
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()

    def address(self, deadline: float) -> str:
        """Return the address on which a Dask process listens, or raise the process's error."""
        assert self.process.stdout
        said = b""
        while not said.endswith(b"\n"):
            ready = readable([self.process.stdout], deadline - time.monotonic())
            more = os.read(self.process.stdout.fileno(), 1) if ready else b""
            if not more:
                break
            said += more
        return address_in(said, self.last_words)

    def last_words(self) -> str:
        """Return the last line that a Dask process wrote to standard error."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "the Dask process left no message"

    def close_input(self) -> None:
        """End a Dask process by closing its standard input, without waiting."""
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> None:
        """End a Dask process and wait for its end; kill it after END_S seconds."""
        self.close_input()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
