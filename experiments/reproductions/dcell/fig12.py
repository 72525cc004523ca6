"""Guo 2008, Fig. 12: 380 TCP connections all-to-all, over DCell and over a two-level tree.

Paper: 20 servers, DCell_1 of n = 4; the tree joins the same five mini-switches by a sixth. Each
connection carries 5 GB at 1 Gbit/s. The curves are not printed as numbers; section 7.3 gives when
they end, their maximum, and when the connections between neighbours on level-1 links have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import topos
from experiments.reporting.reproduced.result import Point, Reproduction, Settings
from experiments.reproductions.shared import all_to_all, live
from experiments.trials.plans.experiment import System

if TYPE_CHECKING:
    import pandas

    from experiments.trials.runs.records import Run

ABOUT = "total throughput of 380 TCP connections, DCell against a two-level tree (Guo 2008)"
LIVE = True

DCELL, TREE = "DCell", "tree"
SYSTEMS = (System("dcell,4,1", routing="dfr", label=DCELL), System("tree,4,5", label=TREE))
# Section 7.3.
PAPERS_BYTES = 5e9
PAPERS_END_S = {DCELL: 2270.0, TREE: 4460.0}
PAPERS_MOST_GBPS = {DCELL: 9.6, TREE: 3.6}
PAPERS_NEIGHBOURS_END_S = 350.0


def reproduce(settings: Settings) -> Reproduction:
    """Run both all-to-all, in turns."""
    return reproduced(*all_to_all.measured(settings, "dcell-fig12", ABOUT, SYSTEMS, PAPERS_BYTES))


def reproduced(done: Run, scale: live.Scale) -> Reproduction:
    """Return what a run's records say."""
    rows = []
    for system in (DCELL, TREE):
        rows.append(all_to_all.completion(done, system, scale, PAPERS_END_S[system]))
        rows.append(all_to_all.maximum(done, system, scale, PAPERS_MOST_GBPS[system]))
    rows.append(_neighbours(done.of(DCELL).flows, scale))
    paper = PAPERS_END_S[TREE] / PAPERS_END_S[DCELL]
    rows.append(live.speed_up(done, DCELL, TREE, paper))
    return Reproduction(
        name="dcell-fig12",
        title="All-to-all over DCell and a two-level tree",
        x_label="time with 5 GB a flow at 1 Gbit/s, s",
        y_label="total TCP throughput, Gbit/s",
        points=tuple(live.curves(done, scale, (DCELL, TREE))),
        rows=tuple(rows),
        verdict=live.verdict_of(rows),
        reasons=tuple(live.against_ideal(rows)),
        notes=tuple(live.notes(done, scale)),
    )


def _neighbours(flows: pandas.DataFrame, scale: live.Scale) -> Point:
    """Return when the connections over one level-1 link had ended, the last of them."""
    dcell = topos.parse(SYSTEMS[0].network)
    pairs = {(dcell.address(c.a), dcell.address(c.b)) for c in dcell.links() if c.level == 1}
    ends = [
        (source, destination) in pairs or (destination, source) in pairs
        for source, destination in zip(flows.source, flows.destination, strict=True)
    ]
    own = flows[ends]
    return live.spread(
        DCELL,
        "neighbours on level 1 done, s",
        own.groupby("trial").end_s.max(),
        factor=scale.time,
        paper=PAPERS_NEIGHBOURS_END_S,
        ideal=live.ideal_of(own.groupby("trial").ideal_end_s.max()),
    )
