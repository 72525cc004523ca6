"""Window laws of the congestion controls, against their RFCs and papers, and a lab's eBPF code."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from pillarbox.experiments.cli.commands import simulate
from pillarbox.experiments.lab import controls as shipped
from pillarbox.experiments.lab.linux import congestion as of_labs
from pillarbox.experiments.models.packets import link_queues, packet_engine
from pillarbox.experiments.models.packets.congestion import (
    CONTROLS,
    CUBIC,
    DCTCP,
    DELAY,
    LEAST_WINDOW,
    LIA,
    RENO,
    SCALABLE,
    grow_window,
    holds_window,
    reduce_window,
)
from pillarbox.experiments.models.packets.controls import dctcp, delay, scalable
from pillarbox.experiments.models.packets.link_queues import enqueue_or_drop
from pillarbox.experiments.models.packets.packet_engine import _note_mark
from pillarbox.experiments.models.packets.sender import process_ack, process_timeout
from pillarbox.experiments.models.packets.state import (
    ACK,
    LOSS,
    NEVER,
    NONE,
    OPEN,
    RECOVERY,
    REDUCTION,
    TcpFlow,
)
from pillarbox.experiments.models.packets.windows import exchanges

NO_LIMIT = 1e9


def flow_of(control: int, **state: Any) -> Any:
    """Return a TCP flow in congestion avoidance whose window is full, with this state."""
    values = dict.fromkeys(TcpFlow.__annotations__, 0)
    values.update(control=control, doing=OPEN, full=True, epoch_s=NEVER, round_end=NONE)
    values.update(window=10.0, threshold=2.0, round_trip_s=0.1, cut_s=-NEVER, ever_s=NEVER)
    values.update(alpha=1.0, owes_notice=False)
    return SimpleNamespace(**(values | state))


def ack_of(number: int, **fields: Any) -> Any:
    """Return an ACK of all segments below `number`."""
    values: dict[str, Any] = {"number": number, "newest": number, "taken": number, "stamp_s": 0.0}
    values |= {"has_holes": False, "marked": False, "newest_s": 0.0}
    return SimpleNamespace(**(values | fields))


# -- names, and the constants of a lab's controls --------------------------------------------------


def source_of(name: str) -> str:
    return (Path(shipped.__file__).parent / f"{name}.bpf.c").read_text()


def constant_of(name: str, constant: str) -> int:
    (found,) = re.findall(rf"^#define {constant} +(\d+)\b", source_of(name), re.MULTILINE)
    return int(found)


def test_each_control_of_a_lab_is_simulated_and_can_be_chosen() -> None:
    assert {*of_labs.shipped()} < {*CONTROLS}
    assert sorted(simulate.CONTROLS) == sorted(CONTROLS)
    numbers = {"reno": RENO, "cubic": CUBIC, "dctcp": DCTCP, "delay": DELAY}
    numbers |= {"scalable": SCALABLE, "lia": LIA}
    assert numbers == {name: number for number, name in enumerate(CONTROLS)}


def test_simulated_controls_have_the_constants_of_a_lab() -> None:
    assert dctcp.GAIN == 2.0 ** -constant_of("dctcp", "SHIFT_G") == 1 / 16
    assert "->alpha = ONE;" in source_of("dctcp")
    assert dctcp.FIRST_ALPHA == 1
    assert constant_of("delay", "TARGET_US") == delay.TARGET_S * 1e6
    assert (constant_of("delay", "BETA"), constant_of("delay", "MOST")) == (delay.BETA, delay.MOST)
    assert constant_of("scalable", "LOWEST") == scalable.LOWEST
    assert constant_of("scalable", "PER_ACK") == scalable.PER_ACK
    assert f"return window - window / {scalable.CUT};" in source_of("scalable")


# -- DCTCP (RFC 8257) ------------------------------------------------------------------------------


@given(
    alpha=some.floats(0, 1),
    windows=some.lists(some.tuples(some.integers(1, 50), some.integers(0, 50)), min_size=1),
)
def test_alpha_is_a_moving_average_of_the_marked_share(
    alpha: float, windows: list[tuple[int, int]]
) -> None:
    # RFC 8257, section 3.3: DCTCP.Alpha = DCTCP.Alpha * (1 - g) + g * M, g = 1/16
    flow = flow_of(DCTCP, alpha=alpha)
    for plain, marked in windows:
        flow.next = flow.taken + plain + marked
        flow.window_end = flow.next
        for count, mark in ((marked, True), (plain, False)):
            if count:
                ack = ack_of(flow.taken + count, marked=mark)
                dctcp.update_alpha(flow, ack)
                flow.taken = ack.taken
        alpha = alpha * (1 - 1 / 16) + 1 / 16 * marked / (plain + marked)
        assert flow.alpha == pytest.approx(alpha)
        assert 0 <= flow.alpha <= 1
        assert (flow.observed, flow.marked, flow.window_end) == (0, 0, flow.next)


@pytest.mark.parametrize(("number", "is_over"), [(19, False), (20, True), (21, True)])
def test_alpha_changes_once_in_an_observation_window(number: int, is_over: bool) -> None:
    flow = flow_of(DCTCP, alpha=0.5, window_end=20, next=40, observed=3, marked=1, taken=17)
    dctcp.update_alpha(flow, ack_of(number, taken=18, marked=True))
    if is_over:
        assert flow.alpha == pytest.approx(0.5 * 15 / 16 + 2 / 4 / 16)
        assert (flow.window_end, flow.observed, flow.marked) == (40, 0, 0)
    else:
        assert (flow.alpha, flow.window_end, flow.observed, flow.marked) == (0.5, 20, 4, 2)


@pytest.mark.parametrize(
    ("window", "alpha", "left"),
    [
        (100.0, 1.0, 50.0),  # cwnd (1 - alpha / 2)
        (100.0, 0.5, 75.0),
        (100.0, 0.0, 100.0),
        (16.0, 1 / 8, 15.0),
        (16.0, 0.12, 16.0),  # less than a segment
        (16.9, 1 / 8, 15.0),  # Linux has whole segments
        (3.0, 1.0, LEAST_WINDOW),
    ],
)
def test_a_mark_takes_half_of_alpha_and_a_loss_half_of_the_window(
    window: float, alpha: float, left: float
) -> None:
    flow = flow_of(DCTCP, window=window, alpha=alpha)
    reduce_window(flow, True)
    assert flow.threshold == left
    reduce_window(flow, False)  # section 3.5
    assert flow.threshold == max(int(window) - int(window) // 2, LEAST_WINDOW)


def test_marks_reduce_a_window_once_in_a_window_of_data() -> None:
    flow = flow_of(DCTCP, window=20.0, alpha=0.5, sent=20, next=20, window_end=100)
    process_ack(flow, ack_of(2, marked=True), 0.1, NO_LIMIT)
    assert (flow.doing, flow.until, flow.threshold) == (REDUCTION, 20, 15)
    assert flow.owes_notice
    for acked in range(4, 21, 2):
        flow.sent = flow.next = 30
        process_ack(flow, ack_of(acked, marked=True), 0.1, NO_LIMIT)
        assert (flow.doing, flow.threshold) == (REDUCTION, 15)
    # The first segment sent after the reduction is acknowledged: the window may shrink again.
    process_ack(flow, ack_of(21), 0.1, NO_LIMIT)
    assert (flow.doing, flow.window) == (OPEN, pytest.approx(15 + 1 / 15))
    process_ack(flow, ack_of(22, marked=True), 0.1, NO_LIMIT)
    assert (flow.doing, flow.until, flow.threshold) == (REDUCTION, 30, 12)


def test_a_loss_in_a_reduced_window_is_repaired_without_another_reduction() -> None:
    flow = flow_of(CUBIC, window=20.0, sent=20, next=20)
    process_ack(flow, ack_of(2, marked=True), 0.1, NO_LIMIT)
    process_ack(flow, ack_of(4, newest=6, taken=5, has_holes=True), 0.1, NO_LIMIT)
    assert (flow.doing, flow.until, flow.threshold) == (RECOVERY, 20, pytest.approx(14))


@pytest.mark.parametrize("control", range(len(CONTROLS)))
def test_a_mark_is_answered_like_a_loss_but_nothing_is_sent_again(control: int) -> None:
    marked, lost = (flow_of(control, window=40.0, sent=40, next=40) for _ in range(2))
    process_ack(marked, ack_of(2, marked=True), 0.1, NO_LIMIT)
    process_ack(lost, ack_of(2, newest=3, taken=2, has_holes=True), 0.1, NO_LIMIT)
    assert (marked.doing, lost.doing) == (REDUCTION, RECOVERY)
    assert marked.threshold == lost.threshold < 40  # DCTCP's alpha is 1 at first
    assert lost.owes_notice is False


def test_a_timeout_halves_the_window_of_dctcp() -> None:
    flow = flow_of(DCTCP, window=40.0, alpha=0.1, sent=40, next=40)
    process_timeout(flow, 1.0)
    assert (flow.window, flow.threshold, flow.doing) == (1, 20, LOSS)
    process_ack(flow, ack_of(1, marked=True, stamp_s=2.0), 2.1, NO_LIMIT)
    assert flow.threshold == 20  # marks count while no loss is being repaired


# -- Scalable TCP (Kelly 2003) ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "acked", "grown"),
    [
        (200.0, 1, 200.01),  # a = 0.01 for each acknowledged segment
        (200.0, 100, 201.0),
        (100.0, 1, 100.01),
        (50.0, 1, 50.02),  # never less than Reno
        (16.9, 1, 16.9 + 1 / 16.9),
        (17.0, 1, 17 + 1 / 17),
        (10.0, 2, 10.2),
    ],
)
def test_scalable_grows_by_a_fixed_gain(window: float, acked: int, grown: float) -> None:
    flow = flow_of(SCALABLE, window=window)
    grow_window(flow, acked, 0.0, NO_LIMIT)
    assert flow.window == pytest.approx(grown)


@pytest.mark.parametrize(
    ("window", "left"),
    [(200.0, 175.0), (1000.0, 875.0), (17.0, 15.0), (16.0, 8.0), (16.9, 8.45), (3.0, 2.0)],
)
def test_a_loss_takes_an_eighth_of_a_scalable_window(window: float, left: float) -> None:
    flow = flow_of(SCALABLE, window=window)
    reduce_window(flow, False)  # b = 0.125; up to 16 segments as Reno
    assert flow.threshold == pytest.approx(left)


@given(window=some.integers(101, 100_000))
def test_recovery_of_a_scalable_window_takes_a_number_of_round_trips(window: int) -> None:
    # Kelly 2003: log(1 - b) / log(1 + a) round trips, whatever the window
    flow = flow_of(SCALABLE, window=float(window), threshold=0.0)
    reduce_window(flow, False)
    flow.window, trips = max(flow.threshold, 100.0), 0
    while flow.window < window:
        grow_window(flow, int(flow.window), 0.0, NO_LIMIT)
        trips += 1
    assert trips <= 15


# -- control by delay ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured_s", "held"), [(0.0139, False), (0.01399, False), (0.0141, True), (0.1, True)]
)
def test_a_window_grows_up_to_the_target_delay(measured_s: float, held: bool) -> None:
    flow = flow_of(DELAY, window=40.0, ever_s=0.010, sent=40, next=40)
    # The ACK was delayed: its timestamp is that of an older segment.
    process_ack(flow, ack_of(1, stamp_s=1.0, newest_s=2.0), 2.0 + measured_s, NO_LIMIT)
    assert flow.latest_s == pytest.approx(measured_s)
    assert flow.ever_s == 0.010
    assert (flow.window > 40) == (not held)


@pytest.mark.parametrize(
    ("latest_s", "left"),
    [
        (0.014, 100.0),
        (0.020, 76.0),  # 0.8 (20 - 14) / 20 = 24 %
        (0.0141, 100.0),  # less than a percent
        (0.0372, 50.0),  # 0.8 x 23.2 / 37.2 = 49.9 %: 49
        (1.0, 50.0),  # at most a half
    ],
)
def test_a_window_shrinks_in_proportion_to_the_excess(latest_s: float, left: float) -> None:
    flow = flow_of(DELAY, window=100.0, ever_s=0.010, latest_s=latest_s)
    assert holds_window(flow, 5.0) == (latest_s > 0.014)
    assert flow.window == pytest.approx(left, abs=1 if latest_s == 0.0372 else 1e-9)
    if flow.window < 100:
        assert flow.threshold == flow.window


@pytest.mark.parametrize(("later_s", "again"), [(0.0199, False), (0.0201, True)])
def test_a_window_shrinks_once_in_a_round_trip(later_s: float, again: bool) -> None:
    flow = flow_of(DELAY, window=100.0, ever_s=0.010, latest_s=0.020)
    assert holds_window(flow, 5.0)
    assert holds_window(flow, 5.0 + later_s)
    assert flow.window == (76 - 76 * 24 // 100 if again else 76)


def test_a_window_by_delay_has_two_segments_at_least() -> None:
    flow = flow_of(DELAY, window=3.0, ever_s=0.001, latest_s=1.0)
    assert holds_window(flow, 5.0)
    assert flow.window == LEAST_WINDOW
    assert holds_window(flow, 9.0)
    assert flow.window == LEAST_WINDOW


@pytest.mark.parametrize("control", [RENO, CUBIC, DCTCP, SCALABLE])
def test_other_controls_ignore_delay(control: int) -> None:
    flow = flow_of(control, ever_s=0.001, latest_s=1.0)
    assert not holds_window(flow, 5.0)
    assert flow.window == 10


# -- marks in queues, and their echo ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "capable", "marked"),
    [(1.9, True, False), (2.0, True, False), (2.1, True, True), (2.1, False, False)],
)
def test_a_queue_marks_what_arrives_above_its_threshold(
    waiting: float, capable: bool, marked: bool
) -> None:
    # The threshold is three packets' transmission time, the packet's own included.
    link = SimpleNamespace(
        turn_s=0.0, free_s=0.0, owed_s=0.0, limit_s=NEVER, waits=NONE, first=NONE, last=NONE,
        passed=0, dropped=0, delay_s=0.0, jitter_s=0.0, last_s=0.0, byte_s=1e-3, packet_s=0.0,
        mark_s=3.0, busy_s=5.0 + waiting,
    )  # fmt: skip
    packet = SimpleNamespace(flow=0, count=1, kind=ACK, marked=False, capable=capable, at=0)
    state = SimpleNamespace(
        packets=[packet], links=[link], frames=SimpleNamespace(overhead=1000), calendar=None,
        paths=[0], exchange=exchanges(1, 0, NEVER)[0],
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_queues, "add_link_event", lambda *_: None)
        enqueue_or_drop(state, 0, 5.0)  # type: ignore[arg-type]
    assert packet.marked is marked
    assert link.busy_s == pytest.approx(6.0 + waiting)


@pytest.mark.parametrize(
    ("control", "echoes", "marked", "reduced", "after", "answers"),
    [
        # RFC 3168, 6.1.3: until the sender has reduced its window
        (CUBIC, False, True, False, True, []),
        (CUBIC, True, False, False, True, []),
        (CUBIC, True, False, True, False, []),
        (CUBIC, True, True, True, True, []),
        (CUBIC, False, False, True, False, []),
        # RFC 8257, 3.2: an immediate ACK if DCTCP.CE changes, and one for the packets before
        (DCTCP, False, True, False, True, [False]),
        (DCTCP, True, False, False, False, [True]),
        (DCTCP, True, True, True, True, []),
        (DCTCP, False, False, False, False, []),
    ],
)
def test_receivers_echo_marks(
    control: int, echoes: bool, marked: bool, reduced: bool, after: bool, answers: list[bool]
) -> None:
    for unacked in (0, 1):
        flow = flow_of(control, echoes=echoes, unacked=unacked)
        sent: list[bool] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packet_engine, "_send_ack", lambda *_, f=flow, s=sent: s.append(f.echoes))
            state: Any = SimpleNamespace(flows=[flow])
            has_changed = _note_mark(state, 0, marked, reduced, 1.0)
        assert flow.echoes is after
        assert has_changed == bool(answers)
        assert sent == (answers if unacked else [])
