"""Other sockets on which Pillarbox listens: metrics, and the clocks of machines."""

from __future__ import annotations

import socket
import threading
import urllib.request
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pillarbox.experiments.apps.cluster.clock import Clocks, ClockServer
from pillarbox.experiments.runs.control import prometheus
from pillarbox.experiments.runs.control.prometheus import MOST_CLIENTS, server_at

HERE = "127.0.0.1"


@pytest.mark.parametrize("text", [b"", b"GET /metrics HTTP/1.1\r\nHost: 127", b"\0\xff\r\n\r\n"])
def test_metrics_beside_clients_that_ask_for_nothing(
    text: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prometheus, "lab_metrics_text", lambda folder: "x" * (1 << 20))
    before = threading.active_count()
    with server_at(f"{HERE}:0", Path()) as server, ExitStack() as stack:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = HERE, server.server_address[1]
        for _ in range(4 * MOST_CLIENTS):
            client = stack.enter_context(socket.create_connection(where))
            client.sendall(text)
        with socket.create_connection(where) as early:
            early.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        address = f"http://{HERE}:{where[1]}{prometheus.PATH}"
        found = 0
        while not found or threading.active_count() - before > MOST_CLIENTS + 2:
            with urllib.request.urlopen(address, timeout=60) as answer:
                found = len(answer.read())
                assert found == 1 << 20
        server.shutdown()
    assert capfd.readouterr().err == ""


def test_a_clock_beside_datagrams_that_are_nonsense() -> None:
    with closing(Clocks(1)) as clocks:
        clocks.open(HERE)
        [clock] = clocks.clocks
        answering = ClockServer(HERE, clock.place)
        clock.connect(HERE, answering.port)
        for text in (b"", b"x", b"x" * 1000):  # both ends hear nonsense first
            clock._socket.send(text)
            answering._socket.send(text)
        answering.begin()
        assert clock.offset() is not None
