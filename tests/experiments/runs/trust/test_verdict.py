"""The verdict on readings: what is believed, what is not, and in which words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pillarbox.experiments.runs.trust import Readings, judge
from pillarbox.experiments.runs.trust.readings import DurationStatistics, MachineReadings

BUSY = {"sent_bytes": 1, "dropped_packets": 0, "busy_share": 1.0, "rate_bps": 1e7}


def links(*conserved: float | None) -> list[dict[str, Any]]:
    return [{"from": "0.0", "to": "s0", "port": 0, "conserved": one, **BUSY} for one in conserved]


GOOD = Readings(
    duration_s=2.0,
    rate_bps=1e7,
    base_rtt_s=0.0024,
    links=links(1.0, 0.999, None, 1.001),
    samples=100,
    interval_s=0.02,
    round_trip=DurationStatistics(400, 0.0001, 0.0004, 0.002),
    lost=0,
    lateness=DurationStatistics(400, 0.0001, 0.0003, 0.002),
    pacing=DurationStatistics(1000, 0.00001, 0.0002, 0.001),
    pacing_lost=0,
    pressure=0.05,
    steal=0.0,
    idle=0.6,
    foreign=0.01,
    programs_forward=True,
    packets=100_000,
)


def test_good_readings_are_valid_without_a_word() -> None:
    verdict = judge(GOOD, 1e8, 0.98e8)
    assert (verdict.valid, verdict.reasons, verdict.warnings) == (True, (), ())
    assert verdict.figures["conserved_median"] == 1.0
    assert verdict.figures["backlogged_links"] == 3
    assert json.loads(json.dumps(verdict.as_json()))["valid"] is True
    assert json.loads(json.dumps(GOOD.as_json()))["round_trip"]["p99_s"] == 0.0004


def test_more_than_the_ideal_is_not_valid() -> None:
    assert judge(GOOD, 1e8, 1.03e8).valid
    [reason] = judge(GOOD, 1e8, 1.031e8).reasons
    assert "the flows got 1.031 of the ideal, more than 1.03" in reason
    [reason] = judge(replace(GOOD, faults=1), 1e8, 1.1e8).reasons  # with faults as well
    assert "1.100 of the ideal" in reason


def test_good_machines_are_valid_and_one_whose_time_is_not_known_warns() -> None:
    over = replace(GOOD, **machines())
    assert (judge(over).valid, judge(over).warnings) == (True, ())
    assert json.loads(json.dumps(over.as_json()))["machines"][1]["crossed_out"] == 5000
    [warning] = judge(replace(GOOD, **machines(clock_s=()))).warnings
    assert "machine 1 did not report its time" in warning


MACHINE = MachineReadings(
    machine=0, clock_s=(0.1, 0.1, 0.1, 0.1), crossed_out=5000, crossed_in=5000, idle=0.6
)


def machines(**changes: Any) -> dict[str, Any]:
    """Return readings of two machines, of which the second has these."""
    return {"machines": (MACHINE, replace(MACHINE, machine=1, **changes))}


BAD = {
    "a clock was pushed": (machines(clock_moved_s=0.0049), "clock of machine 1 moved by 4.9 ms"),
    "a card was full": (machines(card_full=0.3), "machine 1's network card was full at 30%"),
    "a card dropped": (machines(card_dropped=40), "machine 1's network card dropped 40 of"),
    "tunnels lost": (machines(crossed_in=4900), "100 of 10000 packets between machines never"),
    "a machine was lost": (machines(away="was lost"), "machine 1 was lost: its traffic"),
    "a machine was over its share": (
        {"idle": 0.03, **machines(idle=0.03)},
        "processors of machine 1 were idle 3.0% of the time",
    ),
    "the median sent too little": ({"links": links(*[0.94] * 9, 1.0)}, "sent only 0.940"),
    "one cable in ten sent too little": (
        {"links": links(0.85, *[1.0] * 9)},
        "10% of the backlogged cables",
    ),
    "the canary was slow": (
        {"round_trip": DurationStatistics(400, 1e-4, 0.0012, 0.02)},
        "a round trip of 1.2 ms",
    ),
    "canaries were lost": ({"lost": 20}, "20 of 420 canary packets"),
    "the kernel was late": (
        {"pacing": DurationStatistics(1000, 1e-5, 0.0012, 0.02)},
        "1.2 ms or more late",
    ),
    "packets of the kernel were lost": ({"pacing_lost": 20}, "20 of 1020 packets that the kernel"),
    "no time was left over": ({"idle": 0.03}, "idle 3.0% of the time"),
    "somebody else was at work": ({"foreign": 0.3}, "took 30% of the processors"),
    "heartbeats came late": ({"link_losses": 2}, "working links down, 2 times"),
    "packets vanished": ({"strays": {"h0-eth0 in": 200}}, "200 h0-eth0 in"),
    "there is no rate": ({"rate_bps": None, "links": []}, "have no rate"),
    "it was short": ({"round_trip": DurationStatistics(30, 1e-4, 1e-4, 1e-4)}, "too short"),
    "hardly anybody looked": ({"samples": 3}, "too short"),
}


@pytest.mark.parametrize("case", BAD)
def test_each_signal_alone_makes_it_invalid(case: str) -> None:
    changes, words = BAD[case]
    verdict = judge(replace(GOOD, **changes))
    assert not verdict.valid
    assert len(verdict.reasons) == 1
    assert words in verdict.reasons[0]


def late(p99_s: float) -> DurationStatistics:
    return DurationStatistics(1000, 1e-5, p99_s, 0.02)


# Each threshold with readings on both of its sides: the last valid value, the first invalid one.
REASONS = {
    "canaries": (
        {"round_trip": late(1e-4)._replace(times=60)},
        {"round_trip": late(1e-4)._replace(times=59)},
    ),
    "samples": ({"samples": 5}, {"samples": 4}),
    "median of conservation": ({"links": links(*[0.95] * 3)}, {"links": links(*[0.949] * 3)}),
    "one cable": ({"links": links(0.90, *[1.0] * 9)}, {"links": links(0.899, *[1.0] * 9)}),
    "cables below": (
        {"links": links(0.8, *[1.0] * 20)},
        {"links": links(0.8, *[1.0] * 19)},
    ),
    "pacing": ({"pacing": late(0.001)}, {"pacing": late(0.00101)}),
    "pacing of a slow network": (
        {"base_rtt_s": 0.02, "pacing": late(0.002)},
        {"base_rtt_s": 0.02, "pacing": late(0.00201)},
    ),
    "canary": ({"round_trip": late(0.001)}, {"round_trip": late(0.00101)}),
    "lost by the kernel": ({"pacing_lost": 10}, {"pacing_lost": 11}),
    "lost canaries": (
        {"lost": 4, "round_trip": late(1e-4)._replace(times=396)},
        {"lost": 4, "round_trip": late(1e-4)._replace(times=395)},
    ),
    "lost canaries are canaries": (
        {"lost": 0, "round_trip": late(1e-4)._replace(times=60)},
        {"lost": 1, "round_trip": late(1e-4)._replace(times=59)},
    ),
    "link losses": ({"link_losses": 0}, {"link_losses": 1}),
    "foreign load": ({"foreign": 0.10}, {"foreign": 0.101}),
    "strays": ({"strays": {"h0": 100}}, {"strays": {"h0": 101}}),
    "idle": ({"idle": 0.05}, {"idle": 0.049}),
    "clock": (machines(clock_moved_s=0.001), machines(clock_moved_s=0.0010005)),
    "card full": (machines(card_full=0.10), machines(card_full=0.101)),
    "card dropped": (machines(card_dropped=10), machines(card_dropped=11)),
    "tunnels": (machines(crossed_in=4990), machines(crossed_in=4989)),
}
WARNINGS = {
    "pressure": ({"pressure": 0.25}, {"pressure": 0.251}),
    "timers": ({"lateness": late(0.002)}, {"lateness": late(0.00201)}),
    "steal": ({"steal": 0.02}, {"steal": 0.021}),
    "idle": ({"idle": 0.10}, {"idle": 0.099}),
}


@pytest.mark.parametrize("threshold", REASONS)
def test_a_threshold_of_validity_lies_between(threshold: str) -> None:
    last, first = REASONS[threshold]
    assert judge(replace(GOOD, **last)).valid
    assert len(judge(replace(GOOD, **first)).reasons) == 1


@pytest.mark.parametrize("threshold", WARNINGS)
def test_a_threshold_of_a_warning_lies_between(threshold: str) -> None:
    last, first = WARNINGS[threshold]
    assert judge(replace(GOOD, **last)).warnings == ()
    assert len(judge(replace(GOOD, **first)).warnings) == 1
    assert judge(replace(GOOD, **first)).valid


def test_thresholds_of_the_total_and_of_late_flows_lie_between() -> None:
    unlimited = replace(GOOD, links=links(None))
    assert judge(unlimited, 1e9, 0.90e9).valid
    assert not judge(unlimited, 1e9, 0.899e9).valid
    assert judge(GOOD, starts=late(0.002)).valid
    assert not judge(GOOD, starts=late(0.00201)).valid


def test_figures_carry_the_readings_in_their_units() -> None:
    readings = replace(
        GOOD,
        lost=3,
        pacing_lost=2,
        link_losses=0,
        strays={"h0": 20, "h1": 30},
        **machines(clock_moved_s=0.0005, card_full=0.02, card_dropped=4, crossed_in=4995),
    )
    figures = judge(readings, 1e8, 0.98e8, DurationStatistics(9, 1e-4, 0.0011, 0.0017)).figures
    assert figures == pytest.approx(
        {
            "duration_s": 2.0, "samples": 100, "backlogged_links": 3, "of_ideal": 0.98,
            "conserved_median": 1.0, "conserved_below": 0.0,
            "pacing_p99_ms": 0.2, "pacing_most_ms": 1.0, "pacing_lost": 2,
            "canary_median_ms": 0.1, "canary_p99_ms": 0.4, "canary_most_ms": 2.0, "canary_lost": 3,
            "link_losses": 0, "foreign": 0.01, "stray_packets": 50, "stray_share": 5e-4,
            "timer_p99_ms": 0.3, "steal": 0.0, "idle": 0.6, "watching": 0.0, "pressure": 0.05,
            "start_p99_ms": 1.1, "start_most_ms": 1.7, "clock_moved_ms": 0.5, "card_full": 0.02,
            "card_dropped": 4, "crossed_packets": 10_000, "crossed_lost": 5,
        }
    )  # fmt: skip


def test_a_threshold_scales_with_the_packets() -> None:
    few = replace(GOOD, packets=0, strays={"h0": 1})
    assert judge(few).figures["stray_share"] == 1
    assert judge(few).valid and judge(few).warnings
    assert not judge(replace(GOOD, packets=1, strays={"h0": 1})).valid
    idle = replace(MACHINE, machine=1, crossed_out=0, crossed_in=0)
    alone = replace(GOOD, machines=(replace(idle, card_dropped=1),))
    assert "card dropped 1 of 0 crossing packets" in judge(alone).reasons[0]
    assert judge(replace(GOOD, machines=(idle,))).figures["crossed_lost"] == 0
    more = replace(GOOD, **machines(crossed_in=6000))  # a copy of a packet is no loss
    assert judge(more).figures["crossed_lost"] == 0


def test_a_total_without_an_ideal_says_nothing_and_five_places_are_named() -> None:
    for totals in ((None, 1e8), (1e8, None), (0.0, 1e8)):
        verdict = judge(GOOD, *totals)
        assert verdict.valid and "of_ideal" not in verdict.figures
    places = {f"place{n}": 100 for n in range(7)}
    [reason] = judge(replace(GOOD, strays=places)).reasons
    assert [f"place{n}" in reason for n in range(7)] == [True] * 5 + [False] * 2


def test_one_machine_has_no_tunnels_and_a_lost_one_no_figures() -> None:
    assert "crossed_packets" not in judge(GOOD).figures
    lost = judge(replace(GOOD, **machines(away="was lost", card_full=0.5, crossed_in=0)))
    assert len(lost.reasons) == 1
    assert not {"crossed_packets", "crossed_lost"} & lost.figures.keys()
    assert lost.figures["card_full"] == 0
    assert judge(replace(GOOD, idle=0.03)).reasons[0].startswith("processors were idle 3.0%")
    worst = machines(idle=0.7)
    assert (
        judge(replace(GOOD, idle=0.06, **worst)).warnings[0].startswith("processors of machine 0")
    )


def test_one_cable_in_fifty_may_have_sent_too_little() -> None:
    assert judge(replace(GOOD, links=links(0.85, *[1.0] * 49))).valid


def test_where_no_cable_is_backlogged_the_total_decides() -> None:
    idle = replace(GOOD, links=links(None, None))
    short = judge(idle, ideal_total_bps=1e9, achieved_bps=0.85e9)
    assert not short.valid
    assert "0.85 of the ideal" in short.reasons[0]
    assert judge(idle, 1e9, 0.95e9).valid
    unknown = judge(idle)
    assert unknown.valid
    assert "no cable was backlogged" in unknown.warnings[0]


def test_tcp_may_slow_down_if_packets_of_a_flow_overtake_one_another() -> None:
    idle = replace(GOOD, links=links(None, None))
    slow = judge(idle, ideal_total_bps=1e9, achieved_bps=0.2e9, sprayed=True)
    assert slow.valid
    assert "0.20 of the ideal: TCP slows down" in slow.warnings[0]
    assert not judge(idle, 1e9, 1.1e9, sprayed=True).valid
    # A backlogged cable that sends too little is the machine's.
    assert not judge(replace(GOOD, links=links(0.5)), 1e9, 0.2e9, sprayed=True).valid


def test_with_faults_nobody_knows_the_ideal_and_packets_may_vanish() -> None:
    faulty = replace(GOOD, links=links(None), faults=2, strays={"forwarders: no path": 5000})
    verdict = judge(faulty, ideal_total_bps=1e9, achieved_bps=0.5e9)
    assert verdict.valid
    assert any("there were faults" in warning for warning in verdict.warnings)


def test_a_slow_network_allows_the_canary_a_tenth_of_its_round_trip() -> None:
    slow = replace(GOOD, base_rtt_s=0.080, round_trip=DurationStatistics(400, 1e-4, 0.007, 0.02))
    assert judge(slow).valid
    assert not judge(replace(slow, round_trip=DurationStatistics(400, 1e-4, 0.009, 0.02))).valid


def test_where_the_kernel_forwards_late_programs_are_a_warning() -> None:
    late = replace(
        GOOD, round_trip=DurationStatistics(400, 1e-4, 0.012, 0.02), programs_forward=False
    )
    verdict = judge(late)
    assert verdict.valid
    assert "the kernel alone forwards packets" in verdict.warnings[0]


def test_with_faults_links_may_be_lost() -> None:
    assert judge(replace(GOOD, link_losses=2, faults=1)).valid


def test_a_busy_machine_is_worth_a_warning_each() -> None:
    busy = replace(
        GOOD, pressure=0.4, steal=0.05, idle=0.07, lateness=DurationStatistics(400, 0, 0.004, 0.1)
    )
    verdict = judge(busy)
    assert verdict.valid
    assert len(verdict.warnings) == 4
    assert not judge(replace(GOOD, pressure=None)).warnings  # a kernel that does not tell
