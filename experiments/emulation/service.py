"""A lab's own control socket: what others may ask of it while its prompt is in use.

One line of JSON in, one line of JSON out, as for servers (`hosts.live.control`). Only ``enter``
also hands over open files: the namespaces in which a program on a server is to run.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.emulation.sampling import Sampler
from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:  # a client has no use for Mininet
    from experiments.emulation.lab import Lab

NAME = "lab.sock"
CLIENT_S = 5.0
LONGEST_REQUEST = 4096
NAMESPACES = ("mnt", "pid")  # of the lab; with the network namespace of the server before them


class Service:
    """Answers at the lab's socket, from a thread of its own, until it is closed."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._sampler = lab, Sampler(lab)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = lab.folder / NAME
        path.unlink(missing_ok=True)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.listen(16)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(CLIENT_S)
        self._sampler.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:  # closed
                return
            with client:
                client.settimeout(CLIENT_S)
                with suppress(OSError):  # the client did not wait
                    self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        with client.makefile("rb") as lines:
            line = lines.readline(LONGEST_REQUEST)
        files: list[int] = []
        try:
            answer = self._reply(_request(line), files)
        except (PillarboxError, KeyError, TypeError, OSError) as error:
            answer = {"error": str(error)}
        try:
            reply = json.dumps(answer).encode() + b"\n"
            sent = socket.send_fds(client, [reply[:1024]], files)
            client.sendall(reply[sent:])
        finally:
            for descriptor in files[1:]:
                os.close(descriptor)

    def _reply(self, asked: dict[str, Any], files: list[int]) -> Any:
        lab = self._lab
        what = asked["ask"]
        if what == "status":
            return lab.status()
        if what == "state":
            return lab.state(self._server(asked["server"]))
        if what == "trace":
            ends = self._server(asked["source"]), self._server(asked["destination"])
            return {**lab.trace(*ends), "computed": lab.computed(*ends)}
        if what == "sample":
            log_from = asked.get("log_from", 0)
            require(
                isinstance(log_from, int) and log_from >= 0, f"no place in the log: {log_from!r}"
            )
            return self._sampler.sample(log_from)
        if what == "enter":
            files.append(lab.namespace_of(self._server(asked["server"])))
            files.extend(os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in NAMESPACES)
            return {}
        return {"error": f"nothing is known of {what!r}"}

    def _server(self, address: object) -> int:
        require(isinstance(address, str), f"a server's address is text, not {address!r}")
        return self._lab.server(str(address))


def _request(line: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, or brackets without end
        asked = None
    require(isinstance(asked, dict) and "ask" in asked, "ask with one line of JSON")
    return dict(asked)


def ask(folder: Path, **request: Any) -> Any:
    """Return a running lab's answer; raise PillarboxError where it refuses or is silent."""
    answer, files = _asked(folder, request)
    for descriptor in files:
        os.close(descriptor)
    return answer


def namespaces(folder: Path, server: str) -> list[int]:
    """Return a server's network namespace, and the lab's mounts and processes, as open files."""
    return _asked(folder, {"ask": "enter", "server": server})[1]


def _asked(folder: Path, request: dict[str, Any]) -> tuple[Any, list[int]]:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(60.0)
            client.connect(str(folder / NAME))
            client.sendall(json.dumps(request).encode() + b"\n")
            data, files, _, _ = socket.recv_fds(client, 1 << 16, 1 + len(NAMESPACES))
            while not data.endswith(b"\n"):
                more = client.recv(1 << 16)
                if not more:
                    break
                data += more
    except OSError as error:
        raise PillarboxError(f"the lab does not answer: {error.strerror or error}") from error
    answer = json.loads(data or b"null")
    if isinstance(answer, dict) and "error" in answer:
        raise PillarboxError(answer["error"])
    return answer, list(files)
