"""Figures of relays: bits on the wire, and processor time by packet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.apps.papers.shared import relay_cost, relay_figures
from pillarbox.experiments.runs.reporting.reproduced.result import (
    CLAIM_HOLDS,
    DIFFERS,
    UNDECIDED,
    Reproduction,
    Settings,
)
from tests.experiments.apps.papers.test_reproductions import of, plan_of


def relay_by_mtu(measured: list[Any], kernel: list[list[float]]) -> Reproduction:
    found = relay_figures.made_by_mtu(*relay_of("bcube-fig9"), measured, 10.0, kernel)
    return reproductions.figure("bcube-fig9").of(found)


def relay_by_load(measured: list[Any], kernel: list[list[float]]) -> Reproduction:
    found = relay_figures.made_by_load(*relay_of("dpillar-fig7"), measured, 20.0, kernel)
    return reproductions.figure("dpillar-fig7").of(found)


def relay_of(name: str) -> tuple[Any, relay_figures.Rows]:
    plan = plan_of(name)
    return plan.relay, relay_figures.Rows(plan.points, plan.rows, plan.verdict)


FORWARDED, GOODPUT = "forwarded, Gbit/s", "goodput, Gbit/s"
COST = "processor by bit, of that at 1500"


def test_fig_9_of_bcube_relates_costs_to_bits() -> None:
    measured = [
        relay_figures.MtuMeasurement(1500, 36e6, 0.36, 39e6),
        relay_figures.MtuMeasurement(9000, 39e6, 0.195, 40e6),
    ] * 2
    found = relay_by_mtu(measured, [])
    assert of(found, FORWARDED, 9000).ours == pytest.approx(4.0)
    assert of(found, FORWARDED, 9000).ideal == 4.0
    assert of(found, GOODPUT, 9000).ours == pytest.approx(3.9)
    assert of(found, COST, 9000).ours == pytest.approx(0.5)
    assert of(found, COST, 9000).paper == pytest.approx(0.076 / 0.36)
    assert "a process in Python 10;" in found.reasons[-1]
    assert found.verdict == DIFFERS
    # A kernel that needs 2 µs for a packet of 1500 bytes, and a quarter more for one of 9000.
    ebpf = relay_by_mtu(measured, [[2.0, 2.53]] * 2)
    assert of(ebpf, f"{COST}, eBPF", 9000).ours == pytest.approx(2.53 / 12)
    assert "eBPF in the kernel 0.167;" in ebpf.reasons[-1]
    assert ebpf.verdict == CLAIM_HOLDS  # 0.2108: as much less as in the paper, 0.2111
    assert '"Our result clearly shows that per-packet processing dominates' in ebpf.reasons[0]
    assert relay_by_mtu(measured, [[2.0, 2.55]] * 2).verdict == DIFFERS
    # The relay forwards less than its cables carry.
    slow = [one._replace(forwarded_bps=35e6) for one in measured]
    assert relay_by_mtu(slow, [[2.0, 2.0]] * 2).verdict == DIFFERS


def test_fig_7_of_dpillar_has_a_bound() -> None:
    def found(cost_us: float, *kernel: list[float]) -> Reproduction:
        cases = ((0.5, 1024), (1.0, 1024), (1.0, 256))
        measured = [
            relay_figures.LoadMeasurement(
                load, size, load * 4000 * cost_us * 1e-6, load * 4000, 1.0
            )
            for load, size in cases
        ] * 2
        return relay_by_load(measured, [*kernel])

    assert found(2.0).verdict == CLAIM_HOLDS
    slow = found(41.0)
    assert slow.verdict == DIFFERS
    assert any("20 times the paper's bound" in reason for reason in slow.reasons)
    # The paper's relay is in the kernel, and the verdict is about ours there.
    assert found(41.0, [1.9, 1.9], [2.0, 2.0]).verdict == UNDECIDED  # of two turns
    assert found(41.0, *[[1.9, 1.9]] * 3).verdict == CLAIM_HOLDS
    assert found(41.0, *[[1.9, 1.4]] * 3).verdict == DIFFERS  # a packet's length would matter
    slower = found(41.0, *[[2.4, 2.4]] * 3)
    assert slower.verdict == DIFFERS
    assert of(slower, "eBPF", 1.0).ours == pytest.approx(2.4 / 2.048 / 2)


FAR = 100.0  # times the paper's value: no reading of a paper is that far off, a miscount is


def far_off(found: Reproduction) -> list[str]:
    """Return the rows whose value is out of all proportion to the paper's."""
    both = [(row, row.ours, row.paper) for row in found.rows if row.ours and row.paper]
    return [row.series for row, ours, paper in both if not 1 / FAR < ours / paper < FAR]


def test_a_miscount_is_far_off() -> None:
    counted = relay_figures.LoadMeasurement(1.0, 1024, 0.2, 4.0, 1.0)
    short = counted._replace(packet_bytes=256)
    assert far_off(relay_by_load([counted, short], []))


@pytest.mark.root
def test_a_relays_packets_are_counted_whichever_plane_sends_them(tmp_path: Path) -> None:
    settings = Settings(tmp_path, rate_mbit=4.0, repeats=1, quick=True, say=lambda _: None)
    assert far_off(reproductions.figure("dpillar-fig7").reproduce(settings)) == []


@pytest.mark.root
def test_a_relay_forwards_more_than_the_goodput_and_at_most_its_cables_rates() -> None:
    sweep, _ = relay_of("bcube-fig9")
    pairs, missing = relay_figures._relayed_pairs(sweep)
    where = sweep.network, sweep.routing, sweep.relay
    goodput_bps, share, forwarded_bps = relay_cost.run_in_own_process(
        relay_cost.tcp_use, where, pairs, missing, 1500, 4.0, 2.0
    )
    assert 0 < goodput_bps < forwarded_bps < 1.1 * len(pairs) * 4e6
    assert share > 0
