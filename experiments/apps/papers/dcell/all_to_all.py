"""Guo 2008, Fig. 12: 380 TCP connections all-to-all, over DCell and over a two-level tree.

Paper: 20 servers, DCell_1 of n = 4; the tree connects the same five mini-switches by a sixth. Each
connection carries 5 GB at 1 Gbit/s. The curves are not printed as numbers; section 7.3 gives their
end, their maximum, and the end of the connections between neighbours on level-1 links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.apps.papers.shared import all_to_all, live_experiments
from experiments.apps.papers.shared.all_to_all import TREE
from experiments.apps.papers.shared.figure import Made, figure
from experiments.runs.plans.experiment import System
from experiments.runs.reporting.reproduced.result import Settings
from topos.base.spec import parse

if TYPE_CHECKING:
    from experiments.runs.trials.records import Run

ABOUT = "total throughput of 380 TCP connections, DCell against a two-level tree (Guo 2008)"
DCELL = "DCell"
SYSTEMS = (System("dcell,4,1", routing="dfr", label=DCELL), System("tree,4,5", label=TREE))
# Paper's values (section 7.3).
PAPERS_BYTES = 5e9
PAPERS_END_S = {DCELL: 2270.0, TREE: 4460.0}
PAPERS_MOST_GBPS = {DCELL: 9.6, TREE: 3.6}
PAPERS_NEIGHBOURS_END_S = 350.0


@figure(
    "dcell-fig12",
    ABOUT,
    "All-to-all over DCell and a two-level tree",
    "time with 5 GB a flow at 1 Gbit/s, s",
    "total TCP throughput, Gbit/s",
    live=True,
)
def fig12(settings: Settings) -> Made:
    """Reproduce Guo 2008, Fig. 12: run all-to-all traffic over DCell and the tree in turns."""
    return made(*all_to_all.run(settings, "dcell-fig12", ABOUT, SYSTEMS, PAPERS_BYTES))


def made(done: Run, scale: live_experiments.Scale) -> Made:
    """Return the figure's points and verdict from a run's records."""
    rows, valid = [], live_experiments.without_invalid_trials(done)
    for system in (DCELL, TREE):
        rows.append(all_to_all.completion_point(valid, system, scale, PAPERS_END_S[system]))
        rows.append(
            all_to_all.maximum_throughput_point(valid, system, scale, PAPERS_MOST_GBPS[system])
        )
    dcell, what = parse(SYSTEMS[0].network), "neighbours on level 1 done, s"
    neighbours = {
        frozenset((dcell.address(cable.a), dcell.address(cable.b)))
        for cable in dcell.links()
        if cable.level == 1
    }
    paper = PAPERS_NEIGHBOURS_END_S
    rows.append(
        all_to_all.last_flow_completion(
            valid, DCELL, what, lambda *ends: {*ends} in neighbours, scale, paper
        )
    )
    rows.append(all_to_all.speed_up(valid, PAPERS_END_S))
    return live_experiments.made_with_comparison(
        done, scale, live_experiments.throughput_curves(done, scale, (DCELL, TREE)), rows
    )
