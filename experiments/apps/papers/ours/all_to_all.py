"""Not from a paper: four networks, a tree and a fat-tree with the same all-to-all traffic.

Every server sends the same volume to every other, over cables of the same rate. The networks have
different numbers of servers: a server's throughput, as a share of a cable's rate, is compared.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from experiments.apps.papers.shared import all_to_all, live_experiments
from experiments.apps.papers.shared.figure import Claim, Made, figure, verdict
from experiments.runs.plans.experiment import System
from experiments.runs.reporting.reproduced.result import Point, Settings
from topos.base.spec import parse

if TYPE_CHECKING:
    from experiments.runs.trials.records import Run

ABOUT = "four networks, a tree and a fat-tree under the same all-to-all traffic (no paper's)"

SYSTEMS = (
    System("dcell,4,1", routing="dfr", label="DCell"),
    System("bcube,4,1", routing="bsr", label="BCube"),
    # DPillar's multipath routing: clockwise paths only would leave half of every cable unused.
    System("dpillar,4,3", routing="mp-both", label="DPillar"),
    System("ficonn,6,1", routing="tar", label="FiConn"),
    System("tree,4,4", label="tree"),
    System("fattree,4", label="fat-tree"),
)
NETWORKS = {system.name: parse(system.network) for system in SYSTEMS}
BYTES = 1e9  # volume of each flow at 1 Gbit/s, chosen for round numbers
GOAL = 0.9  # minimum share of the ideal goodput
SERIES = "throughput of a server"


@figure(
    "six-all-to-all",
    ABOUT,
    "Six networks under the same all-to-all",
    "network",
    "what a server sends, of a cable's rate",
    live=True,
    kind="bars",
)
def six(settings: Settings) -> Made:
    """Run all-to-all traffic over all six networks in turns."""
    return made(*all_to_all.run(settings, "six-all-to-all", ABOUT, SYSTEMS, BYTES))


def made(done: Run, scale: live_experiments.Scale) -> Made:
    """Return the figure's points and verdict from a run's records."""
    valid = live_experiments.without_invalid_trials(done)
    points = [_point(valid, system, scale) for system in done.systems]
    claims = [Claim(p, 0.0, at_least=True, wanted=GOAL * (p.ideal or math.inf)) for p in points]
    word, short = verdict(claims)
    rows = list(points)
    for system in done.systems:
        trials = valid.of(system).trials
        rows.append(all_to_all.completion_point(valid, system, scale))
        rows.append(live_experiments.mean_of_trials(system, "fairness", trials.fairness))
        rows.append(
            live_experiments.mean_of_trials(system, "spread of links, of mean", trials.link_spread)
        )
    return Made(
        points,
        rows=rows,
        judged=(word, [*short, *_reasons(points)]),
        notes=(
            f"No paper has this figure. Agreement: at least {GOAL:g} of the ideal.",
            ", ".join(f"{name}: {found.spec}" for name, found in NETWORKS.items()) + ".",
            *live_experiments.notes(done, scale=scale),
        ),
    )


def _point(done: Run, system: str, scale: live_experiments.Scale) -> Point:
    trials = done.of(system).trials
    factor = scale.rate / NETWORKS[system].servers / (live_experiments.PAPERS_MBIT * 1e6)
    ideal = live_experiments.ideal_of_trials(trials.ideal_bps)
    return live_experiments.mean_of_trials(
        SERIES, system, trials.goodput_bps, factor=factor, ideal=ideal
    )


def _reasons(points: list[Point]) -> list[str]:
    """Return sentences on each network's share of its ideal, and on their comparison."""
    known = [point for point in points if point.ours and point.ideal]
    reasons = [f"{p.x}: {(p.ours or 0) / (p.ideal or 1):.2f} of its ideal" for p in known]
    if known:
        best, worst = (choose(known, key=lambda p: p.ours or 0) for choose in (max, min))
        times = (best.ours or 0) / (worst.ours or 1)
        reasons.append(f"Throughput of a server: {best.x} {times:.2f} times {worst.x}.")
    return reasons
