"""The benches of whole labs: they run, judge, and say why they skip."""

from __future__ import annotations

import pytest

from pillarbox import topos
from pillarbox.experiments.models.workloads.flows import (
    COMPLETED,
    FAILED,
    Flow,
    FlowResult,
    Interval,
)
from pillarbox.experiments.runs.plans.fault_schedule import failures_of
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.live import lab_programs
from tests.benches import bcube16, capacity, failover, flow_setup, growth

NO_EBPF = lab_programs.available()


@pytest.mark.long
@pytest.mark.root
@pytest.mark.skipif(bool(NO_EBPF), reason=NO_EBPF)
def test_failover_measures_the_gap_of_a_cut() -> None:
    rows = list(failover.run(quick=True))
    assert [(row["plane"], row["beside"]) for row in rows] == [
        ("ebpf", "nothing"),
        ("python", "nothing"),
        ("ebpf", "all-to-all"),
    ]
    for row in rows:
        assert (row["network"], row["fault"]) == ("dcell,4,1", failover.FAR_CUT)
        assert row["outcome"].startswith(("ok", "missed")), row
        assert row["routing"] == "dfr"
        # One turn. How long a gap it has, if any, depends on who else uses the machine: the bench
        # judges.
        assert 0.0 <= row["gap_s"] == row["worst_s"]


@pytest.mark.long
@pytest.mark.root
@pytest.mark.skipif(bool(NO_EBPF), reason=NO_EBPF)
def test_bcube16_compares_both_planes_with_the_kernel() -> None:
    rows = list(bcube16.run(quick=True))
    assert {row["outcome"] for row in rows} == {"ok"}
    total = {row["plane"]: row["total_gbps"] for row in rows if "plane" in row}
    assert list(total) == [bcube16.KERNEL, bcube16.PAST, "ebpf", "python"]
    assert total["ebpf"] > 5 * total["python"]
    cost = {row["python_forwarder"]: row["cpu_us_per_packet"] for row in rows if "plane" not in row}
    assert list(cost) == ["source", "relay", "destination"]
    assert all(1 < us < 200 for us in cost.values())


@pytest.mark.root
@pytest.mark.skipif(bool(NO_EBPF), reason=NO_EBPF)
def test_flow_setup_measures_first_packets() -> None:
    rows = list(flow_setup.run(quick=True))
    assert [row["offered_per_s"] for row in rows] == list(flow_setup.QUICK_RATES)
    for row in rows:
        assert row["outcome"].startswith(("ok", "missed")), row
        assert row["flows"] == row["offered_per_s"] * flow_setup.QUICK_OFFER_S
        assert 0 < row["median_ms"] <= row["p99_ms"]
        assert row["carried_per_s"] > 0 and 0 <= row["lost_percent"] < 100


@pytest.mark.parametrize(
    ("offered", "lost", "carried", "outcome"),
    [
        (500, 0.0, 500, "ok"),
        (500, 0.1, 499, "missed: first packets are lost"),
        (5000, 30.0, 2900, "ok"),  # beyond the goal, and more than half of what was carried
        (5000, 60.0, 1900, "missed: it carries less under more load"),
    ],
)
def test_flow_setup_judges_loss_and_collapse(
    offered: int, lost: float, carried: float, outcome: str
) -> None:
    row = {"offered_per_s": offered, "lost_percent": lost, "carried_per_s": carried}
    assert flow_setup._rate_verdict(row, most=4000.0, without_loss=2000) == outcome


@pytest.mark.long
@pytest.mark.root
@pytest.mark.skipif(bool(NO_EBPF), reason=NO_EBPF)
def test_growth_breaks_no_connection() -> None:
    rows = list(growth.run(quick=True))
    sizes = {growth.BEFORE: 16, growth.GROWN: 20, growth.JOINED: 20, growth.SHRUNK: 16}
    assert [row["phase"] for row in rows] == list(sizes)
    for row in rows:
        assert row["outcome"] == "ok", row
        assert row["servers"] == sizes[row["phase"]]
        assert row["goodput_mbps"] > 0 and (row["new_mbps"] or 0) >= 0
        assert (row["phase"] == growth.JOINED) == bool(row["new_mbps"])


@pytest.mark.long
@pytest.mark.root
def test_capacity_judges_stock_mininet_as_ours() -> None:
    rows = list(capacity.run(quick=True))
    assert [(row["network"], row["builder"]) for row in rows] == [
        ("bcube,2,1", "pillarbox"),
        ("tree,2,2", "pillarbox"),
        ("tree,2,2", "mininet"),
    ]
    for row in rows:
        assert row["outcome"] == "ok", row
        assert 0 < row["goodput_mbit"] < 4 * 2 * 10 * 1.1  # servers, ports, Mbit/s, and what waits


@pytest.mark.parametrize("bench", [bcube16, capacity, failover, flow_setup, growth])
def test_without_root_they_skip(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    outcomes = {row["outcome"] for row in bench.run(quick=True)}
    assert outcomes == {"skipped: network namespaces need root"}


@pytest.mark.parametrize(
    ("gaps", "outcome"),
    [
        ([0.1, 0.4, 0.15], "ok"),
        ([0.1, 0.4, 0.3], "missed: 0.2 s wanted"),
    ],
)
def test_failover_is_judged_by_the_median(gaps: list[float], outcome: str) -> None:
    row = failover._fault_columns([failover.FaultEffect(gap, 0.0) for gap in gaps], 0.2)
    assert row["outcome"] == outcome
    assert row["worst_s"] == 0.4


def test_a_connection_that_broke_is_a_failure_however_short_its_gap() -> None:
    turns = [
        failover.FaultEffect(0.01),
        failover.FaultEffect(0.01, lost="Connection reset by peer"),
    ]
    assert failover._fault_columns(turns, 0.2)["outcome"] == (
        "failed: the connection broke: Connection reset by peer"
    )


def test_a_gap_is_a_row_of_intervals_in_which_nothing_arrived() -> None:
    delivered = [5, 0, 0, 7, 0]
    result = FlowResult(Flow(0, 1, 2), "generator", COMPLETED)
    result.intervals = [Interval(at, at + 1.0, count) for at, count in enumerate(delivered)]
    assert failover.delivery_gaps(result) == [(1, 3), (4, 5)]
    assert failover._why_lost(result) == ""
    result.intervals.append(Interval(5.0, 6.0, 0))
    assert failover._why_lost(result) == "nothing arrived in its last second"
    result.status, result.reason = FAILED, "its connection broke: Connection reset by peer"
    assert failover._why_lost(result) == "Connection reset by peer"


def test_the_longest_gap_is_one_that_the_fault_touches() -> None:
    gaps = [(0.0, 0.9), (1.9, 2.1), (2.5, 2.6), (4.0, 9.0)]
    assert failover._longest_gap(gaps, 2.0, 3.0) == pytest.approx(0.2)


@pytest.mark.parametrize("spec", failover.NETWORKS)
def test_every_network_has_a_routing_that_survives_most_faults(spec: str) -> None:
    topology = topos.parse(spec)
    routing = failover._routing(topology, failover.FAULTS)
    ends = failover._ends(topology, routing, failover.FAULTS)
    found = failover.path_faults(topology, route(topology, routing, *ends).paths[0])
    failures = [failures_of(topology, one.fault) for one in found.values()]
    ways = [route(topology, routing, *ends, failed).paths for failed in failures]
    assert len(found) == len(failover.FAULTS)
    assert all(ways)


def test_the_kernel_is_beaten_by_who_carries_more_in_the_same_round() -> None:
    row = bcube16._compared([8e9, 9e9, 30e9], [10e9, 10e9, 20e9])
    assert (row["total_gbps"], row["of_kernel"]) == (9.0, 0.9)
    assert row["low"] <= 0.9 <= row["high"]
