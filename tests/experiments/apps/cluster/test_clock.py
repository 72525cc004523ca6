"""Offsets of clocks by round trips, over the loopback interface; one is pushed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from pillarbox.experiments.apps.cluster.clock import Clocks, ClockServer, moved_s
from pillarbox.topos.base.errors import PillarboxError

HERE, PUSH_S = "127.0.0.1", 0.005
AWAY_S = 1000.0


@pytest.fixture
def clocks() -> Iterator[Clocks]:
    with closing(Clocks(2)) as made:
        made.open(HERE)
        for clock in made.clocks:
            answering = ClockServer(HERE, clock.place)
            answering.begin()
            clock.connect(HERE, answering.port)
        yield made


def test_moments_are_told_by_each_machines_clock(clocks: Clocks) -> None:
    clocks.clocks[1].now = lambda: time.monotonic() - AWAY_S
    found = clocks.measure()
    assert abs(found[0].ahead_s) <= found[0].error_s
    assert abs(found[1].ahead_s - AWAY_S) <= found[1].error_s
    assert clocks.machine_time_s(1, 5.0) == 5.0 + found[1].ahead_s
    assert clocks.lab_time_s(1, clocks.machine_time_s(1, 5.0)) == pytest.approx(5.0)


def test_a_clock_that_is_pushed_has_moved(clocks: Clocks) -> None:
    clocks.watch()
    clocks.clocks[0].now = lambda: time.monotonic() + PUSH_S
    seen = clocks.end_watch()
    doubt_s = seen[0][0].error_s + seen[0][-1].error_s
    assert moved_s(seen[0]) == pytest.approx(PUSH_S, abs=2 * doubt_s)
    assert moved_s(seen[1]) == 0


def test_a_machine_that_does_not_answer_has_no_time() -> None:
    with closing(Clocks(1)) as clocks:
        clocks.open(HERE)
        clocks.clocks[0].connect(HERE, 9)  # where nobody listens
        assert clocks.measure() == {}
        with pytest.raises(PillarboxError, match="clock of machine 0 does not answer"):
            clocks.machine_time_s(0, 1.0)
