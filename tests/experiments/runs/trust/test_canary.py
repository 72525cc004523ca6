"""The canary's round trips and lateness, with a socket and a clock that the test makes up."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox.experiments.runs.trust import canary
from pillarbox.experiments.runs.trust.canary import Canary, CanaryReport
from pillarbox.experiments.runs.trust.readings import DurationStatistics

BEGIN_S, SOCKET, ORDERS = 10.0, 1, 2
PACING = DurationStatistics(7, 0.1, 0.2, 0.3)


class World:
    """Clock, echo socket and channel of a canary: orders arrive, and echoes return, when due.

    Parameters
    ----------
    end_s
        Time of the order to end.
    echo_s
        Function from a packet's number to its round-trip time in seconds; None for no echo.
    reports_s
        Times of requests for a report.
    pauses
        By packet number: time in seconds for which the program stands still after that packet.
    """

    def __init__(
        self,
        end_s: float,
        echo_s: Callable[[int], float | None],
        *,
        reports_s: Iterable[float] = (),
        pauses: dict[int, float] | None = None,
    ) -> None:
        self.now_s, self.echo_s, self.pauses = BEGIN_S - 0.5, echo_s, pauses or {}
        self.end_s = end_s
        self.orders: list[tuple[float, Any]] = [(at_s, True) for at_s in reports_s]
        self.orders.append((end_s, None))
        self.echoes: list[tuple[float, bytes]] = []
        self.sent: list[tuple[int, float]] = []
        self.reports: list[CanaryReport] = []
        self.socket = SimpleNamespace(fileno=lambda: SOCKET, send=self.send, recv=self.receive)
        self.channel: Any = SimpleNamespace(
            fileno=lambda: ORDERS, recv=lambda: self.orders.pop(0)[1], send=self.reports.append
        )

    def send(self, data: bytes) -> None:
        (number,) = struct.unpack("=Q", data)
        self.sent.append((number, self.now_s))
        takes_s = self.echo_s(number)
        if takes_s is not None:
            self.echoes = sorted([*self.echoes, (self.now_s + takes_s, data)])
        self.now_s += self.pauses.get(number, 0.0)

    def receive(self, most: int) -> bytes:
        assert self.echoes[0][0] <= self.now_s
        return self.echoes.pop(0)[1][:most]

    def readable(self, descriptors: Iterable[Any], timeout_s: float) -> list[int]:
        """Advance the clock to the first event of a descriptor, or by the timeout."""
        known = {one if isinstance(one, int) else one.fileno() for one in descriptors}
        events = {SOCKET: self.echoes[:1], ORDERS: self.orders[:1]}
        due = [(event[0], one) for one in known for event in events[one]]
        first_s = min([at_s for at_s, _ in due] + [self.now_s + timeout_s])
        self.now_s = max(self.now_s, first_s)
        return [one for at_s, one in due if at_s <= self.now_s]


def report_of(world: World, monkeypatch: pytest.MonkeyPatch) -> CanaryReport:
    """Return a canary's report on a trial that begins at BEGIN_S."""
    monkeypatch.setattr(canary, "readable", world.readable)
    monkeypatch.setattr(canary, "time", SimpleNamespace(monotonic=lambda: world.now_s))
    singer: Any = Canary.__new__(Canary)
    singer._socket, singer._due, singer._round_trips, singer._late = world.socket, {}, [], []
    spans: list[tuple[float, float]] = []
    singer._pacer = SimpleNamespace(
        tend=lambda: None, heard=lambda *span: (spans.append(span), (PACING, 3))[1]
    )
    found: CanaryReport = singer.sing(BEGIN_S, world.channel)
    assert [begin_s for begin_s, _ in spans] == [BEGIN_S] * len(spans)
    # The pacer's last packets may still be on their way.
    assert spans[-1][1] == pytest.approx(world.end_s - 0.05)
    return found


def test_a_packet_each_five_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(BEGIN_S + 0.0125, lambda number: 0.001 * number)
    report = report_of(world, monkeypatch)
    assert [number for number, _ in world.sent] == [1, 2, 3]
    assert [at_s for _, at_s in world.sent] == pytest.approx([10.0, 10.005, 10.010])
    assert report.round_trip == pytest.approx((3, 0.002, 0.003, 0.003))
    assert report.lateness == pytest.approx((3, 0.0, 0.0, 0.0), abs=1e-12)
    assert (report.lost, report.pacing, report.pacing_lost) == (0, PACING, 3)


def test_packets_missed_by_a_late_program_count_from_their_due_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The program stands still for 17 ms after packet 1: three packets are sent as one.
    world = World(BEGIN_S + 0.0195, lambda _: 0.001, pauses={1: 0.017})
    report = report_of(world, monkeypatch)
    assert [at_s for _, at_s in world.sent] == pytest.approx([10.0, 10.017])
    assert report.lateness == pytest.approx((4, 0.002, 0.012, 0.012), abs=1e-9)
    # The first echo waits for the program as well: 17 ms; the others took 13, 8 and 3 ms.
    assert report.round_trip == pytest.approx((4, 0.008, 0.017, 0.017))


@pytest.mark.parametrize(("last_s", "lost"), [(0.049, 0), (0.051, 1)])
def test_a_packet_is_lost_if_its_echo_is_fifty_milliseconds_late(
    last_s: float, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    echoes_s = {1: 0.001, 2: None, 3: 0.0005 + last_s}
    world = World(BEGIN_S + 0.0105, echoes_s.__getitem__)
    report = report_of(world, monkeypatch)
    assert report.lost == 1 + lost
    assert report.round_trip.times == 2 - lost


def test_a_report_on_request_counts_nothing_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(BEGIN_S + 0.0125, lambda _: 0.004, reports_s=[BEGIN_S + 0.0075])
    report = report_of(world, monkeypatch)
    [so_far] = world.reports
    assert (so_far.round_trip.times, so_far.lateness.times, so_far.lost) == (1, 2, 0)
    assert (report.round_trip.times, report.lateness.times, report.lost) == (3, 3, 0)


@pytest.mark.parametrize("answered", [1, 100, 101])
def test_a_cable_is_tried_a_hundred_times(answered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    waits_s: list[float] = []

    def readable(_: Any, wait_s: float) -> bool:
        waits_s.append(wait_s)
        return len(sent) == answered

    monkeypatch.setattr(canary, "readable", readable)
    singer: Any = Canary.__new__(Canary)
    singer._socket = SimpleNamespace(send=sent.append, recv=lambda _: b"")
    if answered <= 100:
        singer._wait_until_connected()
    else:
        with pytest.raises(OSError, match="carries no packets"):
            singer._wait_until_connected()
    assert len(sent) == min(answered, 100)
    assert sum(waits_s) == pytest.approx(0.05 * len(sent))


def test_an_echo_goes_to_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    received = [(b"12345678", "a"), (b"abcdefgh", "b")]
    sent: list[tuple[bytes, str]] = []
    listener: Any = SimpleNamespace(
        recvfrom=lambda _: received.pop(0), sendto=lambda *echo: sent.append(echo)
    )
    monkeypatch.setattr(canary, "take_role", lambda _: None)
    with pytest.raises(IndexError):  # no packet is left
        canary._serve_echo(listener)
    assert sent == [(b"12345678", "a"), (b"abcdefgh", "b")]
