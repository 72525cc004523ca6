"""The figure of synchronized reads, with made-up transfers on both sides of each claim."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.apps.papers.shared.quantities import MINIMUM_RTO_S, reads_of
from pillarbox.experiments.models.fluid.ideal import header_efficiency
from pillarbox.experiments.runs.reporting.reproduced.result import (
    CLAIM_HOLDS,
    DIFFERS,
    Reproduction,
)
from tests.experiments.apps.papers.test_reproductions import (
    MadeUp,
    of,
    plan_of,
    reproduced,
    row,
    twice,
)

FAN_INS = (8, 16, 32, 63)
BOUND_S = 8e6 / (100e6 * header_efficiency(0, 1500))  # 1 MB over a port of 100 Mbit/s


def transfers(system: str, times_s: dict[int, float]) -> list[dict[str, Any]]:
    """Return the transfers of two reads from each number of servers: the last one takes longest."""
    rows, begin_s = [], 0.0
    steps = [fan_in for fan_in in times_s for _ in range(2)]
    for step, fan_in in enumerate(steps):
        for sender in range(fan_in):
            end_s = begin_s + times_s[fan_in] * (sender + 1) / fan_in
            one = {"step": step, "transfer": len(rows), "ready_s": begin_s, "end_s": end_s}
            rows.append(row(system, deed="copy", begin_s=begin_s, **one))
        begin_s += times_s[fan_in]
    return rows


def incast(reno: dict[int, float], dctcp: dict[int, float]) -> Reproduction:
    """Return the figure with these times of a read, by number of servers, in times of the bound."""
    rows: list[dict[str, Any]] = []
    for system, times in (("switch, Reno", reno), ("switch, DCTCP", dctcp)):
        rows += transfers(system, {n: BOUND_S * times.get(n, 1.1) for n in FAN_INS})
    trials = [row(system) for system in ("switch, Reno", "switch, DCTCP")]
    names = [one["system"] for one in trials]
    return reproduced("incast", MadeUp(names, {"transfers": twice(rows), "trials": twice(trials)}))


PAPERS = {16: 4.0, 32: 4.0, 63: 4.0}  # TCP suffers timeouts above ten servers
CALM = {63: 4.0}  # DCTCP only when two packets of each exceed the queue


def test_reads_are_told_by_the_servers_read_from() -> None:
    found = reads_of(MadeUp([], {"transfers": transfers("a", {2: 0.5, 3: 0.2})}).transfers)
    assert found.fan_in.tolist() == [2, 2, 3, 3]
    assert found.took_s.tolist() == pytest.approx([0.5, 0.5, 0.2, 0.2])
    assert (
        len(reads_of(MadeUp([], {"transfers": transfers("a", {2: 0.5, 3: 0.2})}).transfers, 3)) == 2
    )


def test_the_papers_course_holds() -> None:
    found = incast(PAPERS, CALM)
    assert found.verdict == CLAIM_HOLDS
    assert of(found, "switch, Reno", "16").ours == pytest.approx(4.0)
    assert of(found, "switch, Reno", "16").ideal == 1.0
    assert of(found, "switch, DCTCP", "16").ours == pytest.approx(1.1)
    timeouts = "reads with a timeout, {} servers"
    assert of(found, timeouts.format(8), "switch, Reno").ours == 0.0
    assert of(found, timeouts.format(16), "switch, Reno").ours == 1.0


@pytest.mark.parametrize(
    ("reno", "dctcp", "sentence"),
    [
        (PAPERS, {16: 2.1, **CALM}, "DCTCP performs much better"),
        (PAPERS, {63: 1.2}, "eventually converging"),
        ({8: 4.0, **PAPERS}, CALM, "TCP begins to suffer timeouts"),
        ({32: 4.0, 63: 4.0}, CALM, "TCP begins to suffer timeouts"),
        (PAPERS, {32: 2.5, **CALM}, "DCTCP handles incast without timeouts"),
        (PAPERS, {}, "only suffer timeouts once"),
        ({16: 4.0, 32: 4.0, 63: 1.9}, {63: 1.9}, "TCP throughput collapse"),
    ],
)
def test_each_sentence_can_be_missed(
    reno: dict[int, float], dctcp: dict[int, float], sentence: str
) -> None:
    found = incast(reno, dctcp)
    assert found.verdict == DIFFERS
    assert any(sentence in reason for reason in found.reasons)


@pytest.mark.parametrize(("off_s", "share"), [(-1e-6, 0.0), (1e-6, 1.0)])
def test_a_timeout_takes_the_minimum_of_linux(off_s: float, share: float) -> None:
    found = incast({8: (MINIMUM_RTO_S + off_s) / BOUND_S, **PAPERS}, CALM)
    assert of(found, "reads with a timeout, 8 servers", "switch, Reno").ours == share


def test_systems_differ_in_network_and_control_only() -> None:
    systems = plan_of("incast").experiment["systems"]
    assert {(one["rate_mbit"], one["mtu"]) for one in systems} == {(100, 1500)}
    assert all((one.get("queue") == "ecn") == (one["tcp"] == "dctcp") for one in systems)
    assert reproductions.figure("incast").live
