"""Trials of Multipath TCP: the ideal is that of the subflows on their pinned paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.ideal import goodput_share
from pillarbox.experiments.models.workloads.flows import (
    COMPLETED,
    Flow,
    FlowResult,
    Interval,
    SubflowInterval,
)
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.plans.trials import Trial
from pillarbox.experiments.runs.trials.order import FlowPathsAtTime, TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.outcome import outcome
from pillarbox.experiments.runs.trials.subflows import subflows_of
from pillarbox.hosts.base.failures import NONE, parse_failures
from tests.experiments.runs.seen import SEEN

CUBE = topos.parse("bcube,2,1")
SYSTEM = System(CUBE.spec, rate_mbit=10.0, mtu=9000, transport="mptcp")
CABLE_BPS = 1e7 * goodput_share(CUBE, "", 9000, multipath=True)
SECONDS = 4.0
FLOW = Flow(0, 0, 3, duration_s=SECONDS)


def result_of(flow: Flow, shares: list[list[float]], *, fell_back: bool = False) -> FlowResult:
    """Return a flow whose subflows had these shares of a cable, each for a second."""
    rows = [
        SubflowInterval(
            port + 1,
            CUBE.port_ipv4(flow.source, port) if port else CUBE.ipv4(flow.source),
            *(float(at), at + 1.0, round(share * CABLE_BPS / 8)),
            *(0, 1000, 10_000),
        )
        for port, of_subflow in enumerate(shares)
        for at, share in enumerate(of_subflow)
    ]
    sums = [
        sum(row.acked_bytes for row in rows if row.begin_s == at) for at in range(len(shares[0]))
    ]
    intervals = [Interval(float(at), at + 1.0, octets) for at, octets in enumerate(sums)]
    result = FlowResult(flow, "fake", COMPLETED, "", 0.0, float(len(sums)), sum(sums))
    result.intervals, result.subflows, result.fell_back = intervals, rows, fell_back
    return result


def measured(*results: FlowResult, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the record and the tables of a trial with these results."""
    workload = Workload("one-to-one", duration_s=SECONDS)
    order = TrialOrder(Trial(0, SYSTEM, 0, 1), workload, tuple(r.flow for r in results), ())
    found = TrialMeasurements(
        routing="bsr", plane="python", tool="fake", tool_versions={}, began={},
        results=results, events=(), lab={}, log=(),
        readings=replace(SEEN, duration_s=SECONDS, rate_bps=1e7),
        **{"paths": ((),) * len(results), "back": ((),) * len(results), **more},
    )  # fmt: skip
    ended = outcome(order, found)
    return dict(ended.record), dict(ended.tables)


def of_ideal(record: dict[str, Any]) -> float:
    return float(record["goodput_bps"] / record["ideal_bps"])


def test_a_flow_that_fills_both_cables_reaches_its_ideal() -> None:
    record, tables = measured(result_of(FLOW, [[1.0] * 4, [1.0] * 4]))
    assert of_ideal(record) == pytest.approx(1.0, abs=1e-3)
    assert record["ideal_bps"] == pytest.approx(2 * CABLE_BPS, rel=1e-3)
    assert record["valid"], record["verdict"]
    (flow,) = tables["flows"]
    assert flow["ideal_bps"] == pytest.approx(2 * CABLE_BPS, rel=1e-2)  # less acknowledgements
    assert flow["path"] == "0.0 0.1 1.1"
    rows = tables["subflows"]
    assert {(row["port"], row["path"]) for row in rows} == {
        (0, "0.0 0.1 1.1"),
        (1, "0.0 1.0 1.1"),
    }
    assert sum(row["acked_bytes"] for row in rows) == flow["delivered_bytes"]


@pytest.mark.parametrize(("shares", "wanted"), [((1.0, 0.5), 0.75), ((1.0, 0.0), 0.5)])
def test_an_idle_path_counts(shares: tuple[float, float], wanted: float) -> None:
    record, _ = measured(result_of(FLOW, [[share] * 4 for share in shares]))
    assert of_ideal(record) == pytest.approx(wanted, abs=1e-2)


def test_more_than_the_pinned_paths_carry_is_not_valid() -> None:
    record, _ = measured(result_of(FLOW, [[1.05] * 4, [1.05] * 4]))
    assert not record["valid"]
    within, _ = measured(result_of(FLOW, [[1.02] * 4, [1.02] * 4]))
    assert within["valid"], within["verdict"]


def test_subflows_of_two_flows_share_a_cable() -> None:
    flows = [replace(FLOW, number=number) for number in range(2)]
    record, tables = measured(*(result_of(flow, [[0.5] * 4] * 2) for flow in flows))
    assert of_ideal(record) == pytest.approx(1.0, abs=1e-3)
    for row in tables["flows"]:
        assert row["ideal_bps"] == pytest.approx(CABLE_BPS, rel=1e-2)


def test_no_cable_binds_a_subflow_whose_path_has_failed() -> None:
    """From second 1 to second 3 its packets take a path of the network's routing."""
    broken = parse_failures(CUBE, ["cut 0.0-s0"])
    ends = [(0.0, NONE), (1.0, NONE), (1.5, broken), (3.0, broken), (3.5, NONE)]
    sampled = tuple(FlowPathsAtTime(at_s, ((),), failures) for at_s, failures in ends)
    shares = [[1.0, 0.2, 0.2, 1.0], [1.0] * 4]
    record, _ = measured(result_of(FLOW, shares), sampled=sampled)
    assert of_ideal(record) == pytest.approx(1.0, abs=0.1)
    without, _ = measured(result_of(FLOW, shares))
    assert of_ideal(without) == pytest.approx(0.8, abs=1e-2)


def test_all_flows_are_bound_by_the_cables_that_are_left() -> None:
    """Both subflows share the source's other cable while the first one is cut."""
    broken = parse_failures(CUBE, ["cut 0.0-s0"])
    sampled = tuple(FlowPathsAtTime(at_s, ((),), broken) for at_s in (0.0, 1.0, 2.0, 3.0))
    record, _ = measured(result_of(FLOW, [[0.5] * 4] * 2), sampled=sampled)
    assert record["ideal_bps"] == pytest.approx(CABLE_BPS, rel=1e-3)
    assert of_ideal(record) == pytest.approx(1.0, abs=1e-3)
    half, _ = measured(result_of(FLOW, [[0.25] * 4] * 2), sampled=sampled)
    assert half["ideal_bps"] == pytest.approx(CABLE_BPS, rel=1e-3)


def test_a_fallback_to_tcp_makes_a_trial_invalid() -> None:
    record, _ = measured(result_of(FLOW, [[1.0] * 4], fell_back=True))
    assert not record["valid"]
    assert "1 flows of Multipath TCP fell back to TCP" in record["verdict"]["reasons"][-1]


def test_without_subflows_there_is_no_ideal() -> None:
    result = result_of(FLOW, [[1.0] * 4])
    result.subflows = []  # as iperf3 measures none
    record, _ = measured(result)
    assert record["ideal_bps"] is None


def test_a_subflow_that_ends_early_keeps_its_bytes() -> None:
    result = result_of(FLOW, [[1.0] * 4, [1.0] * 4])
    result.subflows = [row for row in result.subflows if row.subflow == 1 or row.end_s <= 2]
    first, second = subflows_of(CUBE, [result])
    assert first.result.delivered_bytes == 2 * second.result.delivered_bytes
    assert second.result.end_s == 2.0
