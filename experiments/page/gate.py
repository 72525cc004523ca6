"""Root's end of the one socket that a page's server has: what it may ask of a lab, and no more.

One line of JSON for each request, ``{"id": 1, "ask": "cut", "words": ["0.3-4.0"]}``, and one for
each answer, ``{"id": 1, "answer": ...}`` or ``{"id": 1, "error": "..."}``, in any order.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from topos.base.errors import PillarboxError, require

LOOKS = frozenset(["sample", "state", "status", "path", "why"])
DEEDS = frozenset(["cut", "heal", "kill", "revive", "stop", "rack"])
AT_ONCE = 4  # requests under way, so that a trace that waits holds no sample up
MOST_WAITING = 64
LONGEST_REQUEST = 4096

Ask = Callable[..., Any]


class Gate:
    """Passes requests from a socket to a lab, from threads of its own, until it is closed."""

    def __init__(self, near: socket.socket, ask: Ask) -> None:
        self._socket, self._ask = near, ask
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)
        self._writing = threading.Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, "page")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Pass nothing more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._socket.close()

    def wait(self) -> None:
        """Wait until the other end is gone."""
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError), self._socket.makefile("rb") as lines:
            while line := lines.readline(LONGEST_REQUEST):
                self._waiting.acquire()
                try:
                    self._pool.submit(self._pass, line)
                except RuntimeError:  # closed
                    return

    def _pass(self, line: bytes) -> None:
        reply: dict[str, Any] = {"id": None}
        try:
            number, request = checked(line)
            reply = {"id": number}
            reply["answer"] = self._ask(**request)
        except (PillarboxError, OSError) as error:
            reply["error"] = str(error)
        finally:
            self._waiting.release()
        with suppress(OSError), self._writing:
            self._socket.sendall(json.dumps(reply).encode() + b"\n")


def checked(line: bytes) -> tuple[int, dict[str, Any]]:
    """Return a request's number and what to ask of the lab, or raise PillarboxError.

    >>> checked(b'{"id": 7, "ask": "cut", "words": ["0.3-4.0"]}')
    (7, {'ask': 'cut', 'words': ['0.3-4.0']})
    >>> checked(b'{"id": 8, "ask": "enter", "server": "0.0"}')
    Traceback (most recent call last):
    topos.base.errors.PillarboxError: a page may not ask for 'enter'
    """
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        asked = None
    require(isinstance(asked, dict) and isinstance(asked.get("id"), int), "ask with a line of JSON")
    number, what = asked.pop("id"), asked.get("ask")
    require(isinstance(what, str) and what in LOOKS | DEEDS, f"a page may not ask for {what!r}")
    require(
        asked.keys() <= {"ask", "words", "server", "log_from"},
        f"a page may not say {' '.join(sorted(asked.keys()))}",
    )
    return number, asked
