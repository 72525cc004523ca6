"""The TCP sender against worked values of the RFCs that it follows."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from pillarbox.experiments.models.packets import sender
from pillarbox.experiments.models.packets.congestion import CUBIC, RENO, grow_window
from pillarbox.experiments.models.packets.controls import cubic
from pillarbox.experiments.models.packets.sender import (
    is_tail_loss_probe,
    next_segment_to_send,
    process_ack,
    process_timeout,
    timer_expiry_s,
)
from pillarbox.experiments.models.packets.state import (
    LOSS,
    NEVER,
    NOT_ARRIVED,
    OPEN,
    RECOVERY,
)
from tests.experiments.models.packets.senders import NO_LIMIT, ack_of, flow_of

# -- RFC 6298: retransmission timer --------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured_s", "smoothed_s", "deviation_s", "timeout_s"),
    [
        # SRTT = 7/8 x 100 + 1/8 x 180 ms, RTTVAR = 3/4 x 50 + 1/4 x |100 - 180| ms
        (0.180, 0.110, 0.0575, 0.110 + 4 * 0.0575),
        (0.020, 0.090, 0.0575, 0.090 + 4 * 0.0575),
        (0.100, 0.100, 0.0375, 0.100 + 0.2),  # Linux' minimum, above 4 x RTTVAR
    ],
)
def test_smoothed_round_trip_and_timeout(
    measured_s: float, smoothed_s: float, deviation_s: float, timeout_s: float
) -> None:
    flow = flow_of(sent=10, next=10)
    process_ack(flow, ack_of(1, stamp_s=5.0), 5.0 + measured_s, NO_LIMIT)
    assert flow.round_trip_s == pytest.approx(smoothed_s)
    assert flow.deviation_s == pytest.approx(deviation_s)
    assert flow.ever_s == pytest.approx(measured_s)
    flow.doing = RECOVERY
    assert timer_expiry_s(flow, 7.0) == pytest.approx(7.0 + timeout_s)


def test_an_ack_without_news_is_no_sample_but_one_of_a_later_segment_is() -> None:
    flow = flow_of(sent=10, next=10, acked=3, newest=5, taken=4, doing=RECOVERY, until=10)
    flow.begun_window = 10.0
    process_ack(flow, ack_of(3, 5, taken=4), 0.9, NO_LIMIT)
    assert flow.round_trip_s == 0.1
    process_ack(flow, ack_of(3, 6, taken=5), 0.9, NO_LIMIT)
    assert flow.round_trip_s == pytest.approx(0.2)
    assert (flow.newest, flow.taken, flow.acked) == (6, 5, 3)
    process_ack(flow, ack_of(4, 6, taken=5), 0.2, NO_LIMIT)  # progress alone is news
    assert flow.round_trip_s == pytest.approx(0.2)
    process_ack(flow, ack_of(5, 6, taken=5), 1.0, NO_LIMIT)
    assert flow.round_trip_s == pytest.approx(0.3)


def test_each_timeout_doubles_the_next_one() -> None:
    flow = flow_of(sent=10, next=10)
    assert sender.MOST_TIMEOUT_S == 120
    flow.probed = True
    waits_s = [timer_expiry_s(flow, 0.0)]
    for _ in range(12):
        process_timeout(flow, 0.0)
        waits_s.append(timer_expiry_s(flow, 0.0))
    assert waits_s == pytest.approx([min(0.3 * 2**n, 120) for n in range(13)])
    assert (flow.timeouts, flow.doublings) == (12, 10)
    process_ack(flow, ack_of(1, 10, stamp_s=1.0), 1.1, NO_LIMIT)
    assert flow.doublings == 0


def test_at_most_ten_doublings() -> None:
    flow = flow_of(round_trip_s=0.0, deviation_s=0.0, sent=1, next=1, doing=LOSS, doublings=9)
    assert timer_expiry_s(flow, 0.0) == pytest.approx(0.2 * 512)
    process_timeout(flow, 0.0)
    process_timeout(flow, 0.0)
    assert flow.doublings == 10


def test_no_timer_without_data_in_flight() -> None:
    assert timer_expiry_s(flow_of(sent=10, next=10, acked=10), 1.0) == NEVER


# -- RFC 8985, section 7: tail loss probe ---------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "wait_s"),
    [
        ({"newest": 8}, 2 * 0.1 + 0.002),
        ({"newest": 9}, 0.3),  # one segment in flight: its ACK may be delayed; the RTO is sooner
        ({"newest": 9, "deviation_s": 0.2}, 2 * 0.1 + 0.2),
        ({"newest": 8, "probed": True}, 0.3),
        ({"newest": 8, "doing": RECOVERY}, 0.3),
        ({"newest": 8, "doing": LOSS}, 0.3),
    ],
)
def test_probe_is_sent_after_two_round_trips(state: dict[str, Any], wait_s: float) -> None:
    flow = flow_of(sent=10, next=10, acked=8, **state)
    assert timer_expiry_s(flow, 3.0) == pytest.approx(3.0 + wait_s)
    assert is_tail_loss_probe(flow) == (flow.doing == OPEN and not flow.probed)


def test_progress_allows_another_probe() -> None:
    flow = flow_of(sent=10, next=10, probed=True)
    process_ack(flow, ack_of(0, 1, taken=1), 0.1, NO_LIMIT)
    assert flow.probed
    process_ack(flow, ack_of(1), 0.1, NO_LIMIT)
    assert not flow.probed


# -- RFC 5681, RFC 6928: slow start and Reno ------------------------------------------------------


def test_first_window_is_ten_segments() -> None:
    assert sender.FIRST_WINDOW == 10


@pytest.mark.parametrize(
    ("window", "threshold", "acked", "grown"),
    [
        (10.0, NEVER, 2, 12.0),
        (10.0, 11.0, 2, 11.0),
        (10.0, 10.0, 2, 10.2),
        (20.0, 10.0, 1, 20.05),
    ],
)
def test_slow_start_and_congestion_avoidance_of_reno(
    window: float, threshold: float, acked: int, grown: float
) -> None:
    flow = flow_of(control=RENO, window=window, threshold=threshold, sent=40, next=40)
    process_ack(flow, ack_of(acked), 0.1, NO_LIMIT)
    assert flow.window == pytest.approx(grown)
    flow = flow_of(control=RENO, window=window, threshold=threshold, sent=40, next=40)
    process_ack(flow, ack_of(acked), 0.1, window)  # the receiver's window
    assert flow.window == window


@pytest.mark.parametrize(
    ("sent", "threshold", "grows"),
    [(6, NEVER, True), (5, NEVER, False), (6, 10.0, False)],
)
def test_a_window_half_in_flight_grows_in_slow_start_only(
    sent: int, threshold: float, grows: bool
) -> None:
    flow = flow_of(control=RENO, full=False, threshold=threshold, sent=sent, next=sent)
    process_ack(flow, ack_of(2), 0.1, NO_LIMIT)
    assert (flow.window > 10) == grows


@pytest.mark.parametrize(
    ("control", "window", "most", "threshold", "new_most"),
    [
        (RENO, 100.0, 0.0, 50.0, 0.0),
        (CUBIC, 100.0, 0.0, 70.0, 100.0),
        (CUBIC, 100.0, 100.0, 70.0, 100.0),
        (CUBIC, 80.0, 100.0, 56.0, 68.0),  # fast convergence: 80 x (1 + 0.7) / 2
        (CUBIC, 2.0, 0.0, 2.0, 2.0),  # never below two segments
        (RENO, 3.0, 0.0, 2.0, 0.0),
    ],
)
def test_a_loss_leaves_beta_of_the_window(
    control: int, window: float, most: float, threshold: float, new_most: float
) -> None:
    flow = flow_of(control=control, window=window, most=most, epoch_s=1.0)
    flow.threshold, flow.sent, flow.next = NEVER, 100, 90
    process_ack(flow, ack_of(0, 2, taken=1, has_holes=True), 0.1, NO_LIMIT)
    assert (flow.threshold, flow.most) == (pytest.approx(threshold), pytest.approx(new_most))
    assert (flow.doing, flow.until) == (RECOVERY, 90)
    assert flow.epoch_s == (NEVER if control == CUBIC else 1.0)
    assert (flow.begun_sent, flow.begun_taken, flow.begun_window) == (100, 0, window)


# -- RFC 9438: CUBIC ------------------------------------------------------------------------------

# W_max = 100, beta = 0.7, C = 0.4: K = cbrt(100 x 0.3 / 0.4) s, W(t) = 0.4 (t - K)^3 + 100
K_S = 4.217163326508746
WINDOWS = {
    0.0: 70.0,
    1.0: 86.68076,
    2.0: 95.64034,
    3.0: 99.27872,
    K_S: 100.0,
    5.0: 100.19190,
    7.0: 108.62032,
}


def test_cubic_constants() -> None:
    assert (cubic.CUBIC_SCALE, cubic.CUBIC_LEFT) == (0.4, 0.7)
    assert pytest.approx(9 / 17) == cubic.CUBIC_RENO  # alpha = 3 (1 - beta) / (1 + beta)


@pytest.mark.parametrize("at_s", WINDOWS)
def test_cubic_window_follows_w_of_t(at_s: float) -> None:
    round_trip_s = 0.2
    flow = flow_of(window=70.0, threshold=70.0, most=100.0, round_trip_s=round_trip_s)
    grow_window(flow, 0, 10.0, NO_LIMIT)  # growth begins at 10 s
    assert (flow.rise_s, flow.epoch_s) == (pytest.approx(K_S), 10.0)
    assert (flow.most, flow.reno, flow.window) == (100.0, 70.0, 70.0)
    # A window of ACKs raises the window to W(t + RTT).
    segments = flow.window = max(int(WINDOWS[at_s] * 0.99), 70)
    grow_window(flow, segments, 10.0 + at_s - round_trip_s, NO_LIMIT)
    assert flow.reno == pytest.approx(70 + 9 / 17)
    assert flow.window == pytest.approx(max(WINDOWS[at_s], flow.reno), rel=1e-6)


def test_cubic_grows_by_its_share_of_the_difference_per_ack() -> None:
    flow = flow_of(window=70.0, most=100.0, round_trip_s=1.0, epoch_s=0.0, rise_s=K_S)
    grow_window(flow, 7, 0.0, NO_LIMIT)
    assert flow.window == pytest.approx(70 + 7 / 70 * (86.68076 - 70), rel=1e-5)


def test_cubic_is_as_fast_as_reno_where_reno_is_faster() -> None:
    flow = flow_of(window=7.0, most=10.0, round_trip_s=0.001)
    for step in range(10):
        grow_window(flow, 0, 0.0, NO_LIMIT)
        flow.reno, expected = flow.window, flow.window + 9 / 17
        grow_window(flow, flow.window, step * 0.001, NO_LIMIT)
        assert flow.window == pytest.approx(expected)


def test_cubic_grows_by_half_a_window_per_round_trip_and_never_shrinks() -> None:
    late = flow_of(window=10.0, most=10.0, epoch_s=0.0)
    grow_window(late, 10, 100.0, NO_LIMIT)
    assert late.window == 15
    early = flow_of(window=90.0, most=100.0, epoch_s=0.0, rise_s=K_S)  # W(0.1) < 90
    grow_window(early, 90, 0.0, NO_LIMIT)
    assert early.window == 90


def test_cubic_begins_at_its_window_if_that_is_above_the_last_maximum() -> None:
    flow = flow_of(window=120.0, most=100.0, round_trip_s=0.0)
    grow_window(flow, 0, 5.0, NO_LIMIT)
    assert (flow.most, flow.rise_s, flow.window) == (120.0, 0.0, 120.0)
    grow_window(flow, 120, 7.0, NO_LIMIT)
    assert flow.window == pytest.approx(120 + 0.4 * 2**3)


# -- RFC 6937: proportional rate reduction --------------------------------------------------------


def test_proportional_rate_reduction_sends_on_every_other_ack() -> None:
    # RFC 6937, section 4: 20 segments in flight, the first is lost, and ssthresh is 10.
    flow = flow_of(control=RENO, window=20.0, threshold=NEVER, sent=20, next=20)
    sent = []
    for arrived in range(1, 20):
        ack = ack_of(0, arrived + 1, taken=arrived, has_holes=True)
        process_ack(flow, ack, 0.1, NO_LIMIT)
        allowed = int(flow.window - (flow.sent - flow.newest))
        sent.append(allowed)
        flow.sent += allowed
    # From the 17th ACK on ten are in flight: each arrival is replaced by one segment.
    assert sent == [1, 0] * 8 + [0, 1, 1]
    assert flow.sent - flow.newest == flow.threshold == 10
    process_ack(flow, ack_of(20, 21, taken=20), 0.1, NO_LIMIT)
    assert (flow.doing, flow.window) == (OPEN, pytest.approx(10 + 20 / 10))


@pytest.mark.parametrize(
    ("state", "ack", "allowed"),
    [
        # Below ssthresh: as many as arrived, one more if the ACK advances, up to ssthresh.
        ({"newest": 92}, ack_of(0, 94, taken=2), 2),
        ({"newest": 92}, ack_of(1, 94, taken=2), 3),
        ({"newest": 92}, ack_of(1, 95, taken=2), 2),  # it reports another loss
        ({"newest": 88}, ack_of(1, 90, taken=2), 3),
        ({"newest": 86}, ack_of(1, 87, taken=1), 1),
        ({"newest": 92, "begun_sent": 95}, ack_of(0, 94, taken=2), 2),  # at least the new ones
        ({"newest": 92, "begun_sent": 97, "taken": 4}, ack_of(0, 94, taken=6), 3),
        # Above ssthresh: ceil(delivered x 14 / 20) - sent, at least one at first, then none.
        ({"newest": 70}, ack_of(0, 71, taken=1), 1),
        ({"newest": 70, "taken": 5}, ack_of(0, 71, taken=6), 5),
        ({"newest": 70, "begun_sent": 98, "taken": 5}, ack_of(0, 71, taken=6), 3),
        ({"newest": 70, "begun_taken": 5, "taken": 5}, ack_of(0, 71, taken=6), 1),
        ({"newest": 70, "begun_sent": 90}, ack_of(0, 71, taken=1), 0),
        ({"newest": 85}, ack_of(0, 86, taken=1), 0 + 1),
    ],
)
def test_segments_that_recovery_allows(state: dict[str, Any], ack: Any, allowed: int) -> None:
    flow = flow_of(
        **{"doing": RECOVERY, "until": 100, "sent": 100, "next": 100, "window": 20.0}
        | {"threshold": 14.0, "begun_sent": 100, "begun_window": 20.0}
        | state
    )
    process_ack(flow, ack, 0.1, NO_LIMIT)
    assert flow.window == flow.sent - flow.newest + allowed


def test_an_ack_that_reports_no_arrival_leaves_the_window() -> None:
    flow = flow_of(doing=RECOVERY, until=90, sent=99, next=99, newest=50, window=33.0)
    process_ack(flow, ack_of(0, 51, taken=0), 0.1, NO_LIMIT)
    assert flow.window == 33


def test_growth_begins_with_progress_only() -> None:
    for doing in (OPEN, LOSS):
        flow = flow_of(doing=doing, until=20, sent=20, next=20, window=33.0)
        process_ack(flow, ack_of(0, 1), 0.1, NO_LIMIT)
        assert (flow.epoch_s, flow.window) == (NEVER, 33)
    flow = flow_of(doing=RECOVERY, until=20, sent=20, next=20, window=33.0, taken=5)
    process_ack(flow, ack_of(5), 0.1, NO_LIMIT)
    assert flow.window == 33


@pytest.mark.parametrize("acked", [19, 20])
def test_recovery_ends_where_it_was_to_end(acked: int) -> None:
    for doing in (RECOVERY, LOSS):
        flow = flow_of(doing=doing, until=20, sent=30, next=30, window=5.0, threshold=4.0)
        flow.begun_window, flow.full = 8.0, False
        process_ack(flow, ack_of(acked), 0.1, NO_LIMIT)
        assert flow.doing == (OPEN if acked == 20 else doing)
        if acked == 20:
            assert flow.window == (4 if doing == RECOVERY else 5)


# -- timeouts, and RFC 3522 (Eifel) --------------------------------------------------------------


def test_timeout_loses_what_is_in_flight_and_reduces_once() -> None:
    flow = flow_of(window=100.0, threshold=NEVER, sent=70, next=60, acked=10, repairs=30, newest=40)
    process_timeout(flow, 4.0)
    assert (flow.window, flow.threshold, flow.doing) == (1.0, pytest.approx(70.0), LOSS)
    assert (flow.newest, flow.repairs, flow.until) == (70, 10, 60)
    assert (flow.undo_s, flow.undo_window, flow.undo_threshold) == (4.0, 100.0, NEVER)
    process_timeout(flow, 5.0)
    assert (flow.threshold, flow.undo_s, flow.timeouts) == (pytest.approx(70.0), 4.0, 2)
    reno = flow_of(control=RENO, window=100.0)
    process_timeout(reno, 4.0)
    assert reno.threshold == 50


@pytest.mark.parametrize(
    ("stamp_s", "number", "doing", "is_undone"),
    [
        (3.9, 11, LOSS, True),
        (4.0, 11, LOSS, False),
        (3.9, 10, LOSS, False),
        (3.9, 11, RECOVERY, False),
    ],
)
def test_a_spurious_timeout_is_undone(
    stamp_s: float, number: int, doing: int, is_undone: bool
) -> None:
    flow = flow_of(window=100.0, threshold=90.0, sent=70, next=60, acked=10, full=False)
    process_timeout(flow, 4.0)
    flow.doing, flow.begun_window = doing, 100.0
    process_ack(flow, ack_of(number, 70, stamp_s=stamp_s, taken=0), 4.1, NO_LIMIT)
    assert (flow.doing == OPEN) == is_undone
    assert (flow.window, flow.threshold) == ((100, 90) if is_undone else (flow.window, 70))
    assert is_undone or flow.window < 10


def test_the_next_lost_segment() -> None:
    arrived, sent_as = numpy.full(30, NOT_ARRIVED), numpy.arange(-10, 20)
    flow = flow_of(doing=RECOVERY, segment=10, next=8, newest=6, reported=6, repairs=1)
    arrived[11], sent_as[12] = 1, 9
    assert next_segment_to_send(flow, arrived, sent_as) == flow.repairs == 3
    flow.repairs = 4
    assert next_segment_to_send(flow, arrived, sent_as) == 4
    flow.repairs = 2
    assert next_segment_to_send(flow, arrived, sent_as) == 3
    flow.repairs = 6
    assert next_segment_to_send(flow, arrived, sent_as) == 6  # the newest transmission itself
    flow.newest, flow.repairs = 3, 4
    assert (
        next_segment_to_send(flow, arrived, sent_as) == flow.repairs == 8
    )  # the others may be in flight
    flow.newest, flow.doing, flow.repairs = 6, OPEN, 1
    assert next_segment_to_send(flow, arrived, sent_as) == 8
    assert flow.repairs == 1


@pytest.mark.parametrize(("reported", "segment"), [(8, 5), (9, 6)])
def test_after_a_timeout_the_sender_knows_only_arrivals_that_an_ack_has_reported(
    reported: int, segment: int
) -> None:
    arrived_as, sent_as = numpy.full(10, NOT_ARRIVED), numpy.arange(10)
    arrived_as[5] = 9
    flow = flow_of(doing=LOSS, segment=0, next=10, newest=10, reported=reported, repairs=5)
    assert next_segment_to_send(flow, arrived_as, sent_as) == segment


def test_a_search_begins_at_the_first_missing_segment() -> None:
    flow = flow_of(doing=LOSS, until=30, sent=40, next=40, repairs=20)
    process_ack(flow, ack_of(7), 0.1, NO_LIMIT)
    assert flow.repairs == flow.acked == 7
