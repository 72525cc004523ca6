"""Lab 11: thresholds at both sides, judgements of measurements, and the score."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.experiments.apps.teaching.grading_engine import WHOLE, Mark, mark_of_check
from pillarbox.experiments.apps.teaching.labs import lab11
from pillarbox.experiments.apps.teaching.labs.control_runs import (
    INTERVAL_S,
    SETTLED_S,
    ControlMeasurements,
    FlowMeasurement,
    SharedCable,
    flow_measurement,
)
from pillarbox.experiments.apps.teaching.labs.lab11 import ControlWork
from pillarbox.experiments.base.files import SHEETS
from pillarbox.experiments.models.workloads.flows import COMPLETED, Flow, FlowResult, Interval

CABLE, HIDDEN = SharedCable(20, 1.0), SharedCable(10, 2.5)  # 8 and 20 ms without a queue
RENO, HIDDEN_RENO = FlowMeasurement(19e6, 58.0), FlowMeasurement(9.5e6, 120.0)
HALF = FlowMeasurement(9.5e6, 58.0)
NOTHING = FlowMeasurement(0.0, 0.0)
TINY = 1e-6
# Points of Reno itself: all but those for a short queue.
POINTS_OF_RENO = [15, 0, 15, 15, 5, 10]


def work(**flows: FlowMeasurement) -> ControlWork:
    """Return Reno's own measurements, with other ones of some flows."""
    reno = ControlMeasurements(RENO, RENO, HALF, HALF, HALF, HALF, HIDDEN_RENO, HIDDEN_RENO)
    return ControlWork(reno._replace(**flows), CABLE, HIDDEN)


def marks(found: ControlWork) -> list[Mark]:
    return [mark_of_check(check, found)[0] for check in lab11.CHECKS]


def test_reno_gets_all_points_but_those_of_the_queue() -> None:
    assert [mark.got for mark in marks(work())] == POINTS_OF_RENO
    assert work().score == pytest.approx(1.0)


def test_a_good_control_gets_all_points_and_a_high_score() -> None:
    good = work(alone=FlowMeasurement(18.9e6, 12.0), hidden=FlowMeasurement(9.4e6, 24.0))
    assert sum(mark.got for mark in marks(good)) == WHOLE
    assert 4 < good.score < 5


def test_a_control_that_sends_nothing_gets_nothing() -> None:
    names = ("alone", "first", "second", "against", "against_reno", "hidden")
    silent = work(**dict.fromkeys(names, NOTHING))
    assert [mark.got for mark in marks(silent)] == [0] * len(lab11.CHECKS)
    assert "no byte arrived" in marks(silent)[0].why
    assert silent.score == 0.0


def test_a_control_that_starves_reno_is_told() -> None:
    greedy = work(against=FlowMeasurement(18e6, 58.0), against_reno=FlowMeasurement(1e6, 58.0))
    found = marks(greedy)[3]
    assert found.got == 0.0
    assert "it starves Reno: Reno has 1.0 Mbit/s, yours 18.0 Mbit/s" in found.why
    assert greedy.score < 0.15


@pytest.mark.parametrize(("least", "share"), lab11.GOODPUT)
def test_thresholds_of_the_goodput(least: float, share: float) -> None:
    reached, missed = (
        lab11.judged_goodput(RENO._replace(goodput_bps=RENO.goodput_bps * ratio), RENO).share
        for ratio in (least + TINY, least - TINY)
    )
    assert (reached, missed < share) == (share, True)


@pytest.mark.parametrize(("most", "share"), lab11.QUEUE)
def test_thresholds_of_the_queue(most: float, share: float) -> None:
    queue_ms = RENO.round_trip_ms - CABLE.empty_ms
    reached, missed = (
        lab11.judged_queue(
            RENO._replace(round_trip_ms=CABLE.empty_ms + queue_ms * ratio), RENO, CABLE
        ).share
        for ratio in (most - TINY, most + TINY)
    )
    assert (reached, missed < share) == (share, True)


def test_an_empty_queue_counts_with_half_of_renos_goodput_only() -> None:
    for ratio, share in ((lab11.LEAST_GOODPUT + TINY, 1.0), (lab11.LEAST_GOODPUT - TINY, 0.0)):
        flow = FlowMeasurement(RENO.goodput_bps * ratio, CABLE.empty_ms)
        assert lab11.judged_queue(flow, RENO, CABLE).share == share


def unequal(index: float, total_bps: float = 19e6) -> tuple[FlowMeasurement, FlowMeasurement]:
    """Return two flows whose Jain's index has a value: it is 1 / (1 + difference^2 / total^2)."""
    difference = total_bps * (1 / index - 1) ** 0.5
    rates = (total_bps + difference) / 2, (total_bps - difference) / 2
    return FlowMeasurement(rates[0], 50.0), FlowMeasurement(rates[1], 50.0)


@pytest.mark.parametrize(("least", "share"), lab11.FAIRNESS)
def test_thresholds_of_the_fairness(least: float, share: float) -> None:
    found = []
    for index in (least + TINY, least - TINY):
        first, second = unequal(index)
        one = work(first=first, second=second)
        assert one.fairness == pytest.approx(index)
        found.append(lab11.judged_fairness(one).share)
    assert (found[0], found[1] < share) == (share, True)


def test_equal_shares_of_little_count_nothing() -> None:
    for ratio, share in ((lab11.LEAST_GOODPUT + TINY, 1.0), (lab11.LEAST_GOODPUT - TINY, 0.0)):
        flow = FlowMeasurement(RENO.goodput_bps * ratio / 2, 20.0)
        assert lab11.judged_fairness(work(first=flow, second=flow)).share == share
        alone = FlowMeasurement(RENO.goodput_bps * ratio, 20.0)
        assert lab11.judged_reno_share(work(alone=alone)).share == share


@pytest.mark.parametrize("own", [False, True])
def test_thresholds_next_to_reno(own: bool) -> None:
    thresholds = lab11.OWN_SHARE if own else lab11.RENO_SHARE
    judge = lab11.judged_own_share if own else lab11.judged_reno_share
    flow = "against" if own else "against_reno"
    other = "against_reno" if own else "against"
    for least, share in thresholds:
        reached, missed = (
            judge(
                work(
                    **{
                        flow: FlowMeasurement(HALF.goodput_bps * ratio, 50.0),
                        other: FlowMeasurement(HALF.goodput_bps * (2 - ratio), 50.0),
                    }
                )
            ).share
            for ratio in (least + TINY, least - TINY)
        )
        assert (reached, missed < share) == (share, True)


@given(st.floats(1e3, 2e7), st.floats(0, 2e7), st.floats(0, 2e7))
def test_score_never_rises_if_reno_gets_less(own: float, reno: float, less: float) -> None:
    high, low = max(reno, less), min(reno, less)
    scores = [
        work(against=FlowMeasurement(own, 9.0), against_reno=FlowMeasurement(one, 9.0)).score
        for one in (low, high)
    ]
    assert scores[0] <= scores[1]


@pytest.mark.parametrize("student", range(20))
def test_the_hidden_network_is_none_of_the_sheets(student: int) -> None:
    cable = lab11.cable_of(lab11.values(random.Random(student)))
    hidden = lab11.hidden_cable(random.Random(student))
    assert cable.rate_mbit in lab11.RATES_MBIT
    assert hidden.rate_mbit not in lab11.RATES_MBIT
    assert hidden.delay_ms not in lab11.DELAYS_MS


def test_the_sheet_has_the_thresholds() -> None:
    sheet = (SHEETS / lab11.FOLDER / "README.md").read_text()
    points = [check.points for check in lab11.CHECKS]
    tables = lab11.GOODPUT, lab11.QUEUE, lab11.FAIRNESS, lab11.RENO_SHARE, lab11.OWN_SHARE
    for one, thresholds in zip(points, tables, strict=False):
        assert [share for _, share in thresholds] == [1.0, 0.6, 0.3]
        cells = " | ".join(f"{value:.2f}" for value, _ in thresholds)
        assert f"| {one:g} | {cells} |\n" in sheet
    assert f"queue (10) | {points[-1]:g} |" in sheet


def test_a_flow_counts_after_its_beginning() -> None:
    rows = [
        Interval(
            round(number * INTERVAL_S, 6),
            round((number + 1) * INTERVAL_S, 6),
            delivered_bytes=100_000 if number * INTERVAL_S >= SETTLED_S - TINY else 7,
            rtt_us=10_000 if number % 2 else 12_000,
        )
        for number in range(60)
    ]
    result = FlowResult(Flow(0, 2, 0), "generator", COMPLETED, intervals=rows)
    found = flow_measurement(result)
    assert found.goodput_bps == pytest.approx(100_000 * 8 / INTERVAL_S)
    assert found.round_trip_ms == 11.0
    result.status = "failed"
    assert flow_measurement(result) == NOTHING
    assert flow_measurement(FlowResult(Flow(0, 2, 0), "generator", COMPLETED)) == NOTHING
