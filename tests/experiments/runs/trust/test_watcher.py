"""The watcher's samples and reports, with a channel and clocks that the test makes up."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox.experiments.runs.trust import watcher
from pillarbox.experiments.runs.trust.machine import Machine
from pillarbox.experiments.runs.trust.watcher import Watcher, WatchReport

BEGIN_S, INTERVAL_S = 10.0, 0.125


class World:
    """Clock, channel, and counters of a watcher: orders arrive when due; samples take CPU time."""

    def __init__(self, *orders: tuple[float, Any]) -> None:
        self.now_s, self.cpu_s, self.look_cpu_s = BEGIN_S - 0.5, 5.0, 0.001
        self.orders, self.sent = list(orders), list[Any]()
        self.looks_s: list[float] = []
        self.ends: list[bool] = []

    # the channel
    def recv(self) -> Any:
        return self.orders.pop(0)[1]

    def send(self, report: Any) -> None:
        self.sent.append(report)

    def poll(self, timeout_s: float) -> bool:
        arrives = bool(self.orders) and self.orders[0][0] <= self.now_s + timeout_s
        self.now_s = max(self.now_s, self.orders[0][0]) if arrives else self.now_s + timeout_s
        return arrives

    # the canary
    def begin(self, begin_s: float) -> None:
        assert begin_s == BEGIN_S

    def heard(self, is_end: bool) -> str:
        self.ends.append(is_end)
        return "heard"

    # the queues
    def look(self) -> None:
        self.looks_s.append(self.now_s)
        self.cpu_s += self.look_cpu_s

    @property
    def looks(self) -> int:
        return len(self.looks_s)

    def counted(self) -> list[Any]:
        return [self.looks]

    # the machine
    def machine(self) -> Machine:
        drops = round(8 * (self.now_s - BEGIN_S))
        return Machine(self.now_s, (0,) * 8, 0, None, 3 + drops)


def watcher_in(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    clocks = {"monotonic": lambda: world.now_s, "process_time": lambda: world.cpu_s}
    monkeypatch.setattr(watcher, "time", SimpleNamespace(**clocks))
    monkeypatch.setattr(watcher, "QueueSampler", lambda *_: world)
    monkeypatch.setattr(watcher, "machine", world.machine)
    monkeypatch.setattr(watcher, "between", lambda first, last: last.at_s - first.at_s)
    monkeypatch.setattr(watcher, "dropped", lambda kernel, _: Counter({kernel: 4 + world.looks}))
    made: Any = Watcher.__new__(Watcher)
    made._channel = made._canary = world
    made._kernels, made._places, made._enough_bytes, made._rate_bytes_s = [("h0", "")], [], 0, 0.0
    made._limits = ()
    made.interval_s = INTERVAL_S
    return made


@pytest.mark.parametrize(
    ("look_cpu_s", "interval_s"),
    [(0.0001, 0.04), (0.0006, 0.04), (0.00075, 0.05), (0.0135, 0.9), (0.015, 1.0), (0.03, 1.0)],
)
def test_sampling_takes_at_most_one_and_a_half_percent_of_a_processor(
    look_cpu_s: float, interval_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    made = watcher_in(world, monkeypatch)

    def look() -> None:
        World.look(world)
        world.look_cpu_s = look_cpu_s

    world.look_cpu_s = 9.0  # with cold caches, which are not measured
    monkeypatch.setattr(world, "look", look)
    assert made._affordable_interval() == pytest.approx(interval_s)
    assert world.looks == 4


def test_reports_on_request_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World((0.0, BEGIN_S), (BEGIN_S + 0.3125, True), (BEGIN_S + 0.5625, None))
    made = watcher_in(world, monkeypatch)
    made.run()
    accepted, so_far, last = world.sent
    assert accepted is None
    # A sample each 125 ms, and one for each report.
    assert [at_s - BEGIN_S for at_s in world.looks_s] == [
        *(0, 0.125, 0.25, 0.3125),
        *(0.3125, 0.5, 0.5625),
    ]
    strays = {"h0": 4, "processors' own queues": 2}
    assert so_far == WatchReport(
        0.3125, 4, INTERVAL_S, [4], 0.3125, "heard", strays, pytest.approx(0.004 / 0.3125)
    )
    strays = {"h0": 7, "processors' own queues": 4}
    assert last == WatchReport(
        0.5625, 7, INTERVAL_S, [7], 0.5625, "heard", strays, pytest.approx(0.007 / 0.5625)
    )
    assert world.ends == [False, True]


def test_a_late_watcher_begins_a_new_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World((0.0, BEGIN_S), (BEGIN_S + 1.0, None))
    made = watcher_in(world, monkeypatch)

    def look() -> None:
        World.look(world)
        world.now_s += 0.5 if world.looks == 2 else 0.0  # the second sample takes long

    monkeypatch.setattr(world, "look", look)
    made.run()
    assert [at_s - BEGIN_S for at_s in world.looks_s] == [0, 0.125, 0.625, 0.75, 0.875, 1.0]


def test_a_canary_is_ordered_to_report_or_to_end() -> None:
    orders: list[Any] = []
    made: Any = watcher._CanaryProcess.__new__(watcher._CanaryProcess)
    made._channel = SimpleNamespace(send=orders.append, recv=lambda: "report")
    made.begin(7.0)
    assert [made.heard(False), made.heard(True)] == ["report", "report"]
    assert orders == [7.0, True, None]
