"""What the page makes of a workload's rows: rates, verdicts, and what faults did to its flows."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.page.traffic import WorkloadTraffic

PAIRS = [["0.0", "0.1"], ["1.0", "1.1"]]
STEP_BYTES = 12_500  # in 0.1 s: 1 Mbit/s


def told(rows: list[Any] = [], **more: Any) -> dict[str, Any]:  # noqa: B006
    first = {"began_s": 10.0, "what": "all-to-all duration_s=5", "count": 2, "flows": PAIRS}
    return {**first, "phase": "sending", "said": "", "rows": rows, **more}


def rows(speeds: list[list[float]], from_s: float = 10.0) -> list[Any]:
    """Return the rows of flows with these speeds in Mbit/s, which are half of what could be."""
    found, delivered = [[from_s, [0] * len(speeds[0]), 0.0]], [0.0] * len(speeds[0])
    for i, moment in enumerate(speeds, 1):
        delivered = [old + new * STEP_BYTES for old, new in zip(delivered, moment, strict=True)]
        possible = 2 * sum(delivered)
        found.append([round(from_s + i / 10, 3), [round(one) for one in delivered], possible])
    return found


def traffic() -> WorkloadTraffic:
    return WorkloadTraffic(topos.parse("bcube,2,1"), told())


def test_rates_are_those_since_the_sample_before() -> None:
    one = traffic()
    whole = rows([[1, 2], [1, 0], [3, 0]])
    assert one.add_update(told(whole[:1])) == ({}, [])
    found, _ = one.add_update(told(whole[:2]))
    assert found == {"goodput": 3000, "ideal": 6000, "flows": [0, 1000, 1, 2000]}
    ideal = {"at_s": 10.1, "total_bps": 5_000_000, "flows_bps": [2_000_000, 3_000_000]}
    found, _ = one.add_update(told(whole[1:], ideal=ideal))  # one row a second time
    assert found == {"ideal": 4000, "goodput": 2000, "flows": [0, 2000]}
    assert one.ideals == [2000, 3000]


@pytest.mark.parametrize(
    ("possible", "ideal"),
    [
        ((0.0, 25_000.0), 2000),
        ((0.0, 12_400.0), 1000),  # within the blur of a sample: never below what arrived
        ((0.0, 11_000.0), None),  # a path has moved
        ((0.0, None), None),
        ((None, 25_000.0), None),
    ],
)
def test_an_ideal_is_shown_only_as_a_bound(
    possible: tuple[float | None, float | None], ideal: int | None
) -> None:
    first, last = rows([[1, 0]])
    found, _ = traffic().add_update(told([[*first[:2], possible[0]], [*last[:2], possible[1]]]))
    assert found["goodput"] == 1000
    assert found.get("ideal") == ideal


def test_what_a_fault_stopped_and_when_it_went_on() -> None:
    one = traffic()
    cause = {"at_s": 11.0, "kind": "cut", "what": ["0.0", "s0"]}
    still = [[1, 1]] * 10 + [[0, 1]] * 3 + [[1, 1]] * 8
    one.add_update(told(rows(still)[:12]))
    one.add_cause(cause)
    _, events = one.add_update(told(rows(still)[12:]))
    assert [(event["kind"], event["flows"]) for event in events] == [
        ("rerouted", 1),
        ("recovered", 1),
    ]
    assert [event["at_s"] for event in events] == pytest.approx([11.4, 11.4])
    assert one.add_update(told(rows(still)[20:]))[1] == []  # said once


def test_a_verdict_is_told_again_where_more_than_its_figures_change() -> None:
    one = traffic()

    def verdict(valid: bool, *reasons: str) -> list[Any]:
        return one.add_update(told(verdict={"valid": valid, "reasons": list(reasons)}))[1]

    assert [event["kind"] for event in verdict(False, "idle 1.2 %")] == ["verdict"]
    assert verdict(False, "idle 3.4 %") == []
    assert verdict(True)[0]["valid"] is True


def test_a_result_is_told_once() -> None:
    one = traffic()
    over = told(phase="ended", said="2 flows, 0 failed")
    assert one.add_update(over)[1] == [
        {"kind": "result", "what": ["all-to-all duration_s=5"], "said": "2 flows, 0 failed"}
    ]
    assert one.add_update(over) == ({}, [])
