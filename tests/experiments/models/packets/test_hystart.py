"""When slow start ends before a loss (HyStart), and Linux' small queues: worked values."""

from __future__ import annotations

import pytest

from pillarbox.experiments.models.packets.congestion import CUBIC, RENO
from pillarbox.experiments.models.packets.controls import cubic
from pillarbox.experiments.models.packets.sender import most_segments_at_own_port, process_ack
from pillarbox.experiments.models.packets.state import NEVER, NONE
from tests.experiments.models.packets.senders import NO_LIMIT, ack_of, flow_of


@pytest.mark.parametrize(
    ("least_s", "rise_s"),
    [(0.080, 0.010), (0.008, 0.004), (0.032, 0.004), (0.400, 0.016), (0.120, 0.015)],
)
def test_slow_start_ends_if_nine_round_trips_are_longer(least_s: float, rise_s: float) -> None:
    for measured_s, count, ends in (
        (least_s + rise_s + 1e-6, 9, True),
        (least_s + rise_s + 1e-6, 8, False),
        (least_s + rise_s - 1e-6, 20, False),
    ):
        flow = flow_of(window=40.0, threshold=NEVER, ever_s=least_s, next=50, least_s=NEVER)
        flow.train_s = -1.0
        for _ in range(count):
            cubic.detect_queue(flow, measured_s, NONE, 0.0)
        assert (flow.threshold == 40) == ends
        # One short round trip in the round is enough to go on.
        flow.threshold, flow.samples, flow.least_s = NEVER, 0, NEVER
        cubic.detect_queue(flow, least_s, NONE, 0.0)
        for _ in range(10):
            cubic.detect_queue(flow, measured_s, NONE, 0.0)
        assert flow.threshold == NEVER


@pytest.mark.parametrize(
    ("lasts_s", "gap_s", "ends"),
    [(0.0104, 0.0018, False), (0.0108, 0.0018, True), (0.0108, 0.0021, False)],
)
def test_slow_start_ends_if_a_train_lasts_half_a_round_trip(
    lasts_s: float, gap_s: float, ends: bool
) -> None:
    # (20 + 1 ms) / 2 = 10.5 ms
    flow = flow_of(window=40.0, threshold=NEVER, ever_s=0.020, next=50, round_s=1.0)
    flow.train_s = 1.0 + lasts_s - gap_s
    cubic.detect_queue(flow, 0.020, NONE, 1.0 + lasts_s)
    assert flow.threshold == (40 if ends else NEVER)
    assert flow.train_s == pytest.approx(1.0 + lasts_s - (gap_s if gap_s > 0.002 else 0))


def test_slow_start_goes_on_at_its_limits() -> None:
    flow = flow_of(window=40.0, threshold=NEVER, ever_s=0.0625, samples=20, least_s=NEVER)
    flow.train_s = -1.0
    cubic.detect_queue(flow, 0.0625 + 0.0625 / 8, NONE, 0.0)
    assert flow.threshold == NEVER
    train = flow_of(window=40.0, threshold=NEVER, ever_s=0.003, least_s=NEVER)
    cubic.detect_queue(train, 0.003, NONE, (0.003 + 0.001) / 2)
    assert (train.threshold, train.train_s) == (NEVER, 0.002)  # a gap of 2 ms is within a train


def test_a_round_of_hystart_ends_with_the_segments_sent_before_it() -> None:
    flow = flow_of(threshold=NEVER, ever_s=0.1, next=50, round_end=20, samples=5, least_s=0.2)
    flow.round_s = flow.train_s = 1.0
    cubic.detect_queue(flow, 0.15, 20, 2.0)
    assert (flow.round_end, flow.round_s, flow.samples, flow.least_s) == (20, 1.0, 6, 0.15)
    cubic.detect_queue(flow, 0.17, 21, 2.0)
    assert (flow.round_end, flow.round_s, flow.train_s) == (50, 2.0, 2.0)
    assert (flow.samples, flow.least_s) == (1, 0.17)


@pytest.mark.parametrize(
    ("window", "threshold", "control", "counts"),
    [
        (16.0, NEVER, CUBIC, 1),
        (15.9, NEVER, CUBIC, 0),
        (16.0, 16.0, CUBIC, 0),
        (16.0, NEVER, RENO, 0),
    ],
)
def test_hystart_of_cubic_from_sixteen_segments_on(
    window: float, threshold: float, control: int, counts: int
) -> None:
    flow = flow_of(window=window, threshold=threshold, sent=30, next=30, round_end=50)
    flow.least_s, flow.control = NEVER, control
    process_ack(flow, ack_of(1), 0.1, NO_LIMIT)
    assert flow.samples == counts


@pytest.mark.parametrize(
    ("acked", "window", "threshold", "least", "own"),
    [
        (1, 400.0, NEVER, 2, 8.0),  # 1 ms x 2 windows per 100 ms
        (1, 400.0, 400.0, 2, 4.8),  # 1 ms x 1.2 windows per 100 ms
        (1, 40.0, NEVER, 2, 2.0),
        (0, 400.0, NEVER, 2, 2.0),
    ],
)
def test_data_that_waits_at_its_own_port(
    acked: int, window: float, threshold: float, least: int, own: float
) -> None:
    flow = flow_of(acked=acked, window=window, threshold=threshold)
    assert most_segments_at_own_port(flow, least) == pytest.approx(own)
