"""False link-down detections and goodput under load, with fast and with the papers' timers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.benches._frame import Row
from tests.benches.trust import busy_processors

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trials.greedy import Tried

NETWORKS = ("bcube,4,1", "dcell,4,1", "dpillar,4,2", "dpillar,4,3", "ficonn,4,1", "ficonn,4,2")
QUICK_NETWORKS = ("bcube,2,1",)
TURNS, QUICK_TURNS = 10, 1
SECONDS, QUICK_SECONDS = 4.0, 0.6
QUIET, BUSY = "no other load", "a burner on each processor"
TIMERS = {QUIET: ("fast", "paper"), BUSY: ("fast",)}
LEAST_RATIO = 0.97
NOTES = f"""
All-to-all, greedy flows for {SECONDS:.0f} s at 100 Mbit/s and an MTU of 9000, {TURNS} turns. In
each turn both timers without other load, and fast timers with a busy loop on each processor. No
link fails. ratio: goodput with fast timers relative to the papers' timers, the mean over turns; the
goal is {LEAST_RATIO}. wrongly_down: number of false link-down detections in all turns; the goal is
0, also under load, for which goodput has no goal and trials may be invalid.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each network and case."""
    for network in QUICK_NETWORKS if quick else NETWORKS:
        if os.geteuid():
            yield _row(network, QUIET, {}, "skipped: network namespaces need root")
        else:
            yield from _cases(network, quick)


def _cases(network: str, quick: bool) -> Iterator[Row]:
    turns, seconds = (QUICK_TURNS, QUICK_SECONDS) if quick else (TURNS, SECONDS)
    found: dict[str, dict[str, list[Tried]]] = {
        case: {name: [] for name in timers} for case, timers in TIMERS.items()
    }
    for turn in range(turns):
        for case, by_timers in found.items():
            for timers, tries in by_timers.items():
                tries.append(_measured_trial(network, timers, seconds, turn, case))
    for case, by_timers in found.items():
        row = _row(network, case, by_timers, "ok")
        slow = case == QUIET and (row["ratio"] or 0.0) < LEAST_RATIO
        if row["wrongly_down"]:
            row["outcome"] = "missed: working links were declared down"
        elif slow and not quick:  # a quick run, perhaps on a busy machine, has no goal
            row["outcome"] = "missed: fast timers reduce goodput"
        yield row


def _measured_trial(network: str, timers: str, seconds: float, turn: int, case: str) -> Tried:
    from pillarbox.experiments.runs.plans.experiment import System
    from pillarbox.experiments.runs.trials.greedy import all_to_all, tried

    system = System(network, timers=timers)
    return tried(system, all_to_all(seconds), turn, busy_processors() if case == BUSY else None)


def _row(network: str, case: str, found: dict[str, list[Tried]], outcome: str) -> Row:
    from pillarbox.experiments.runs.trials.statistics import compare

    goodput = {
        timers: {turn: one.goodput_bps for turn, one in enumerate(tries)}
        for timers, tries in found.items()
    }
    mean = {timers: sum(values.values()) / len(values) / 1e6 for timers, values in goodput.items()}
    both = goodput.keys() >= set(TIMERS[QUIET])
    ratio = compare(goodput["fast"], goodput["paper"]).ratio if both else None
    fast = found.get("fast", [])
    return {
        "network": network,
        "case": case,
        "turns": len(fast),
        "fast_mbit": mean.get("fast"),
        "paper_mbit": mean.get("paper"),
        "ratio": ratio.value if ratio and ratio.repeats else None,
        "wrongly_down": int(sum(one.verdict.figures.get("link_losses", 0) for one in fast)),
        "valid": sum(one.verdict.valid for one in fast),
        "outcome": outcome,
    }
