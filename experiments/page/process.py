"""The process of a page's server: started with two open files, it gives up all that it may."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.control.client import entrance_anywhere
from experiments.page.gate import Ask, Gate
from topos.base.errors import PillarboxError, require

LOOPBACK = "127.0.0.1"
ADDRESS = "page"  # the file in a lab's folder that has the address of its page
START_S = 60.0
ROLES = ("operate", "watch")


class Door(NamedTuple):
    """Where a page is reached: a socket that listens, and the tokens of its two addresses."""

    socket: socket.socket
    name: str
    port: int
    tokens: dict[str, str]

    def url(self, role: str) -> str:
        """Return the address with which to operate, or to watch."""
        host = f"[{self.name}]" if ":" in self.name else self.name
        return f"http://{host}:{self.port}/?token={self.tokens[role]}"


def opened(listen: str = "") -> Door:
    """Return a door at ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT; at the loopback by default."""
    found = re.fullmatch(
        r"(\[[0-9a-fA-F:.]+\]|[^:]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*)(?::(\d+))?", listen
    )
    require(
        found is not None or not listen, f"{listen!r} is no address: write ADDRESS or ADDRESS:PORT"
    )
    address = found[1].strip("[]") if found else LOOPBACK
    port = int(found[2] or 0) if found else 0
    require(port < 1 << 16, f"there is no port {port}")
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        made = socket.create_server(where[:2], family=family, backlog=64)
    except OSError as error:
        raise PillarboxError(
            f"{listen or address} cannot be listened at: {error.strerror}"
        ) from None
    port = made.getsockname()[1]
    return Door(made, address, port, {role: secrets.token_urlsafe(24) for role in ROLES})


class Page:
    """A page's server that runs, and its gate to a lab; both end with `close`.

    `period_s` is between samples; by default it depends on how large the network is.
    """

    def __init__(self, door: Door, ask: Ask, folder: Path, period_s: float | None = None) -> None:
        near, far = socket.socketpair()
        with far:
            words = [sys.executable, "-m", "experiments.page.process"]
            fds = [door.socket.fileno(), far.fileno()]
            self._process = subprocess.Popen(
                [*words, *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=Path(__file__).parents[2],
                text=True,
                start_new_session=True,  # Ctrl-C at the prompt is not for it
            )
        url = door.url("operate")
        door.socket.close()
        self._address: Path | None = None
        self._gate = Gate(near, ask, partial(entrance_anywhere, folder))
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            settings = {"name": door.name, "tokens": door.tokens, "period_s": period_s}
            stdin.write(json.dumps(settings))
        with self._process.stdout as stdout:
            ready = stdout.readline()
        if not ready:
            self.close()
            raise PillarboxError("the page's server did not start: its reason is above")
        self._address = folder / ADDRESS
        self._address.touch(mode=0o600)
        self._address.write_text(url)

    @property
    def number(self) -> int:
        """The server's process number."""
        return self._process.pid

    def wait(self) -> None:
        """Wait until the server ends."""
        self._process.wait()

    def close(self) -> None:
        """End the server, whatever it does."""
        if self._address:
            self._address.unlink(missing_ok=True)
        self._process.kill()
        self._process.wait()
        self._gate.close()


def welcome(door: Door) -> str:
    """Return what is printed once a page is open."""
    return f"page: {door.url('operate')}\n      to watch only: {door.url('watch')}"


def address_in(folder: Path) -> str:
    """Return the address of the page that is open for a lab, if one is."""
    file = folder / ADDRESS
    return file.read_text() if file.exists() else ""


# -- inside ----------------------------------------------------------------------------------------


def main() -> None:
    """Serve a page over the two open files that the command line numbers."""
    from experiments.control.visitor import give_up_rights
    from experiments.page.serving import serve

    listening, lab = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    settings = json.load(sys.stdin)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(PillarboxError, asyncio.CancelledError):
        asyncio.run(serve(listening, lab, give_up_rights, **settings))


if __name__ == "__main__":
    main()
