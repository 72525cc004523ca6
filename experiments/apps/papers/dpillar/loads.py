"""Number of flows forwarded by each server of a DPillar: Liao 2012, Fig. 13 and 14.

The two ends of a flow do not count as forwarding it. With MP, each flow takes a random one of its
n/2 clockwise paths. The curves are not printed as numbers; the claims here are from section 5.5.
"""

from __future__ import annotations

import itertools

import numpy

from pillarbox.experiments.apps.papers.dpillar import paths
from pillarbox.experiments.apps.papers.shared.draws import (
    Runs,
    drawn_note,
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
    values_by_run,
)
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, find, point, quoted
from pillarbox.experiments.models.simulator.flow_arrays import all_to_all
from pillarbox.experiments.models.simulator.paths import routing_by_name
from pillarbox.experiments.models.simulator.walks import flows_forwarded
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings

ROUTINGS = {"SP": "sp-cw", "MP": "mp"}
# Share of servers that send to one another; HALVES: each of one half to one of the other half.
HALVES = 0.0
NOTE = (
    "Sources and destinations do not count as forwarding. With MP a flow takes one of its "
    "clockwise paths at random."
)


@seeded_task_function
def measure(spec: str, routing: str, share: float, random: numpy.random.Generator) -> list[int]:
    """Return the number of servers that forward 0, 1, 2, ... flows."""
    dpillar = paths.network(spec)
    order = random.permutation(dpillar.servers)
    ends = all_to_all(order[: round(share * len(order))])
    if share == HALVES:  # each server of one half sends to a random one of the other half
        half = len(order) // 2
        ends = order[:half], order[half:][random.integers(0, len(order) - half, half)]
    choice = random.integers(0, routing_by_name(dpillar, routing).choices(dpillar), len(ends[0]))
    found: list[int] = numpy.bincount(flows_forwarded(dpillar, routing, *ends, choice)).tolist()
    return found


def mean_forwarded_flows(servers: list[int]) -> float:
    """Return the mean of forwarded flows, given how many servers forward 0, 1, 2, ...

    >>> mean_forwarded_flows([1, 0, 3])
    1.5
    """
    return float(numpy.dot(servers, numpy.arange(len(servers))) / sum(servers))


def _run_count(settings: Settings) -> int:
    return simulation_run_count(settings, paths.RUNS, paths.QUICK_RUNS)


# -- Fig. 13: the distribution over the servers, in two patterns -----------------------------------

NETWORKS = ("dpillar,16,3", "dpillar,24,3")
# One-to-one: half of the servers are sources. All-to-all: 1 % of the servers send to one another.
PATTERNS = {"one-to-one": HALVES, "all-to-all": 0.01}
# Section 5.5: with MP, one-to-one, about 95 % of the servers forward at most 4 flows and none more
# than 11, in both networks; in all-to-all those of the larger network forward more.
FEW, PAPERS_FEW_PERCENT, NEAR_PERCENT = 4, 95.0, 3.0
# maximum number of flows that a server forwards: the paper's, and the absolute tolerance, since
# the maximum differs from draw to draw
PAPERS_MOST, NEAR_MOST = 11.0, 2.0
LARGEST_DRAWN = 20  # maximum flows shown; only all-to-all has servers that forward more
ALIKE = 0.1  # relative tolerance for "no noticeable increase" of load with size

Case = tuple[str, str, str]  # network, pattern, name of the routing


@figure(
    "dpillar-fig13",
    "flows that DPillar's servers forward, one-to-one and all-to-all (Liao 2012)",
    "Forwarding loads in DPillar",
    "flows forwarded by a server",
    "servers with at most so many, %",
)
def fig13(settings: Settings) -> Made:
    """Reproduce Liao 2012, Fig. 13: count the flows that each server forwards."""
    cases = list(itertools.product(NETWORKS, PATTERNS, ROUTINGS))
    drawn_cases = [(spec, ROUTINGS[r], PATTERNS[pattern]) for spec, pattern, r in cases]
    runs = simulation_runs(settings, measure, drawn_cases, _run_count(settings))
    return made_13(settings, dict(zip(cases, runs, strict=True)))


def made_13(settings: Settings, runs: dict[Case, Runs]) -> Made:
    """Return Fig. 13's points and verdict from the simulation runs."""
    curves = itertools.chain(*(_curve(case, of.found) for case, of in runs.items()))
    notes = drawn_note(settings, _run_count(settings)), NOTE
    return Made(curves, _claims(runs), notes=notes)


def _curve(case: Case, runs: list[list[int]]) -> list[Point]:
    """Return the percentage of servers that forward at most 0, 1, 2, ... flows."""
    longest = max(map(len, runs))
    table = numpy.zeros((len(runs), longest))
    for row, servers in zip(table, runs, strict=True):
        row[: len(servers)] = servers
    percent = table.cumsum(axis=1) / table.sum(axis=1, keepdims=True) * 100
    shown = percent.T[: LARGEST_DRAWN + 1]
    return [point(_label(case), flows, column.tolist()) for flows, column in enumerate(shown)]


def _claims(runs: dict[Case, Runs]) -> list[Claim]:
    claims, (small, large) = [], NETWORKS
    no_more, no_increase, more = (
        quoted(sentence, "Liao 2012, 5.5")
        for sentence in (
            "The most loaded servers forward no more than 11 flows.",
            "the server forwarding load does not have noticeable increase",
            "servers in (24,3) network need to forward more flows",
        )
    )
    for spec in NETWORKS:
        case = (spec, "one-to-one", "MP")
        name, of = _label(case), runs[case]
        few = of.point(
            name,
            f"servers with at most {FEW} flows, %",
            lambda servers: sum(servers[: FEW + 1]) / sum(servers) * 100,
            PAPERS_FEW_PERCENT,
        )
        most = of.point(
            name, "flows of the most loaded", lambda servers: len(servers) - 1, PAPERS_MOST
        )
        claims += [
            Claim(few, NEAR_PERCENT),
            Claim(most, NEAR_MOST, at_most=True, sentence=no_more),
        ]
    for pattern, first, second, what, near, sentence in (
        ("one-to-one", large, small, "load of (24, 3) over (16, 3)", ALIKE, no_increase),
        ("all-to-all", small, large, "load of (16, 3) over (24, 3)", 0.0, more),
    ):
        above, below = (runs[spec, pattern, "MP"] for spec in (first, second))
        ratios = values_by_run(
            lambda a, b: mean_forwarded_flows(a) / mean_forwarded_flows(b), above, below
        )
        row = point(f"{pattern}, MP", what, ratios, 1.0)
        claims.append(Claim(row, near, at_most=not near, sentence=sentence))
    return claims


def _label(case: Case) -> str:
    spec, pattern, routing = case
    return f"{paths.label(spec)} {pattern}, {routing}"


# -- Fig. 14: the mean while more servers send to one another --------------------------------------

PERCENT, QUICK_PERCENT = tuple(range(1, 10)), (1, 3, 9)
# Section 5.5: mean forwarded flows by percentage of sending servers, and the tolerance.
FIG14 = {3: (5.0, 0.5), 9: (45.0, 3.0)}


@figure(
    "dpillar-fig14",
    "flows that DPillar's servers forward while more take part (Liao 2012)",
    "Forwarding load of DPillar (16, 3)",
    "servers that take part, %",
    "flows forwarded by a server",
)
def fig14(settings: Settings) -> Made:
    """Reproduce Liao 2012, Fig. 14: forwarded flows for increasing shares of sending servers."""
    percents = QUICK_PERCENT if settings.quick else PERCENT
    cases = [(name, percent) for name in reversed(ROUTINGS) for percent in percents]
    drawn_cases = [(paths.SPEC, ROUTINGS[name], percent / 100) for name, percent in cases]
    runs = simulation_runs(settings, measure, drawn_cases, _run_count(settings))
    points = [
        one.point(
            name, x, mean_forwarded_flows, FIG14[x][0] if name == "MP" and x in FIG14 else None
        )
        for one, (name, x) in zip(runs, cases, strict=True)
    ]
    claims = [Claim(find(points, "MP", percent), near) for percent, (_, near) in FIG14.items()]
    paper = "The paper's figure has no SP."
    notes = drawn_note(settings, _run_count(settings)), NOTE, paper
    return Made(points, claims, notes=notes)
