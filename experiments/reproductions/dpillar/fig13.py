"""Liao 2012, Fig. 13: the distribution of forwarding load over the servers, in two patterns.

One-to-one: half of the servers are sources, and each sends a flow to a random one of the others.
All-to-all: 1 % of the servers send to one another. The curves are not printed as numbers. Section
5.5 says that with MP, one-to-one, about 95 % of the servers forward at most 4 flows and none more
than 11, in both networks; and that in all-to-all those of the larger network forward more.
"""

from __future__ import annotations

import itertools

import numpy

from experiments.reporting.reproduced.result import Point, Reproduction, Settings
from experiments.reproductions.shared import dpillar_load, dpillar_paths
from experiments.reproductions.shared.dpillar_load import HALVES, ROUTINGS, Task, mean, measure
from experiments.reproductions.shared.sampled import Claim, point, verdict
from experiments.reproductions.shared.sweep import swept

ABOUT = "flows that DPillar's servers forward, one-to-one and all-to-all (Liao 2012)"
LIVE = False

NETWORKS = ("dpillar,16,3", "dpillar,24,3")
PATTERNS = {"one-to-one": HALVES, "all-to-all": 0.01}
# Section 5.5.
FEW, PAPERS_FEW_PERCENT, NEAR_PERCENT = 4, 95.0, 3.0
PAPERS_MOST, NEAR_MOST = 11.0, 2.0  # the largest of thousands differs from draw to draw
LARGEST_DRAWN = 20  # flows; only all-to-all has servers that forward more
ALIKE = 0.1  # "no noticeable increase" from one network to the other

Case = tuple[str, str, str]  # network, pattern, name of the routing
Runs = dict[Case, list[list[int]]]  # of each run, how many servers forward 0, 1, 2, ... flows


def reproduce(settings: Settings) -> Reproduction:
    """Count what each server forwards."""
    count = dpillar_paths.repeats(settings)
    cases = list(itertools.product(NETWORKS, PATTERNS, ROUTINGS))
    tasks = [
        Task(spec, ROUTINGS[routing], PATTERNS[pattern], settings.seed, run)
        for spec, pattern, routing in cases
        for run in range(count)
    ]
    found = swept(settings, measure, tasks)
    return reproduced(settings, {c: found[i * count :][:count] for i, c in enumerate(cases)})


def reproduced(settings: Settings, runs: Runs) -> Reproduction:
    """Return what the runs say."""
    claims = list(_claims(runs))
    word, reasons = verdict(claims)
    return Reproduction(
        name="dpillar-fig13",
        title="Forwarding loads in DPillar",
        x_label="flows forwarded by a server",
        y_label="servers with at most so many, %",
        points=tuple(itertools.chain(*(_curve(case, of) for case, of in runs.items()))),
        rows=tuple(claim.row for claim in claims),
        verdict=word,
        reasons=reasons,
        notes=(
            f"Mean of {dpillar_paths.repeats(settings)} runs and its 95 % confidence interval, "
            f"seed {settings.seed}. {dpillar_load.NOTE}",
        ),
    )


def _curve(case: Case, runs: list[list[int]]) -> list[Point]:
    """Return which percentage of the servers forwards at most 0, 1, 2, ... flows."""
    longest = max(map(len, runs))
    table = numpy.zeros((len(runs), longest))
    for row, servers in zip(table, runs, strict=True):
        row[: len(servers)] = servers
    percent = table.cumsum(axis=1) / table.sum(axis=1, keepdims=True) * 100
    drawn = percent.T[: LARGEST_DRAWN + 1]
    return [point(_label(case), flows, column.tolist()) for flows, column in enumerate(drawn)]


def _claims(runs: Runs) -> list[Claim]:
    claims, (small, large) = [], NETWORKS
    for spec in NETWORKS:
        case = (spec, "one-to-one", "MP")
        few = [sum(servers[: FEW + 1]) / sum(servers) * 100 for servers in runs[case]]
        what = f"servers with at most {FEW} flows, %"
        claims.append(Claim(point(_label(case), what, few, PAPERS_FEW_PERCENT), NEAR_PERCENT))
        most = [len(servers) - 1 for servers in runs[case]]
        row = point(_label(case), "flows of the most loaded", most, PAPERS_MOST)
        claims.append(Claim(row, NEAR_MOST, at_most=True))
    for pattern, at_most in (("one-to-one", False), ("all-to-all", True)):
        loads = [
            numpy.mean([mean(servers) for servers in runs[spec, pattern, "MP"]])
            for spec in ((small, large) if at_most else (large, small))
        ]
        who = f"{pattern}, MP"
        what = "load of (16, 3) over (24, 3)" if at_most else "load of (24, 3) over (16, 3)"
        row = Point(who, what, float(loads[0] / loads[1]), 1.0)
        claims.append(Claim(row, 0.0 if at_most else ALIKE, at_most=at_most))
    return claims


def _label(case: Case) -> str:
    spec, pattern, routing = case
    return f"{dpillar_paths.label(spec)} {pattern}, {routing}"
