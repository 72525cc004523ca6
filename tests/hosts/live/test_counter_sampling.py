"""When a server looks at its ports' counters: often under load, not at all at rest."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pillarbox.hosts.base.bandwidth import Bandwidth, Direction
from pillarbox.hosts.live.counter_sampling import (
    ATTENTIVE_S,
    IDLE,
    IDLE_LOOK_S,
    LOOK_S,
    CounterSchedule,
)

RATE_BPS = 1e6
PORTS = [(0, "eth0")]
STEP_S = LOOK_S / 16
LONG_S = 20 * IDLE_LOOK_S


class Server:
    """A server with one port, by which bytes come in, and the table that forwards them."""

    def __init__(self, *, can_rest: bool = True) -> None:
        self.now = 1000.0
        self._came = 0.0
        self._forwarded = self.read = 0
        self._rests = False
        self.bandwidth = Bandwidth(1, RATE_BPS)
        table = cast(Any, self)
        self.looks = CounterSchedule(
            *(self.bandwidth, self._bytes_of, table), can_rest=can_rest, clock=lambda: self.now
        )

    def forwarded_packets(self) -> int:
        return self._forwarded

    def set_rest(self, rests: bool) -> None:
        self._rests = rests

    def _bytes_of(self) -> dict[str, tuple[int, int]]:
        self.read += 1
        return {"eth0": (int(self._came), 0)}

    def run(self, length_s: float, bps: float = 0.0, *, forwards: bool = False) -> int:
        """Let time pass with so much coming in; return how often the counters were read."""
        before, end_s = self.read, self.now + length_s
        while self.now < end_s:
            self.now += STEP_S
            self._came += bps * STEP_S / 8
            self._forwarded += forwards
            if forwards and self._rests:
                self._rests = False
                self.looks.read_soon()  # as the bell has it
            if self.looks.next_s <= self.now:
                self.looks.read_counters(PORTS, self.now)
        return self.read - before

    @property
    def load_bps(self) -> float:
        return self.bandwidth.used_bps(0, Direction.IN)


@pytest.fixture
def server() -> Server:
    made = Server()
    made.run(1.0)
    return made


def test_at_rest_counters_are_not_read(server: Server) -> None:
    assert server.run(LONG_S) == 0


def test_who_is_not_told_looks_all_the_same() -> None:
    server = Server(can_rest=False)
    assert server.run(LONG_S) == pytest.approx(LONG_S / IDLE_LOOK_S, abs=1)
    server.run(IDLE_LOOK_S + 2 * LOOK_S, RATE_BPS / 2, forwards=True)
    assert server.load_bps > RATE_BPS / 8


@pytest.mark.parametrize("forwards", [False, True])
def test_load_ends_a_rest_at_once(server: Server, forwards: bool) -> None:
    server.run(LONG_S)
    if not forwards:
        server.looks.read_soon()
    server.run(2 * LOOK_S, RATE_BPS / 2, forwards=forwards)
    assert server.load_bps > RATE_BPS / 8
    assert server.run(10.0, RATE_BPS / 2, forwards=True) == pytest.approx(10.0 / LOOK_S, abs=2)
    assert server.load_bps == pytest.approx(RATE_BPS / 2, rel=0.01)
    server.run(LONG_S)
    assert server.run(LONG_S) == 0


def test_heartbeats_of_a_long_rest_are_no_load(server: Server) -> None:
    server.run(LONG_S, RATE_BPS * IDLE / 10)
    server.looks.read_soon()
    server.run(4 * LOOK_S, RATE_BPS * IDLE / 10)
    assert 0 < server.load_bps < RATE_BPS * IDLE


def test_a_trickle_costs_a_look_now_and_then(server: Server) -> None:
    server.run(1.0, forwards=True)
    assert server.run(LONG_S, forwards=True) == pytest.approx(LONG_S / IDLE_LOOK_S, abs=1)


def test_what_a_program_began_is_waited_for(server: Server) -> None:
    server.looks.read_often()
    assert server.run(ATTENTIVE_S) >= ATTENTIVE_S / LOOK_S - 2
    assert server.run(IDLE_LOOK_S) <= 2
