"""Readers of socket input: requests of pages, labs and servers, answers of processes.

Each has a function that returns its corpus and one that reads one input (see `_readers`).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require
from pillarbox.topos.base.spec import parse
from tests.benches._mutations import json_corpus


def page_request_corpus() -> tuple[bytes, ...]:
    return json_corpus(
        {"id": 3, "do": "cut", "words": ["0.3-4.0"]},
        {"id": 1, "do": "resize", "words": ["1", "24", "80"]},
        {"id": 2, "do": "state", "words": ["0.0"]},
        ["127.0.0.1:8080", "[::1]:80", "localhost", "[", "::", "a:b:c"],
    )


def read_page_request(data: bytes) -> None:
    from pillarbox.experiments.apps.page.access import is_own_host
    from pillarbox.experiments.apps.page.server import _terminal_size, checked

    text = data.decode(errors="replace")
    is_own_host(text, "lab.example")
    _, _, words = checked(text)
    _terminal_size(words[-2:])


def gate_request_corpus() -> tuple[bytes, ...]:
    return json_corpus(
        {"id": 1, "ask": "cut", "words": ["0.3-4.0"]},
        {"id": 2, "ask": "run", "words": ["all-to-all", "duration_s=5"]},
        {"id": 3, "ask": "sample", "log_from": 0, "traffic_from": 1.5},
        {"id": 4, "ask": "resize", "shell": 1, "rows": 24, "columns": 80},
        {"id": 5, "ask": "type", "shell": 1, "text": "ls\n"},
    )


def read_gate_request(data: bytes) -> None:
    from pillarbox.experiments.apps.page import shells
    from pillarbox.experiments.apps.page.gate import checked, read

    asked = checked(read(data)[1])
    if asked["ask"] in shells.DEEDS:
        shells.Shells(_no_server, lambda _: None).do(asked)


def _no_server(_: str) -> Any:
    raise UnknownNameError("this fuzzed lab has no servers to connect to")


def lab_request_corpus() -> tuple[bytes, ...]:
    return json_corpus(
        *({"ask": what} for what in ("protocol", "about", "hosts")),
        *({"ask": what, "server": "0.0"} for what in ("state", "log", "enter")),
        {"ask": "trace", "source": "0.0", "destination": "1.1"},
        {"ask": "cut", "words": ["0.3-4.0", "silent"]},
        {"ask": "cable", "words": ["0.0-s0", "rate_mbit=20", "delay=1ms", "loss=0.5"]},
        {"ask": "iperf", "words": ["0.0", "1.1", "2.5"]},
        {"ask": "ping", "words": ["0.0", "1.1"]},
        {"ask": "run", "words": ["all-to-all", "duration_s=5"]},
    )


@contextmanager
def lab_request_reader() -> Iterator[Callable[[bytes], object]]:
    """Yield the request reader of a lab's control service, with a stub as the lab."""
    from pillarbox.experiments.runs.control.service import Service, _request

    topology = parse("bcube,2,1")
    lab = _LabStub(topology)
    service = Service.__new__(Service)
    service._lab, service._further = lab, {}  # type: ignore[assignment]

    def read(data: bytes) -> object:
        asked = _request(data)
        require(asked["ask"] != "down", "a fuzzed request must not end the lab process")
        return json.dumps(service._reply(asked, []))

    yield read


class _LabStub(SimpleNamespace):
    """Stub of a live lab that resolves node names and refuses all other operations."""

    def __init__(self, topology: Any) -> None:
        super().__init__(topology=topology, dead=set(), faults=SimpleNamespace(active=[]))
        self.server, self.node, self.name = topology.server, topology.node, topology.name

    def __getattr__(self, name: str) -> Any:
        raise PillarboxError(f"the stub of a lab has no attribute {name}")


def server_request_corpus() -> tuple[bytes, ...]:
    return json_corpus({"ask": "state"}, {"ask": "paths", "to": 3}, [1], {"ask": "log"})


@contextmanager
def server_request_reader() -> Iterator[Callable[[bytes], object]]:
    """Yield a function that sends a fuzz input to the control socket of a server's forwarder."""
    from pillarbox.hosts.live.control import ControlSocket

    watched: dict[int, Callable[[], None]] = {}
    known = {"state": {"drops": {}}, "log": []}

    def answer(asked: dict[str, Any]) -> Any:
        what = asked.get("ask")
        return known.get(what) if isinstance(what, str) else None

    with TemporaryDirectory() as folder:
        path = Path(folder) / "sock"
        control = ControlSocket(path, answer, watched.__setitem__, watched.__delitem__)
        (listening,) = watched

        def read(data: bytes) -> object:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                watched[listening]()
                client.settimeout(0.0)
                try:
                    client.sendall(data[:60_000])
                    client.shutdown(socket.SHUT_WR)
                except OSError:  # the control socket's server has already closed the connection
                    pass
                while reading := next((one for one in watched if one != listening), None):
                    watched[reading]()
                return json.loads(client.recv(1 << 16) or b"{}")

        yield read
        control._socket.close()


def grading_answer_corpus() -> tuple[bytes, ...]:
    return json_corpus(
        {"number": 1, "answer": [1, 2]},
        {"number": 1, "error": "KeyError: 7 (line 12)", "printed": "first\nsecond"},
        {"number": 1, "answer": [[["deliver", "4500"]], 0.012]},
    )


def grading_errors() -> tuple[type[Exception], ...]:
    from pillarbox.experiments.apps.teaching.child import ChildKilled, StudentError

    return StudentError, ChildKilled


@contextmanager
def grading_answer_reader() -> Iterator[Callable[[bytes], object]]:
    """Yield a function by which the grader reads a fuzz input as a sealed child's answer."""
    from pillarbox.experiments.apps.teaching.child import SealedChild

    keeper: Any = SimpleNamespace(printed=[], waited_s=0.0, end=lambda _: 0)

    def read(data: bytes) -> object:
        ours, theirs = socket.socketpair()
        keeper.waited_s = 0.0
        with ours, theirs:
            theirs.sendall(data[:60_000] + b"\n")
            theirs.shutdown(socket.SHUT_WR)
            return SealedChild(keeper, os.getpid(), ours).ask({"call": "peers"})

    yield read


def machine_ready_corpus() -> tuple[bytes, ...]:
    return json_corpus(
        {"event": "ready", "address": "tls://10.0.0.2:8786"}, {"event": "no", "why": "x"}
    )


@contextmanager
def machine_ready_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.apps.cluster.dask_processes import address_in

    yield lambda data: address_in(data, lambda: "it left no message")
