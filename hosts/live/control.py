"""A server's control socket: a request is one line of JSON, and so is the response.

It is a Unix socket in the lab's private folder, so only users with access to the folder can send
requests. The forwarder's loop serves the socket without blocking, however slow a client is.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST_REQUEST = 4096
CLIENT_TIMEOUT_S = 5.0
MOST_CLIENTS = 64  # maximum number of open clients of a control socket; then the oldest is closed

Answer = Callable[[dict[str, Any]], Any]
Watch = Callable[[int, Callable[[], None]], None]
Forget = Callable[[int], None]


class ControlSocket:
    """Control socket of a forwarder: a Unix socket for JSON requests, answered by a function."""

    def __init__(self, path: Path, answer: Answer, watch: Watch, forget: Forget) -> None:
        path.unlink(missing_ok=True)
        self._answer, self._watch, self._forget = answer, watch, forget
        # open connections of control clients by file descriptor, oldest first
        self._clients: dict[int, socket.socket] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.listen(MOST_CLIENTS)
        self._socket.setblocking(False)
        watch(self._socket.fileno(), self._accept_client)

    def _accept_client(self) -> None:
        try:
            client, _ = self._socket.accept()
        except BlockingIOError:
            return
        client.setblocking(False)
        received = bytearray()
        if len(self._clients) >= MOST_CLIENTS:
            self._stop_watching(next(iter(self._clients.values()))).close()
        self._clients[client.fileno()] = client
        self._watch(client.fileno(), lambda: self._receive_request(client, received))

    def _receive_request(self, client: socket.socket, received: bytearray) -> None:
        try:
            data = client.recv(LONGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        received += data
        if data and b"\n" not in received and len(received) < LONGEST_REQUEST:
            return
        with self._stop_watching(client):
            reply = self._encoded_response(bytes(received))
            # The send buffer holds the whole response, so that a client that does not read cannot
            # block.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(reply) + LONGEST_REQUEST)
            try:
                client.sendall(reply)
            except OSError:
                return

    def _stop_watching(self, client: socket.socket) -> socket.socket:
        """Stop waiting for a control client's request; return its socket."""
        self._forget(client.fileno())
        return self._clients.pop(client.fileno())

    def _encoded_response(self, request: bytes) -> bytes:
        try:
            asked = json.loads(request)
            answer = self._answer(asked) if isinstance(asked, dict) else None
        except (ValueError, RecursionError):  # invalid or too deep JSON in the request
            answer = None
        line = (
            {"error": "the control request is not one line of valid JSON"}
            if answer is None
            else answer
        )
        return json.dumps(line).encode() + b"\n"


def ask_forwarder(path: Path, request: dict[str, Any]) -> Any:
    """Return a forwarder's response to a request by its control socket; OSError on a timeout."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(CLIENT_TIMEOUT_S)
        client.connect(str(path))
        client.sendall(json.dumps(request).encode() + b"\n")
        with client.makefile("rb") as reply:
            return json.loads(reply.readline() or b"null")
