"""The set-up of iperf3's flows before their start, with sockets that the test makes up."""

from __future__ import annotations

import signal
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox.experiments.lab.traffic import iperf3_handshake
from pillarbox.experiments.lab.traffic.iperf3_handshake import (
    ESTABLISHED,
    LISTENING,
    MESSAGES,
    TcpSocket,
    advance,
    without_listener,
)
from pillarbox.experiments.lab.traffic.iperf3_session import FIRST_PORT, Iperf3Session
from pillarbox.experiments.models.workloads.flows import Flow, FlowResult

SERVER, CLIENT = 0, 1  # the flow's source runs iperf3's server
LINE = (
    "   1: 0200000A:1451 0300000A:9C40 01 00000000:00000025 00:00000000 00000000"
    "     0        0 4711 1 0000000000000000 20 4 30 10 -1"
)


class Process:
    """A process that notes its signals."""

    pid = 1

    def __init__(self, name: str, notes: list[tuple[str, int]]) -> None:
        self.name, self.notes = name, notes

    def poll(self) -> None:
        return None

    def send_signal(self, number: int) -> None:
        self.notes.append((self.name, number))


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[TcpSocket]]:
    """Sockets of each server, to be changed by the test."""
    found: dict[int, list[TcpSocket]] = {SERVER: [], CLIENT: []}
    monkeypatch.setattr(iperf3_handshake, "_sockets", lambda _lab, server: found[server])
    return found


def session(notes: list[tuple[str, int]]) -> Iperf3Session:
    flow = Flow(0, SERVER, CLIENT, volume_bytes=1)
    processes: Any = (Process("server", notes), Process("client", notes))
    output = (BytesIO(), BytesIO())
    return Iperf3Session(flow, FlowResult(flow, "iperf3"), *processes, *output)


def accepted(waiting: int, remote: int = 40000) -> TcpSocket:
    return TcpSocket(ESTABLISHED, FIRST_PORT, remote, waiting)


def connected(waiting: int) -> TcpSocket:
    return TcpSocket(ESTABLISHED, 40000, FIRST_PORT, waiting)


def test_a_line_of_the_kernel() -> None:
    assert TcpSocket.in_line(LINE) == (ESTABLISHED, 0x1451, 0x9C40, 0x25)


def test_client_and_server_speak_in_turns(sockets: dict[int, list[TcpSocket]]) -> None:
    notes: list[tuple[str, int]] = []
    one, lab = session(notes), SimpleNamespace()
    turns = [
        ([accepted(0)], [connected(0)], None),  # connected, but nothing sent yet
        ([accepted(37)], [connected(0)], "client"),
        ([accepted(0)], [connected(1)], "server"),
        ([accepted(200)], [connected(0)], "client"),
        ([accepted(0)], [connected(1)], "server"),
        # The second connection counts, and only when the cookie has arrived in it.
        ([accepted(37)], [connected(0)], None),
        ([accepted(0), accepted(0, 40001)], [connected(0)], None),
    ]
    for sockets[SERVER], sockets[CLIENT], spoke in turns:
        notes.clear()
        assert advance(lab, [one]) == [one]  # type: ignore[arg-type]
        other = {"client": "server", "server": "client"}.get(spoke or "")
        expected = [(spoke, signal.SIGSTOP), (other, signal.SIGCONT)] if spoke else []
        assert notes == expected
    notes.clear()
    sockets[SERVER] = [accepted(0), accepted(37, 40001)]
    assert advance(lab, [one]) == []  # type: ignore[arg-type]
    assert one.messages == MESSAGES
    assert notes == []  # the server is stopped already, and the client runs


def test_flows_that_have_failed_are_left_out(sockets: dict[int, list[TcpSocket]]) -> None:
    notes: list[tuple[str, int]] = []
    one = session(notes)
    one.fail("its server is dead")
    sockets[SERVER] = [accepted(37)]
    assert advance(SimpleNamespace(), [one]) == []  # type: ignore[arg-type]
    assert notes == []


@pytest.mark.parametrize(
    ("listener", "found"),
    [
        (TcpSocket(LISTENING, FIRST_PORT, 0, 0), False),
        (TcpSocket(LISTENING, FIRST_PORT + 1, 0, 0), True),
        (TcpSocket(ESTABLISHED, FIRST_PORT, 40000, 0), True),
    ],
)
def test_ports_without_a_listener(
    sockets: dict[int, list[TcpSocket]], listener: TcpSocket, found: bool
) -> None:
    one = session([])
    sockets[SERVER] = [listener]
    assert without_listener(SimpleNamespace(), [one]) == ([one] if found else [])  # type: ignore[arg-type]
