"""Root's filter between the page's server and a lab: only permitted requests reach the lab.

The page's server has one socket to the gate. Each request is one line of JSON,
``{"id": 1, "ask": "cut", "words": ["0.3-4.0"]}``, and so is each answer,
``{"id": 1, "answer": ...}`` or ``{"id": 1, "error": "..."}``. Answers may come in any order.

The gate also runs the shells on servers (`shells`), and sends their output without a request.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from pillarbox.experiments.apps.page import shells
from pillarbox.experiments.models.workloads.patterns import PATTERNS
from pillarbox.experiments.runs.control.client import LabEntrance
from pillarbox.hosts.base import fault_kinds
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require

LOOKS = frozenset(["sample", "state", "log", "status", "path", "why"])
DEEDS = frozenset([*fault_kinds.VERBS, "heal", "revive", "cable", "ping", "run", "finish"])
KEYS = frozenset(["ask", "words", "server", "log_from", "traffic_from"])
# Workload settings that a web page may set. Arrivals and sizes are excluded: they may be names
# of files, which root would read.
RUN_KEYS = {
    *("duration_s", "volume_bytes", "tool", "congestion"),
    *("source", "destination", "senders", "receivers", "flows"),
}
AT_ONCE = 4  # worker threads for page requests; a slow trace delays no sample
RUNS_AT_ONCE = 2  # maximum number of "run" requests, on additional threads
MOST_WAITING = 64  # maximum number of queued page requests
LONGEST_REQUEST = 4096  # maximum length of a page request, in bytes

Ask = Callable[..., Any]
Enter = Callable[[str], LabEntrance]


class Gate:
    """Gate between page server and lab: checks the page's requests and passes them to the lab.

    Parameters
    ----------
    near : socket
        Root's end of the socket pair to the page's server.
    ask : callable
        Sends a request to the lab and returns the answer.
    enter : callable
        Returns a server's `LabEntrance`, with which shells start.
    """

    def __init__(self, near: socket.socket, ask: Ask, enter: Enter) -> None:
        self._socket, self._lab_request = near, ask
        self._shells = shells.Shells(enter, self._send_message)
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)
        self._writing = threading.Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, "page")
        self._runs = threading.BoundedSemaphore(RUNS_AT_ONCE)
        self._thread = threading.Thread(target=self._read_requests, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the socket to the page's server, its shells and the worker threads."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._shells.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._socket.close()

    def wait(self) -> None:
        """Wait until the page's server has closed its end of the socket."""
        self._thread.join()

    def _read_requests(self) -> None:
        with suppress(OSError), self._socket.makefile("rb") as lines:
            while line := lines.readline(LONGEST_REQUEST):
                number, asked = read(line)
                try:
                    self._submit_request(number, checked(asked))
                except PillarboxError as error:
                    self._send_message({"id": number, "error": str(error)})
                except RuntimeError:  # the gate's thread pool is shut down
                    return

    def _submit_request(self, number: int | None, request: dict[str, Any]) -> None:
        if request["ask"] in shells.DEEDS - {"shell"}:  # shell input keeps its order: no thread
            self._send_message({"id": number, "answer": self._shells.do(request)})
            return
        if request["ask"] != "run":
            self._waiting.acquire()
            self._pool.submit(self._answer_request, number, request, self._waiting)
            return
        require(self._runs.acquire(blocking=False), "a workload is running: end it with finish")
        # In a daemon thread, so that a closing lab does not wait for the workload's flows.
        arguments = [number, request, self._runs]
        threading.Thread(target=self._answer_request, args=arguments, daemon=True).start()

    def _answer_request(
        self, number: int | None, request: dict[str, Any], slot: threading.Semaphore
    ) -> None:
        reply: dict[str, Any] = {"id": number}
        try:
            do = self._shells.do if request["ask"] == "shell" else self._ask_lab
            reply["answer"] = do(request)
        except (PillarboxError, OSError) as error:
            reply["error"] = str(error)
        finally:
            slot.release()
        self._send_message(reply)

    def _ask_lab(self, request: dict[str, Any]) -> Any:
        return self._lab_request(**request)

    def _send_message(self, reply: dict[str, Any]) -> None:
        with suppress(OSError), self._writing:
            self._socket.sendall(json.dumps(reply).encode() + b"\n")


def read(line: bytes) -> tuple[int | None, dict[str, Any]]:
    """Return the number and the fields of a JSON request line; (None, {}) if malformed.

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
    """Return a page's request if it is permitted; raise PillarboxError otherwise.

    >>> checked({"ask": "run", "words": ["all-to-all", "duration_s=5"]})
    {'ask': 'run', 'words': ['all-to-all', 'duration_s=5']}
    >>> checked({"ask": "run", "words": ["all-to-all", "sizes=/etc/shadow"]})
    Traceback (most recent call last):
    pillarbox.topos.base.errors.NotPermittedError: a page may not set 'sizes' of a workload
    >>> checked({"ask": "enter", "server": "0.0"})
    Traceback (most recent call last):
    pillarbox.topos.base.errors.NotPermittedError: a page may not ask for 'enter'
    """
    require(bool(asked), 'malformed request: send one line of JSON with "id" and "ask"')
    command = asked.get("ask")
    known = isinstance(command, str) and command in LOOKS | DEEDS | shells.DEEDS
    require(known, f"a page may not ask for {command!r}", NotPermittedError)
    keys = shells.KEYS if command in shells.DEEDS else KEYS
    require(
        asked.keys() <= keys,
        f"a page may not send {' '.join(sorted(asked.keys()))}",
        NotPermittedError,
    )
    if command == "run":
        _check_run(asked.get("words"))
    return asked


def _check_run(words: Any) -> None:
    """Raise PillarboxError unless a workload is a known pattern with permitted settings."""
    texts = isinstance(words, list) and all(isinstance(word, str) for word in words)
    require(texts, '"words" of a workload is not a list of texts: name a pattern')
    pattern, *values = words or [""]
    require(pattern in PATTERNS, f"{pattern!r} is not a pattern: use {', '.join(PATTERNS)}")
    for value in values:
        name = value.partition("=")[0]
        require(name in RUN_KEYS, f"a page may not set {name!r} of a workload", NotPermittedError)
