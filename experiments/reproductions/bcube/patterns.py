"""Guo 2009, Fig. 10: BCube against a two-level tree, for four patterns of traffic.

Paper: 16 servers at 1 Gbit/s, an MTU of 9 KB. One-to-one: two connections from 00 to 13, which
BCube puts on two disjoint paths. One-to-several: 10 GB from 00 to 01 and 10, over a complete graph,
against a pipeline over the tree. One-to-all: 10 GB to all, over spanning trees, against a pipeline.
All-to-all: Fig. 11. The bars are not printed as numbers; section 7.5 gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from experiments.reporting.reproduced.result import Point, Settings
from experiments.reproductions.shared import live
from experiments.reproductions.shared.figure import Made, figure
from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import Experiment, System
from topos.base.spec import parse

if TYPE_CHECKING:
    import pandas

    from experiments.trials.runs.records import Run

ABOUT = "BCube against a two-level tree: one to one, to several, to all, all to all (Guo 2009)"

BCUBE, TREE = "BCube", "tree"
SYSTEMS = (System("bcube,4,1", label=BCUBE), System("tree,4,4", label=TREE))
TIMEOUT_S = 120.0
QUICK = 0.25  # of the volume
ENDS = {"source": "0.0", "destination": "1.3", "flows": 2}
FILE = {"distribute": True}
TWICE = {"BCube": 2.0, "tree": 1.0}


@dataclass(frozen=True)
class Case:
    """A pattern, and the paper's bars: what a server sends or gets, in Gbit/s."""

    pattern: str
    papers_gbps: dict[str, float]
    seconds: float  # of a cable's time: what one flow, or the file, takes of it
    routing: str = "bsr"  # of BCube
    timers: str = "paper"
    options: dict[str, Any] = field(default_factory=dict)
    ideals: dict[str, float] | None = None  # cables at work for a server; the records' if None
    settled: bool = False  # goes on for `seconds`, of which the second half counts

    @property
    def is_file(self) -> bool:
        """Tell whether a file is distributed, or flows run beside one another."""
        return bool(self.options.get("distribute"))


# Section 7.5. One-to-several took 47.9 s and 89 s for 10 GB. Hops of complete graphs and trees are
# single cables, and no two share one: nothing is left for a source routing to choose. One-to-one
# is over before the paper's timers, made for 10 GB, would let a connection look for its own path,
# and both may begin with the same one.
CASES = (
    Case("one-to-one", {BCUBE: 1.93, TREE: 0.99}, 8.0, timers="fast", options=ENDS, settled=True),
    Case(
        "one-to-several",
        {BCUBE: 80 / 47.9, TREE: 80 / 89.0},
        4.0,
        "bcube",
        options={**FILE, "receivers": "0.1,1.0"},
        ideals=TWICE,
    ),
    Case("one-to-all", {BCUBE: 1.6, TREE: 0.88}, 4.0, "bcube", options=FILE, ideals=TWICE),
    Case("all-to-all", {BCUBE: 0.75, TREE: 0.26}, 0.3),
)


@figure(
    "bcube-fig10",
    ABOUT,
    "BCube against a two-level tree",
    "traffic",
    "throughput of a server, Gbit/s",
    live=True,
    kind="bars",
)
def fig10(settings: Settings) -> Made:
    """Run each pattern over both, in turns."""
    systems = live.with_rate(settings, SYSTEMS)
    runs = [live.run(settings, _experiment(settings, case, systems)) for case in CASES]
    return made(runs)


def _experiment(settings: Settings, case: Case, systems: tuple[System, ...]) -> Experiment:
    seconds = case.seconds * (QUICK if settings.quick else 1.0)
    volume_bytes = int(seconds * (systems[0].rate_mbit or 0.0) * 125_000)
    bcube, tree = systems
    return Experiment(
        name=f"bcube-fig10-{case.pattern}",
        about=ABOUT,
        systems=(
            replace(bcube, routing=case.routing, timers=case.timers),
            replace(tree, timers=case.timers),
        ),
        workload=Workload(
            case.pattern,
            None if case.settled else volume_bytes,
            seconds if case.settled else None,
            tool="generator",
            timeout_s=TIMEOUT_S,
            options=case.options,
        ),
        repeats=live.repeats(settings),
        seed=settings.seed,
    )


def made(runs: list[Run]) -> Made:
    """Return what the runs' records say, one run a case."""
    points, speed_ups, notes = [], [], []
    for case, done in zip(CASES, runs, strict=True):
        plan = done.manifest["plan"]
        scale = live.Scale(live.PAPERS_MBIT / plan["systems"][0]["rate_mbit"])
        points += [_point(case, done, system, scale) for system in (BCUBE, TREE)]
        speed_ups.append(_ratio(*points[-2:]))
        notes += live.notes(done, scale)
    rows = (*points, *speed_ups)
    judged = live.verdict_of(rows), live.against_ideal(rows)
    return Made(points, rows=rows, judged=judged, notes=notes)


def _point(case: Case, done: Run, system: str, scale: live.Scale) -> Point:
    """Return a server's throughput: of the file, of the pair, or of each that sends."""
    trials = done.of(system).trials
    plan = done.manifest["plan"]
    values: pandas.Series = trials.goodput_bps
    ideal = live.ideal_of(trials.ideal_bps)
    factor = scale.rate / 1e9
    if case.settled:
        values = _second_half(done.of(system).intervals, plan["workload"]["duration_s"])
    elif case.is_file:
        values = plan["workload"]["volume_bytes"] * 8 / trials.completion_s
    elif case.pattern == "all-to-all":
        factor /= parse(next(s.network for s in SYSTEMS if s.label == system)).servers
    if case.ideals:
        from experiments.analysis.fluid.ideal import header_bytes, header_efficiency

        own = next(one for one in plan["systems"] if one["label"] == system)
        header = header_bytes(parse(own["network"]), own["routing"])
        ideal = case.ideals[system] * own["rate_mbit"] * 1e6 * header_efficiency(header)
    paper = case.papers_gbps[system]
    return live.spread(system, case.pattern, values, factor=factor, paper=paper, ideal=ideal)


def _second_half(intervals: pandas.DataFrame, duration_s: float) -> pandas.Series:
    """Return each trial's goodput in the second half of its time."""
    late = intervals[(intervals.begin_s >= duration_s / 2) & (intervals.end_s <= duration_s)]
    bits: pandas.Series = late.groupby("trial").delivered_bytes.sum() * 8
    trials = late.groupby("trial")
    return bits / (trials.end_s.max() - trials.begin_s.min())


def _ratio(bcube: Point, tree: Point) -> Point:
    """Return how many times the tree's throughput BCube has."""

    def times(value: str) -> float | None:
        a, b = getattr(bcube, value), getattr(tree, value)
        return a / b if a and b else None

    paper, ours, ideal = (times(value) for value in ("paper", "ours", "ideal"))
    return Point(f"{BCUBE} / {TREE}", bcube.x, ours, paper, ideal=ideal)
