"""When flows moved and were as fast as before: on made-up series whose answers are plain."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.models.workloads.flows import Flow, FlowResult, Interval
from pillarbox.experiments.runs.trials.recovery import recovery
from pillarbox.experiments.runs.trials.trial_faults import killed_by

STEP_S = 0.1


def event(
    at_s: float, name: str = "cut", what: str = "0.3 4.0", reason: str = ""
) -> dict[str, Any]:
    return {"at_s": at_s, "event": name, "what": what, "detected_s": 0.001, "reason": reason}


def flow(delivered: Sequence[int], number: int = 0, ends: tuple[int, int] = (0, 1)) -> FlowResult:
    """Return a flow that delivered so much in each tenth of a second."""
    moments = [0.0, *accumulate([STEP_S] * len(delivered))]
    intervals = [
        Interval(begin_s, end_s, count)
        for begin_s, end_s, count in zip(moments, moments[1:], delivered, strict=False)
    ]
    return FlowResult(Flow(number, *ends, duration_s=9.0), "made up", intervals=intervals)


def found(events: Sequence[dict[str, Any]], *flows: FlowResult) -> list[tuple[Any, Any, Any]]:
    columns = ("stopped_flows", "rerouted_s", "recovered_s")
    killed = functools.partial(killed_by, topos.parse("tree,2,2"))
    return [tuple(row[c] for c in columns) for row in recovery(events, flows, killed)]


def test_a_flow_that_stops_moves_and_grows() -> None:
    series = [100] * 20 + [0] * 3 + [20, 50, 80] + [100] * 14
    [(stopped, rerouted_s, recovered_s)] = found([event(2.0)], flow(series))
    assert stopped == 1
    assert rerouted_s == pytest.approx(0.4)
    assert recovered_s == pytest.approx(0.7)


def test_what_comes_at_once_after_a_gap_is_no_recovery() -> None:
    series = [100] * 20 + [0] * 3 + [300] + [0, 10] * 5 + [100] * 14
    [(_, rerouted_s, recovered_s)] = found([event(2.0)], flow(series))
    assert rerouted_s == pytest.approx(0.4)
    assert recovered_s == pytest.approx(1.5)


def test_the_last_flow_decides() -> None:
    early = flow([100] * 20 + [0] * 2 + [100] * 18, 0)
    late = flow([100] * 20 + [0] * 9 + [100] * 11, 1)
    undisturbed = flow([100] * 40, 2)
    [(stopped, rerouted_s, recovered_s)] = found([event(2.0)], early, late, undisturbed)
    assert stopped == 2
    assert rerouted_s == pytest.approx(1.0)
    assert recovered_s == pytest.approx(1.0)


def test_a_queue_may_empty_itself_first() -> None:
    series = [100] * 22 + [30] + [0] * 2 + [100] * 15
    [(stopped, rerouted_s, _)] = found([event(2.0)], flow(series))
    assert stopped == 1
    assert rerouted_s == pytest.approx(0.6)


def test_one_that_never_comes_back_has_no_moment() -> None:
    lost, other = flow([100] * 20 + [0] * 20, 0), flow([100] * 20 + [0] * 2 + [100] * 18, 1)
    assert found([event(2.0)], lost, other) == [(2, None, None)]


def test_less_than_before_is_no_recovery() -> None:
    [(_, rerouted_s, recovered_s)] = found([event(2.0)], flow([100] * 20 + [0] * 2 + [80] * 18))
    assert rerouted_s == pytest.approx(0.3)
    assert recovered_s is None


@pytest.mark.parametrize(
    "series",
    [
        [100] * 40,  # never stopped
        [100] * 20 + [50] * 20,  # slower, but never still
        [100] * 12 + [0] + [100] * 7 + [0] * 3 + [100] * 17,  # had pauses before
        [100] * 28 + [0] * 3 + [100] * 9,  # stopped much later
        [0] * 25 + [100] * 15,  # had not begun
        [100] * 15,  # had ended
    ],
)
def test_a_flow_that_did_not_stop_because_of_it_does_not_count(series: list[int]) -> None:
    assert found([event(2.0)], flow(series)) == [(0, None, None)]


def test_flows_of_a_dead_server_do_not_count() -> None:
    gone, through = flow([100] * 20 + [0] * 20, 0, (0, 3)), flow([100] * 20 + [0] * 2 + [100] * 18)
    [(stopped, rerouted_s, _)] = found([event(2.0, "kill", "1.1")], gone, through)
    assert stopped == 1
    assert rerouted_s == pytest.approx(0.3)


def test_a_flow_that_ends_is_no_loss_of_goodput() -> None:
    ends = flow([100] * 20 + [0] * 2 + [100] * 3, 0)
    goes_on = flow([100] * 20 + [0] * 2 + [50] * 4 + [100] * 14, 1)
    [(stopped, _, recovered_s)] = found([event(2.0)], ends, goes_on)
    assert stopped == 2
    assert recovered_s == pytest.approx(0.7)


def test_each_event_has_its_own_moments() -> None:
    series = [100] * 20 + [0] * 2 + [100] * 18 + [0] * 5 + [100] * 15
    first, second = found([event(2.0), event(4.0, "healed")], flow(series))
    assert first[1] == pytest.approx(0.3)
    assert second[1] == pytest.approx(0.6)


def test_what_was_not_done_did_nothing() -> None:
    refused = event(2.0, reason="server 0.3 is dead already")
    assert recovery([refused], [flow([100] * 20 + [0] * 20)], lambda _: ()) == [refused]


def test_flows_of_servers_whose_cable_is_cut_count() -> None:
    [(stopped, rerouted_s, _)] = found([event(2.0, "cut", "0.0 s1")], flow([100] * 20 + [0] * 20))
    assert (stopped, rerouted_s) == (1, None)
