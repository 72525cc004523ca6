"""Dask's processes on machines (`joined`), as whoever starts them has them: here, or by ssh.

    command:   python -m experiments.machines.joined       in a machine's namespace
               ssh HOST /path/to/pillarbox cluster join    on another computer

Of either the standard input is held as long as the process is to last: if who holds it dies,
however that comes, the process ends. sshd closes it when the connection is lost.
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

from experiments.machines.joined import code
from hosts.linux.calls import readable
from topos.base.errors import require

END_S = 5.0
WORKER = {
    "nthreads": 1,
    "memory_limit": 0,
    "dashboard": False,
    "death_timeout": 60,  # without a scheduler
}


def keys_for(security: Any, role: str) -> dict[str, str]:
    """Return the keys that a role of Dask's is given, by the names that `Security` takes."""
    if security is None:
        return {}
    found = security.get_tls_config_for_role(role)
    names = {"ca_file": "tls_ca_file", "cert": f"tls_{role}_cert", "key": f"tls_{role}_key"}
    return {names[kind]: found[kind] for kind in names}


def order_for(
    role: str, host: str, folder: Path, security: Any, *, remove: bool, **options: Any
) -> dict[str, Any]:
    """Return the order of a scheduler or worker that listens at an address, and at no other.

    Its folder is removed at its end where that is said.
    """
    # Without a dashboard there is its server still, which has no keys and else listens everywhere.
    given = {"host": host, "dashboard_address": "127.0.0.1:0", **options}
    if role == "worker":
        given |= {**WORKER, "local_directory": str(folder)}
    keys = keys_for(security, role)
    known = {"role": role, "code": code(), "folder": str(folder), "remove": remove}
    return {**known, "keys": keys, "options": given}


def address_in(said: bytes, last_words: Callable[[], str]) -> str:
    """Return the address in a process's first line, or raise PillarboxError with its reason."""
    try:
        message = json.loads(said)
    except (ValueError, RecursionError):
        message = None
    message = message if isinstance(message, dict) else {}
    require(message.get("event") == "ready", str(message.get("why") or last_words()))
    return str(message.get("address"))


class Started:
    """A process that was started with an order.

    Parameters
    ----------
    command : sequence of str
        What starts it.
    order : dict
        See `order_for`.
    log : Path
        Where its words on standard error go.
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
                start_new_session=True,  # Ctrl-C is for the prompt
            )
        assert self.process.stdin
        with suppress(BrokenPipeError):  # it has ended, and its last words say why
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()

    def address(self, deadline: float) -> str:
        """Return where it listens, or raise PillarboxError with what it says."""
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
        """Return the last line that it wrote on standard error."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it left no message"

    def let_go(self) -> None:
        """Let it end: its input does."""
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> None:
        """End it, and wait until it has."""
        self.let_go()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
