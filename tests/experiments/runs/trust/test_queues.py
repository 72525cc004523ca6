"""Work conservation, from looks at a queue that the test makes up."""

from __future__ import annotations

import pytest

from pillarbox.experiments.runs.trust import queues
from pillarbox.experiments.runs.trust.queues import Counted, PortUsage, QueueCounters, QueueSampler

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


# Each threshold with the last value that counts nothing and the first one that counts.
@pytest.mark.parametrize(
    ("looks", "step_s", "counts"), [(3, 0.1, False), (4, 0.025, True), (4, 0.024, False)]
)
def test_a_stretch_is_four_looks_and_75_ms(looks: int, step_s: float, counts: bool) -> None:
    account = looked([(n * step_s, n * 1000, ENOUGH) for n in range(looks)])
    assert (account.backlogged_s, account.backlogged_bytes) == (
        (pytest.approx((looks - 1) * step_s), (looks - 1) * 1000) if counts else (0.0, 0)
    )


def test_75_ms_are_enough_and_greedy_flows_are_the_default() -> None:
    account = PortUsage(ENOUGH)
    assert account.rate_bytes_s == 0
    sampler = QueueSampler([(object(), [7])], ENOUGH)  # type: ignore[list-item]
    assert sampler._places[0][1][7] == account
    for now in (0.0, 0.025, 0.05, 0.075):
        account.look(now, QueueCounters(0, 0, 0, ENOUGH))
    account.close()
    assert account.backlogged_s == 0.075


def test_a_stretch_is_counted_once() -> None:
    account = looked(steady(1.0, steps=11))
    account.close()
    assert (account.backlogged_s, account.backlogged_bytes) == (pytest.approx(0.2), 200_000)


def test_each_stretch_takes_four_looks_of_its_own() -> None:
    looks = [(n * 0.5, n * 1000, 0 if n == 4 else ENOUGH) for n in range(8)]
    account = looked(looks)  # four looks, an empty queue, three looks
    assert (account.backlogged_s, account.backlogged_bytes) == (1.5, 3000)


def test_a_port_that_had_just_enough_waiting_was_never_empty() -> None:
    looks = [(n * 0.25, n * 1000, 20_000) for n in range(5)]
    assert looked(looks, 80_000).backlogged_s == 1.0
    assert looked(looks, 80_001).backlogged_s == 0.0


def test_a_ratio_takes_200_ms() -> None:
    assert Counted(0, 0, 0, 0.2, 200_000).conserved(RATE_BPS) == 1.0
    assert Counted(0, 0, 0, 0.199, 200_000).conserved(RATE_BPS) is None


def test_accounts_are_differences_of_counters_that_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel: object = object()
    counters = [
        {7: QueueCounters(1000, 2**32 - 10, 2**32 - 1, 0), 9: QueueCounters(5, 5, 5, 0)},
        {7: QueueCounters(91_000, 50, 3, 0), 9: QueueCounters(5, 6, 8, 0)},
    ]
    waiting = iter(counters)
    monkeypatch.setattr(queues, "queues", lambda _: next(waiting))
    sampler = QueueSampler([(kernel, [7, 8, 9])], ENOUGH)  # type: ignore[list-item]
    sampler.look()
    sampler.look()
    assert sampler.looks == 2
    assert sampler.counted() == [Counted(90_000, 60, 4, 0.0, 0), None, Counted(0, 1, 3, 0.0, 0)]


def test_a_look_is_at_the_middle_of_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([n * 0.5 for n in range(20)])
    counters = ({7: QueueCounters(1000 * n, 0, 0, ENOUGH)} for n in range(10))
    monkeypatch.setattr(queues, "queues", lambda _: next(counters))
    monkeypatch.setattr(queues.time, "monotonic", lambda: next(moments))
    sampler = QueueSampler([(object(), [7])], ENOUGH)  # type: ignore[list-item]
    for _ in range(5):
        sampler.look()
    account = sampler._places[0][1][7]
    assert account._since == (0.25, 0)
    assert account._until == (4.25, 4000)
    assert sampler.counted() == [Counted(4000, 0, 0, 4.0, 4000, ENOUGH, ENOUGH)]


def test_queue_lengths_count_from_the_second_second_on() -> None:
    looks = [(n * 0.25, 0, 9000 if n < 4 else n) for n in range(104)]
    assert looked(looks[:4]).queue_bytes() == (None, None)
    assert looked(looks[:5]).queue_bytes() == (4, 4)
    # the 100 lengths from 4 to 103: by nearest rank, the 50th and the 99th
    assert looked(looks).queue_bytes() == (53, 102)
