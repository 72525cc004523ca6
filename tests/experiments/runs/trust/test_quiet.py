"""Waiting for a quiet machine, by counters that the test makes up."""

from __future__ import annotations

import pytest

from pillarbox.experiments.runs.trust.machine import Machine
from pillarbox.experiments.runs.trust.quiet import LOOK_S, MOST_WAIT_S, wait_until_quiet
from pillarbox.topos.base.errors import PillarboxError

TICKS = 1000  # of all processors between two looks


class Computer:
    """Processors that are busy for these shares of the time, one look after the other."""

    def __init__(self, *busy: float) -> None:
        self.busy, self.now_s, self.used, self.idle = list(busy), 0.0, 0, 0
        self.said: list[str] = []

    def look(self) -> Machine:
        return Machine(self.now_s, (self.used, 0, 0, self.idle, 0, 0, 0, 0), 0, None, 0)

    def sleep(self, seconds: float) -> None:
        share = self.busy.pop(0) if len(self.busy) > 1 else self.busy[0]
        self.now_s += seconds
        self.used += round(TICKS * share)
        self.idle += round(TICKS * (1 - share))

    def wait(self) -> float:
        wait_until_quiet(self.said.append, self.look, self.sleep)
        return self.now_s


def test_a_quiet_machine_is_waited_for_two_seconds() -> None:
    computer = Computer(0.10)
    assert computer.wait() == 4 * LOOK_S == 2.0
    assert computer.said == []


def test_a_busy_machine_is_waited_for_until_it_stays_quiet() -> None:
    computer = Computer(0.5, 0.11, 0.05, 0.05, 0.3, *[0.05] * 4)
    assert computer.wait() == 9 * LOOK_S
    assert computer.said == ["waiting for a quiet machine: programs take 50% of the processors"]


def test_the_wait_ends() -> None:
    computer = Computer(0.11)
    with pytest.raises(PillarboxError, match="not quiet within 10 minutes: programs take 11%"):
        computer.wait()
    assert computer.now_s == MOST_WAIT_S
    assert len(computer.said) == MOST_WAIT_S / 10


def test_the_wait_counts_from_its_begin() -> None:
    computer = Computer(0.5, *[0.05] * 4)
    computer.now_s = 1e6
    assert computer.wait() == 1e6 + 5 * LOOK_S
    assert len(computer.said) == 1
