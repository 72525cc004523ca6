"""The process of a page's server: started with two sockets, it then drops all its rights."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import secrets
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pillarbox.experiments.apps.page.certificate import Certificate, made_for
from pillarbox.experiments.apps.page.gate import Ask, Gate
from pillarbox.experiments.apps.page.reserved_ports import ReservedPort, reserved_port
from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.runs.control.client import LabEntrance, entrance_anywhere
from pillarbox.topos.base.errors import PillarboxError

ADDRESS = "page"  # name of the file in a lab's folder with the page's URL and certificate
BACKLOG = 1024  # listen backlog: connections that wait for accept()
ROLES = ("operate", "watch")


class PageSocket(NamedTuple):
    """A page's listening socket, and the parts of its two URLs (to operate and to watch)."""

    socket: socket.socket
    name: str
    port: int
    tokens: dict[str, str]
    paths: dict[str, str]
    on_loopback: bool
    terminals: bool
    certificate: Certificate | None = None

    def url(self, role: str) -> str:
        """Return the page's URL for a role, ``operate`` or ``watch``."""
        host = f"[{self.name}]" if ":" in self.name else self.name
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{host}:{self.port}/{self.paths[role]}/?token={self.tokens[role]}"


def opened(listen: str = "", *, plain_http: bool = False, terminals: bool = False) -> PageSocket:
    """Return the page socket for a listen address, parsed by `reserved_port` (see `socket_at`)."""
    return socket_at(reserved_port(listen), plain_http=plain_http, terminals=terminals)


def socket_at(
    port: ReservedPort, *, plain_http: bool = False, terminals: bool = False
) -> PageSocket:
    """Return a page's listening socket, with new access tokens and, if needed, a certificate.

    Parameters
    ----------
    port : ReservedPort
        Reserved port to listen at.
    plain_http : bool
        Serve other computers without TLS. The loopback is always served without TLS.
    terminals : bool
        Permit terminals on a page that other computers reach. On the loopback, terminals are
        always permitted.
    """
    made, address = port
    bound, number, *_ = made.getsockname()
    on_loopback = ipaddress.ip_address(bound.partition("%")[0]).is_loopback
    tokens = {role: secrets.token_urlsafe(24) for role in ROLES}
    paths = {role: f"{role}-{secrets.token_hex(8)}" for role in ROLES}
    try:
        certificate = None if on_loopback or plain_http else made_for(address)
        made.listen(BACKLOG)
    except OSError as error:  # another program listens on the port
        made.close()
        raise PillarboxError(f"cannot listen on {address}: {error.strerror}") from None
    except PillarboxError:
        made.close()
        raise
    return PageSocket(
        *(made, address, number, tokens, paths, on_loopback, on_loopback or terminals, certificate)
    )


class Page:
    """A running page server and its gate to a lab; `close` ends both.

    `period_s` is the sampling period in seconds. The default depends on the number of servers.
    """

    def __init__(
        self, listening: PageSocket, ask: Ask, folder: Path, period_s: float | None = None
    ) -> None:
        near, far = socket.socketpair()
        with far:
            fds = [listening.socket.fileno(), far.fileno()]
            self._process = subprocess.Popen(
                module_command("pillarbox.experiments.apps.page.process", *fds),
                pass_fds=fds,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                text=True,
                start_new_session=True,  # Ctrl-C at the lab's prompt does not end the page's server
            )
        url = listening.url("operate")
        certificate = listening.certificate.certificate if listening.certificate else ""
        listening.socket.close()
        self._address: Path | None = None
        enter = partial(entrance_anywhere, folder) if listening.terminals else _refuse_terminal
        self._gate = Gate(near, ask, enter)
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            settings = {
                "name": listening.name,
                "tokens": listening.tokens,
                "paths": listening.paths,
            }
            settings |= {"certificate": "\n".join(listening.certificate or ())}
            stdin.write(json.dumps({**settings, "period_s": period_s}))
        with self._process.stdout as stdout:
            ready = stdout.readline()
        if not ready:
            self.close()
            raise PillarboxError("the page's server did not start: read its message above")
        self._address = folder / ADDRESS
        self._address.touch(mode=0o600)
        self._address.write_text(f"{url}\n{certificate}")

    @property
    def number(self) -> int:
        """Process ID of the page's server."""
        return self._process.pid

    def wait(self) -> None:
        """Wait until the page's server process ends."""
        self._process.wait()

    def close(self) -> None:
        """Kill the page's server, close its gate and remove its address file."""
        if self._address:
            self._address.unlink(missing_ok=True)
        self._process.kill()
        self._process.wait()
        self._gate.close()


def _refuse_terminal(server: str) -> LabEntrance:
    raise PillarboxError(
        f"terminals are disabled on a page for other computers (server {server}): start the page "
        "with --terminals"
    )


def welcome(listening: PageSocket) -> str:
    """Return the message that is printed after a page has started: its URLs and warnings."""
    lines = [f"page: {listening.url('operate')}", f"to watch only: {listening.url('watch')}"]
    if listening.certificate:
        lines += [f"SHA-256 of its certificate: {listening.certificate.fingerprint}"]
    elif not listening.on_loopback:
        lines += [
            "plain HTTP: everyone who can read this network's traffic can read the first address "
            "and operate the lab"
        ]
    if listening.terminals and not listening.on_loopback:
        lines += ["terminals: everyone with the first address can run programs on this machine"]
    return "\n      ".join(lines)


def address_in(folder: Path) -> tuple[str, str]:
    """Return the URL and the PEM certificate of a lab's page; empty strings without a page."""
    file = folder / ADDRESS
    url, _, certificate = (file.read_text() if file.exists() else "").partition("\n")
    return url, certificate


# -- the server process ----------------------------------------------------------------------------


def main() -> None:
    """Serve a page over the two sockets whose file descriptors the command line gives."""
    from pillarbox.hosts.linux.rights import keep_capabilities, limit_capabilities, take_role

    # Rights are dropped before the first thread starts: capabilities are per thread.
    limit_capabilities()
    keep_capabilities(("dac_read_search", "setgid", "setuid"))

    from pillarbox.experiments.apps.page.serving import serve
    from pillarbox.experiments.runs.control.visitor import give_up_rights

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
