"""Root's end of the one socket that a page's server has: what it may ask of a lab, and no more.

Shells on servers (`shells`) are the gate's own: of what they print it tells without being asked.

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

from experiments.control.client import LabEntrance
from experiments.page import shells
from experiments.traffic.patterns import PATTERNS
from topos.base.errors import PillarboxError, require

LOOKS = frozenset(["sample", "state", "log", "status", "path", "why"])
DEEDS = frozenset(
    ["cut", "heal", "kill", "revive", "stop", "rack", "cable", "ping", "run", "finish"]
)
KEYS = frozenset(["ask", "words", "server", "log_from", "traffic_from"])
# Of a workload; arrivals and sizes may be names of files, which root would read.
RUN_KEYS = {
    *("duration_s", "volume_bytes", "tool", "congestion"),
    *("source", "destination", "senders", "receivers", "flows"),
}
AT_ONCE = 4  # requests under way, so that a trace that waits holds no sample up
RUNS_AT_ONCE = 2  # beside them, for as long as flows last; the lab refuses the second
MOST_WAITING = 64
LONGEST_REQUEST = 4096

Ask = Callable[..., Any]
Enter = Callable[[str], LabEntrance]


class Gate:
    """Passes requests from a socket to a lab, from threads of its own, until it is closed.

    `enter` returns the way into a server, for its shells.
    """

    def __init__(self, near: socket.socket, ask: Ask, enter: Enter) -> None:
        self._socket, self._ask = near, ask
        self._shells = shells.Shells(enter, self._tell)
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)
        self._writing = threading.Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, "page")
        self._runs = threading.BoundedSemaphore(RUNS_AT_ONCE)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Pass nothing more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._shells.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._socket.close()

    def wait(self) -> None:
        """Wait until the other end is gone."""
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError), self._socket.makefile("rb") as lines:
            while line := lines.readline(LONGEST_REQUEST):
                number, asked = read(line)
                try:
                    self._submit(number, checked(asked))
                except PillarboxError as error:
                    self._tell({"id": number, "error": str(error)})
                except RuntimeError:  # closed
                    return

    def _submit(self, number: int | None, request: dict[str, Any]) -> None:
        if request["ask"] in shells.DEEDS - {"shell"}:  # at once, in their order
            self._tell({"id": number, "answer": self._shells.do(request)})
            return
        if request["ask"] != "run":
            self._waiting.acquire()
            self._pool.submit(self._pass, number, request, self._waiting)
            return
        require(self._runs.acquire(blocking=False), "a workload is under way: finish ends it")
        what = [number, request, self._runs]  # in a daemon: the lab's end waits for no flow
        threading.Thread(target=self._pass, args=what, daemon=True).start()

    def _pass(
        self, number: int | None, request: dict[str, Any], place: threading.Semaphore
    ) -> None:
        reply: dict[str, Any] = {"id": number}
        try:
            do = self._shells.do if request["ask"] == "shell" else self._do
            reply["answer"] = do(request)
        except (PillarboxError, OSError) as error:
            reply["error"] = str(error)
        finally:
            place.release()
        self._tell(reply)

    def _do(self, request: dict[str, Any]) -> Any:
        return self._ask(**request)

    def _tell(self, reply: dict[str, Any]) -> None:
        with suppress(OSError), self._writing:
            self._socket.sendall(json.dumps(reply).encode() + b"\n")


def read(line: bytes) -> tuple[int | None, dict[str, Any]]:
    """Return a request's number, and the rest of it; None where it is none.

    >>> read(b'{"id": 7, "ask": "cut", "words": ["0.3-4.0"]}')
    (7, {'ask': 'cut', 'words': ['0.3-4.0']})
    >>> read(b'[7]')
    (None, {})
    """
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or not isinstance(asked.get("id"), int):
        return None, {}
    return asked.pop("id"), asked


def checked(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what to ask of the lab, or raise PillarboxError.

    >>> checked({"ask": "run", "words": ["all-to-all", "duration_s=5"]})
    {'ask': 'run', 'words': ['all-to-all', 'duration_s=5']}
    >>> checked({"ask": "run", "words": ["all-to-all", "sizes=/etc/shadow"]})
    Traceback (most recent call last):
    topos.base.errors.PillarboxError: a page may not set 'sizes' of a workload
    >>> checked({"ask": "enter", "server": "0.0"})
    Traceback (most recent call last):
    topos.base.errors.PillarboxError: a page may not ask for 'enter'
    """
    require(bool(asked), "ask with a line of JSON")
    what = asked.get("ask")
    known = isinstance(what, str) and what in LOOKS | DEEDS | shells.DEEDS
    require(known, f"a page may not ask for {what!r}")
    keys = shells.KEYS if what in shells.DEEDS else KEYS
    require(asked.keys() <= keys, f"a page may not say {' '.join(sorted(asked.keys()))}")
    if what == "run":
        _check_run(asked.get("words"))
    return asked


def _check_run(words: Any) -> None:
    """Refuse a workload that is more than a pattern between servers."""
    require(isinstance(words, list) and all(isinstance(word, str) for word in words), "say words")
    pattern, *values = words or [""]
    require(pattern in PATTERNS, f"a page sends no {pattern!r}: {', '.join(PATTERNS)}")
    for value in values:
        name = value.partition("=")[0]
        require(name in RUN_KEYS, f"a page may not set {name!r} of a workload")
