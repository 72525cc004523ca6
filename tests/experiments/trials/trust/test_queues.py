"""Work conservation, from looks at a queue that the test makes up."""

from __future__ import annotations

import pytest

from experiments.trials.trust.queues import Counted, PortUsage, QueueCounters

RATE_BPS = 8e6  # a byte each microsecond
ENOUGH = 6000
STEP_S = 0.02


def looked(looks: list[tuple[float, int, int]], rate_bytes_s: float = 0.0) -> PortUsage:
    """Return the account of looks: moment, bytes sent, bytes waiting."""
    account = PortUsage(ENOUGH, rate_bytes_s)
    for now, sent, waiting in looks:
        account.look(now, QueueCounters(sent, 0, 0, waiting))
    account.close()
    return account


def conserved(account: PortUsage) -> float | None:
    counted = Counted(0, 0, 0, account.backlogged_s, account.backlogged_bytes)
    return counted.conserved(RATE_BPS)


def steady(share: float, waiting: int = 50_000, steps: int = 50) -> list[tuple[float, int, int]]:
    """Return the looks at a port that sends that share of what it could."""
    return [(n * STEP_S, int(n * STEP_S * share * 1e6), waiting) for n in range(steps)]


@pytest.mark.parametrize("share", [1.0, 0.9, 0.5])
def test_a_port_with_packets_waiting_owes_its_rate(share: float) -> None:
    assert conserved(looked(steady(share))) == pytest.approx(share, rel=1e-3)


def test_a_port_with_little_waiting_owes_nothing() -> None:
    assert conserved(looked(steady(0.5, waiting=ENOUGH - 1))) is None


def test_time_in_which_nothing_waits_does_not_count() -> None:
    idle = [(1.0 + n * STEP_S, 1_000_000, 0) for n in range(50)]
    account = looked(steady(1.0, steps=51) + idle)
    assert account.backlogged_s == pytest.approx(1.0)
    assert conserved(account) == pytest.approx(1.0)


def test_bursts_that_chance_shows_twice_are_no_backlog() -> None:
    # Half of the rate; at the second and third look of five, some wait.
    looks = [
        (n * STEP_S, int(n * STEP_S * 5e5), 20_000 if n % 5 in (1, 2) else 0) for n in range(200)
    ]
    assert conserved(looked(looks)) is None


def test_flows_that_come_and_go_may_leave_a_port_empty_between_two_looks() -> None:
    lasting = int(STEP_S * RATE_BPS / 8)
    looks = steady(0.5, waiting=lasting - 1)
    assert conserved(looked(looks)) == pytest.approx(0.5, rel=1e-3)
    assert conserved(looked(looks, RATE_BPS / 8)) is None
    looks = steady(0.5, waiting=lasting + 1)
    assert conserved(looked(looks, RATE_BPS / 8)) == pytest.approx(0.5, rel=1e-3)


def test_a_short_backlog_says_nothing() -> None:
    assert conserved(looked(steady(0.5, steps=6))) is None


def test_a_stretch_ends_where_the_queue_was_emptied() -> None:
    looks = steady(1.0, steps=30)
    pause = [(0.6, 580_000, 0)]
    after = [(1.0 + n * STEP_S, 600_000 + n * 20_000, 50_000) for n in range(30)]
    assert conserved(looked(looks + pause + after)) == pytest.approx(1.0)
