"""Verdicts on a quiet machine, on a busy machine, and at a rate that is too high."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pillarbox.experiments.base.processes import beside
from tests.benches._frame import Row

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trials.greedy import Tried

NETWORKS = ("bcube,2,1", "dcell,2,1")
QUICK_NETWORKS = ("bcube,2,1",)
TURNS, QUICK_TURNS = 10, 1
SECONDS, QUICK_SECONDS = 2.0, 0.6
QUICK_RATE_MBIT = 10.0
TOO_FAST_MBIT = 100_000.0  # a link rate that no machine can emulate, in Mbit/s
QUIET, BURNERS, TOO_FAST = "quiet", "a burner on each processor", "rate far too high"
SHOWN = ("conserved_median", "of_ideal", "pacing_p99_ms", "canary_p99_ms", "foreign", "idle")
NOTES = f"""
All-to-all of greedy flows for {SECONDS:.0f} seconds, {TURNS} turns of each case, one case after the
other. rate_mbit: the rate that `pillarbox calibrate` finds at the start, on the machine without
other load. A burner is a process in a busy loop. as_wanted: number of turns that were valid on the
quiet machine, or invalid in the other two cases. The figures are those of the worst turn, which has
the largest canary_p99_ms; docs/trust.md explains them.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each network and each disturbance under which trials are judged."""
    for network in QUICK_NETWORKS if quick else NETWORKS:
        if os.geteuid():
            yield _row(network, QUIET, None, [], "skipped: network namespaces need root")
            continue
        yield from _cases(network, quick)


def _cases(network: str, quick: bool) -> Iterator[Row]:
    turns, seconds = (QUICK_TURNS, QUICK_SECONDS) if quick else (TURNS, SECONDS)
    rate_mbit = QUICK_RATE_MBIT if quick else _calibrated(network)
    cases: dict[str, list[Tried]] = {QUIET: [], BURNERS: [], TOO_FAST: []}
    for turn in range(turns):
        for case, found in cases.items():
            found.append(_disturbed_trial(network, case, rate_mbit, seconds, turn))
    for case, found in cases.items():
        good = sum(one.verdict.valid == (case == QUIET) for one in found)
        why = next((r for one in found for r in one.verdict.reasons), "") if case == QUIET else ""
        # A quick benchmark, perhaps on a busy machine, reports wrong verdicts but does not fail.
        missed = "" if good == turns or (quick and case == QUIET) else f"missed: {why}".strip()
        rate = TOO_FAST_MBIT if case == TOO_FAST else rate_mbit
        yield _row(network, case, rate, found, missed or "ok", f"{good} of {turns}")


def _disturbed_trial(network: str, case: str, rate_mbit: float, seconds: float, seed: int) -> Tried:
    from pillarbox.experiments.runs.plans.experiment import System
    from pillarbox.experiments.runs.trials.greedy import greedy, tried

    rate = TOO_FAST_MBIT if case == TOO_FAST else rate_mbit
    system = System(network, rate_mbit=rate)
    return tried(
        system, greedy(system, seconds), seed, busy_processors() if case == BURNERS else None
    )


def _calibrated(network: str) -> float:
    from pillarbox.experiments.runs.plans.experiment import System
    from pillarbox.experiments.runs.trials.calibration import calibrated_rate

    return calibrated_rate(System(network), again=True)


def _row(
    network: str,
    case: str,
    rate_mbit: float | None,
    found: list[Tried],
    outcome: str,
    as_wanted: str = "",
) -> Row:
    row: Row = {"network": network, "case": case, "rate_mbit": rate_mbit, "as_wanted": as_wanted}
    figures = [one.verdict.figures for one in found]
    worst = max(figures, key=lambda one: one.get("canary_p99_ms", 0.0), default={})
    row |= {name: worst.get(name) for name in SHOWN}
    return row | {"outcome": outcome}


def busy_processors() -> AbstractContextManager[None]:
    """Keep every processor busy for the duration of a `with` block."""
    return beside(*[_count_for_ever] * (os.cpu_count() or 1))


def _count_for_ever() -> None:
    deadline = (
        time.monotonic() + 600
    )  # the busy loop ends after 10 min if the bench does not kill it
    while time.monotonic() < deadline:
        pass
