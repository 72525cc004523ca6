"""The process of a page's server: started with two open files, it gives up all that it may."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
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

from experiments.control.client import LabEntrance, entrance_anywhere
from experiments.interpreter import module_command
from experiments.page.certificate import Certificate, made_for
from experiments.page.gate import Ask, Gate
from topos.base.errors import PillarboxError, require

LOOPBACK = "127.0.0.1"
ADDRESS = "page"  # the file in a lab's folder that has the address of its page
BACKLOG = 1024  # connections that the kernel completes before the page's server accepts them
ROLES = ("operate", "watch")


class Door(NamedTuple):
    """Where a page is reached: a socket that listens, and what its two addresses consist of."""

    socket: socket.socket
    name: str
    port: int
    tokens: dict[str, str]
    paths: dict[str, str]
    on_loopback: bool
    terminals: bool
    certificate: Certificate | None = None

    def url(self, role: str) -> str:
        """Return the address with which to operate, or to watch."""
        host = f"[{self.name}]" if ":" in self.name else self.name
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{host}:{self.port}/{self.paths[role]}/?token={self.tokens[role]}"


def opened(listen: str = "", *, plain_http: bool = False, terminals: bool = False) -> Door:
    """Return a door at ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT; on the loopback by default.

    Parameters
    ----------
    listen : str
        The address.
    plain_http : bool
        Serve a network without TLS. The loopback always is.
    terminals : bool
        Permit terminals on a page that is reached over a network. On the loopback they always are.
    """
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
        made = socket.create_server(where[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise PillarboxError(
            f"{listen or address} cannot be listened at: {error.strerror}"
        ) from None
    bound, port, *_ = made.getsockname()
    on_loopback = ipaddress.ip_address(bound.partition("%")[0]).is_loopback
    tokens = {role: secrets.token_urlsafe(24) for role in ROLES}
    paths = {role: f"{role}-{secrets.token_hex(8)}" for role in ROLES}
    try:
        certificate = None if on_loopback or plain_http else made_for(address)
    except PillarboxError:
        made.close()
        raise
    return Door(
        *(made, address, port, tokens, paths, on_loopback, on_loopback or terminals, certificate)
    )


class Page:
    """A page's server that runs, and its gate to a lab; both end with `close`.

    `period_s` is between samples; by default it depends on how large the network is.
    """

    def __init__(self, door: Door, ask: Ask, folder: Path, period_s: float | None = None) -> None:
        near, far = socket.socketpair()
        with far:
            fds = [door.socket.fileno(), far.fileno()]
            self._process = subprocess.Popen(
                module_command("experiments.page.process", *fds),
                pass_fds=fds,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                text=True,
                start_new_session=True,  # Ctrl-C at the prompt is not for it
            )
        url = door.url("operate")
        certificate = door.certificate.certificate if door.certificate else ""
        door.socket.close()
        self._address: Path | None = None
        enter = partial(entrance_anywhere, folder) if door.terminals else _no_terminal
        self._gate = Gate(near, ask, enter)
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            settings = {"name": door.name, "tokens": door.tokens, "paths": door.paths}
            settings |= {"certificate": "\n".join(door.certificate or ())}
            stdin.write(json.dumps({**settings, "period_s": period_s}))
        with self._process.stdout as stdout:
            ready = stdout.readline()
        if not ready:
            self.close()
            raise PillarboxError("the page's server did not start: its reason is above")
        self._address = folder / ADDRESS
        self._address.touch(mode=0o600)
        self._address.write_text(f"{url}\n{certificate}")

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


def _no_terminal(server: str) -> LabEntrance:
    raise PillarboxError(
        f"this page opens no terminal on {server}, as it is reached over a network: start it with "
        "--terminals"
    )


def welcome(door: Door) -> str:
    """Return what is printed once a page is open."""
    lines = [f"page: {door.url('operate')}", f"to watch only: {door.url('watch')}"]
    if door.certificate:
        lines += [f"SHA-256 of its certificate: {door.certificate.fingerprint}"]
    elif not door.on_loopback:
        lines += [
            "plain HTTP: whoever can read the traffic of this network can read the first address "
            "and operate the lab"
        ]
    if door.terminals and not door.on_loopback:
        lines += ["terminals: whoever has the first address can run programs on this machine"]
    return "\n      ".join(lines)


def address_in(folder: Path) -> tuple[str, str]:
    """Return the address of a lab's page and its certificate in PEM; empty where there is none."""
    file = folder / ADDRESS
    url, _, certificate = (file.read_text() if file.exists() else "").partition("\n")
    return url, certificate


# -- inside ----------------------------------------------------------------------------------------


def main() -> None:
    """Serve a page over the two open files that the command line numbers."""
    from hosts.linux.rights import bound_capabilities, keep_capabilities, take_role

    # Before there is another thread: the kernel counts these rights for each by itself.
    bound_capabilities()
    keep_capabilities(("dac_read_search", "setgid", "setuid"))

    from experiments.control.visitor import give_up_rights
    from experiments.page.serving import serve

    listening, lab = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    settings = json.load(sys.stdin)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def drop_rights() -> None:
        give_up_rights()
        take_role("page")

    with contextlib.suppress(PillarboxError, asyncio.CancelledError):
        asyncio.run(serve(listening, lab, drop_rights, **settings))


if __name__ == "__main__":
    main()
