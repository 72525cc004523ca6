"""Guo 2008, Fig. 12: 380 TCP connections all-to-all, over DCell and over a two-level tree.

Paper: 20 servers, DCell_1 of n = 4; the tree joins the same five mini-switches by a sixth. Each
connection carries 5 GB at 1 Gbit/s. The curves are not printed as numbers; section 7.3 gives when
they end, their maximum, and when the connections between neighbours on level-1 links have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import topos
from experiments.plans.experiment import Experiment, System, Workload
from experiments.reproductions import _live
from experiments.reproductions.result import Point, Reproduction, Settings

if TYPE_CHECKING:
    import pandas

    from experiments.runs.records import Run

ABOUT = "total throughput of 380 TCP connections, DCell against a two-level tree (Guo 2008)"
LIVE = True

DCELL, TREE = "DCell", "tree"
SYSTEMS = (System("dcell,4,1", label=DCELL), System("tree,4,5", label=TREE))
# Section 7.3.
PAPERS_BYTES = 5e9
PAPERS_END_S = {DCELL: 2270.0, TREE: 4460.0}
PAPERS_MOST_GBPS = {DCELL: 9.6, TREE: 3.6}
PAPERS_NEIGHBOURS_END_S = 350.0
# Of each flow, as seconds of a cable's time: the fullest link of DCell carries 27, the tree's 64.
SECONDS, QUICK_SECONDS = 0.3, 0.06
TIMEOUT_S = 150.0


def reproduce(settings: Settings) -> Reproduction:
    """Run both all-to-all, in turns."""
    systems = _live.with_rate(settings, SYSTEMS)
    rate_mbit = systems[0].rate_mbit or 0.0
    seconds = QUICK_SECONDS if settings.quick else SECONDS
    volume_bytes = int(seconds * rate_mbit * 125_000)
    experiment = Experiment(
        name="dcell-fig12",
        about=ABOUT,
        systems=systems,
        workload=Workload("all-to-all", volume_bytes, tool="generator", timeout_s=TIMEOUT_S),
        repeats=settings.repeats or (1 if settings.quick else 2),
        seed=settings.seed,
    )
    done = _live.run(settings, experiment)
    return reproduced(done, _live.Scale.to_paper(rate_mbit, volume_bytes, PAPERS_BYTES))


def reproduced(done: Run, scale: _live.Scale) -> Reproduction:
    """Return what a run's records say."""
    rows = [row for system in (DCELL, TREE) for row in _rows(done.of(system), system, scale)]
    rows.append(_neighbours(done.of(DCELL).flows, scale))
    paper = PAPERS_END_S[TREE] / PAPERS_END_S[DCELL]
    rows.append(_live.speed_up(done, DCELL, TREE, paper))
    return Reproduction(
        name="dcell-fig12",
        title="All-to-all over DCell and over a two-level tree, as with 5 GB a flow at 1 Gbit/s",
        x_label="time, s",
        y_label="total TCP throughput, Gbit/s",
        points=tuple(_live.curves(done, scale)),
        rows=tuple(rows),
        verdict=_live.verdict_of(rows),
        reasons=tuple(_live.against_ideal(rows)),
        notes=tuple(_live.notes(done, scale)),
    )


def _rows(done: Run, system: str, scale: _live.Scale) -> list[Point]:
    """Return when all was done, and the largest total throughput of a sixtieth of that time."""
    trials, flows = done.trials, done.flows
    most = max(point.ours or 0.0 for point in _live.curves(done, scale) if point.series == system)
    first = flows[flows.trial == flows.trial.min()]
    most_ideal = float(first.ideal_bps.sum()) * scale.rate / 1e9
    return [
        _live.spread(
            system,
            "completion, s",
            trials.completion_s,
            factor=scale.time,
            paper=PAPERS_END_S[system],
            ideal=_live.ideal_of(trials.ideal_s),
        ),
        Point(system, "maximum, Gbit/s", most, PAPERS_MOST_GBPS[system], ideal=most_ideal),
    ]


def _neighbours(flows: pandas.DataFrame, scale: _live.Scale) -> Point:
    """Return when the connections over one level-1 link had ended, the last of them."""
    dcell = topos.parse(SYSTEMS[0].network)
    pairs = {(dcell.address(c.a), dcell.address(c.b)) for c in dcell.links() if c.level == 1}
    ends = [
        (source, destination) in pairs or (destination, source) in pairs
        for source, destination in zip(flows.source, flows.destination, strict=True)
    ]
    own = flows[ends]
    return _live.spread(
        DCELL,
        "neighbours on level 1 done, s",
        own.groupby("trial").end_s.max(),
        factor=scale.time,
        paper=PAPERS_NEIGHBOURS_END_S,
        ideal=_live.ideal_of(own.groupby("trial").ideal_end_s.max()),
    )
