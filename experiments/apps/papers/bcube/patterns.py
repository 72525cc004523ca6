"""Guo 2009, Fig. 10: BCube compared with a two-level tree, for four traffic patterns.

Paper: 16 servers at 1 Gbit/s, an MTU of 9 KB. One-to-one: two connections from 00 to 13, which
BCube puts on two disjoint paths. One-to-several: 10 GB from 00 to 01 and 10, over a complete graph,
compared with a pipeline over the tree. One-to-all: 10 GB to all servers, over spanning trees,
compared with a pipeline. All-to-all: Fig. 11. The bars are not printed as numbers; section 7.5
gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from experiments.apps.papers.shared import live_experiments
from experiments.apps.papers.shared.figure import Made, figure
from experiments.models.workloads.workload import Workload
from experiments.runs.plans.experiment import Experiment, System
from experiments.runs.reporting.reproduced.result import Point, Settings
from hosts.base.timers import PAPER
from topos.base.spec import parse

if TYPE_CHECKING:
    import pandas

    from experiments.runs.trials.records import Run

ABOUT = "BCube against a two-level tree: one to one, to several, to all, all to all (Guo 2009)"

BCUBE, TREE = "BCube", "tree"
SYSTEMS = (
    System("bcube,4,1", timers="paper", label=BCUBE),
    System("tree,4,4", timers="paper", label=TREE),
)
TIMEOUT_S = 120.0
QUICK = 0.25  # fraction of the volume that a quick figure sends
ENDS = {"source": "0.0", "destination": "1.3", "flows": 2}
FILE = {"distribute": True}
# Time until both connections have probed again, and TCP has found the path's bandwidth.
SETTLE_S = PAPER.longest_probe_interval_s + PAPER.probe_timeout_s + 1.0
TWICE = {"BCube": 2.0, "tree": 1.0}


@dataclass(frozen=True)
class PatternCase:
    """A traffic pattern, and the paper's bars: what a server sends or receives, in Gbit/s."""

    pattern: str
    papers_gbps: dict[str, float]
    seconds: float  # volume of a flow or of the file, as seconds of a cable's rate
    routing: str = "bsr"  # routing that BCube uses for this pattern
    options: dict[str, Any] = field(default_factory=dict)
    # ideal number of cables that a server uses; None: the ideal in the trial records
    ideals: dict[str, float] | None = None
    # whether the flows' `seconds` begin after all connections have probed for a path
    settled: bool = False

    @property
    def is_file(self) -> bool:
        """True if the traffic pattern sends one file to several servers, not concurrent flows."""
        return bool(self.options.get("distribute"))


# Section 7.5. One-to-several took 47.9 s and 89 s for 10 GB. Hops of complete graphs and trees are
# single cables, and no two share one: a source routing has no choice. Both connections of
# one-to-one start simultaneously and may take the same path until one of them probes again; for the
# paper's 10 GB that time is short. So only data carried after it counts.
CASES = (
    PatternCase("one-to-one", {BCUBE: 1.93, TREE: 0.99}, 6.0, options=ENDS, settled=True),
    PatternCase(
        "one-to-several",
        {BCUBE: 80 / 47.9, TREE: 80 / 89.0},
        4.0,
        "bcube",
        options={**FILE, "receivers": "0.1,1.0"},
        ideals=TWICE,
    ),
    PatternCase("one-to-all", {BCUBE: 1.6, TREE: 0.88}, 4.0, "bcube", options=FILE, ideals=TWICE),
    PatternCase("all-to-all", {BCUBE: 0.75, TREE: 0.26}, 0.3),
)


@figure(
    "bcube-fig10",
    ABOUT,
    "BCube and a two-level tree",
    "traffic",
    "throughput of a server, Gbit/s",
    live=True,
    kind="bars",
)
def fig10(settings: Settings) -> Made:
    """Reproduce Guo 2009, Fig. 10: run each traffic pattern over BCube and the tree in turns."""
    systems = live_experiments.with_rate(settings, SYSTEMS)
    runs = [live_experiments.run(settings, _experiment(settings, case, systems)) for case in CASES]
    return made(runs)


def _experiment(settings: Settings, case: PatternCase, systems: tuple[System, ...]) -> Experiment:
    seconds = case.seconds * (QUICK if settings.quick else 1.0)
    seconds += SETTLE_S if case.settled else 0.0
    volume_bytes = int(seconds * (systems[0].rate_mbit or 0.0) * 125_000)
    bcube, tree = systems
    return Experiment(
        name=f"bcube-fig10-{case.pattern}",
        about=ABOUT,
        systems=(
            replace(bcube, routing=case.routing),
            tree,
        ),
        workload=Workload(
            case.pattern,
            None if case.settled else volume_bytes,
            seconds if case.settled else None,
            tool="generator",
            timeout_s=TIMEOUT_S,
            options=case.options,
        ),
        repeats=live_experiments.trial_count(settings),
        seed=settings.seed,
    )


def made(runs: list[Run]) -> Made:
    """Return the figure's points and verdict from the records of one run per pattern."""
    points, speed_ups = [], []
    for case, done in zip(CASES, runs, strict=True):
        plan = done.manifest["plan"]
        scale = live_experiments.Scale(
            live_experiments.PAPERS_MBIT / plan["systems"][0]["rate_mbit"]
        )
        valid = live_experiments.without_invalid_trials(done)
        points += [_point(case, valid, system, scale) for system in (BCUBE, TREE)]
        speed_ups.append(_ratio(case, valid, *points[-2:]))
    rows = (*points, *speed_ups)
    notes = live_experiments.notes(*runs, scale=scale)
    return Made(points, rows=rows, judged=live_experiments.verdict_with_ideals(rows), notes=notes)


def _values(case: PatternCase, done: Run, system: str) -> pandas.Series:
    """Return each trial's throughput in bit/s: of the file, the server pair, or all senders."""
    trials = done.of(system).trials
    plan = done.manifest["plan"]
    values: pandas.Series = trials.goodput_bps
    if case.settled:
        carried = _goodput_after_settling(done.of(system).intervals, plan["workload"]["duration_s"])
        values = trials.trial.map(carried)
    elif case.is_file:
        values = plan["workload"]["volume_bytes"] * 8 / trials.completion_s
    return values.set_axis(trials["repeat"])


def _point(case: PatternCase, done: Run, system: str, scale: live_experiments.Scale) -> Point:
    """Return a server's throughput in a traffic pattern, as a point of the figure."""
    plan = done.manifest["plan"]
    ideal = live_experiments.ideal_of_trials(done.of(system).trials.ideal_bps)
    factor = scale.rate / 1e9
    if case.pattern == "all-to-all":
        factor /= parse(next(s.network for s in SYSTEMS if s.label == system)).servers
    if case.ideals:
        from experiments.models.fluid.ideal import header_bytes, header_efficiency

        own = next(one for one in plan["systems"] if one["label"] == system)
        header = header_bytes(parse(own["network"]), own["routing"])
        ideal = case.ideals[system] * own["rate_mbit"] * 1e6 * header_efficiency(header, own["mtu"])
    paper = case.papers_gbps[system]
    values = _values(case, done, system)
    return live_experiments.mean_of_trials(
        system, case.pattern, values, factor=factor, paper=paper, ideal=ideal
    )


def _goodput_after_settling(intervals: pandas.DataFrame, duration_s: float) -> pandas.Series:
    """Return each trial's goodput after both connections had time to find separate paths."""
    late = intervals[(intervals.begin_s >= SETTLE_S) & (intervals.end_s <= duration_s)]
    bits: pandas.Series = late.groupby("trial").delivered_bytes.sum() * 8
    trials = late.groupby("trial")
    return bits / (trials.end_s.max() - trials.begin_s.min())


def _ratio(case: PatternCase, done: Run, bcube: Point, tree: Point) -> Point:
    """Return the ratio of BCube's throughput to the tree's, by pairs of trials."""

    def times(value: str) -> float | None:
        a, b = getattr(bcube, value), getattr(tree, value)
        return a / b if a and b else None

    ratios = _values(case, done, BCUBE) / _values(case, done, TREE)
    # Total rates suffice, as BCube and the tree have the same number of servers.
    series = f"{BCUBE} / {TREE}"
    return live_experiments.mean_of_trials(
        series, bcube.x, ratios, paper=times("paper"), ideal=times("ideal")
    )
