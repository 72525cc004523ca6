"""Guo 2009, Fig. 11: all-to-all over BCube and over a two-level tree.

Paper: 16 servers, BCube_1 of n = 4; in the tree, four mini-switches of four servers and a fifth.
Each of the 240 connections carries 683 MB at 1 Gbit/s. The curves are not printed as numbers;
section 7.5 gives their end, the throughput per server, the deviation of the load of BCube's 32
links, and the end of the tree's connections below one mini-switch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.apps.papers.shared import all_to_all, live_experiments
from experiments.apps.papers.shared.all_to_all import TREE
from experiments.apps.papers.shared.figure import Made, figure
from experiments.runs.plans.experiment import System
from experiments.runs.reporting.reproduced.result import Point, Settings
from topos.base.spec import parse

if TYPE_CHECKING:
    from experiments.runs.trials.records import Run

ABOUT = "total throughput of 240 TCP connections, BCube against a two-level tree (Guo 2009)"
BCUBE = "BCube"
SYSTEMS = (System("bcube,4,1", routing="bsr", label=BCUBE), System("tree,4,4", label=TREE))
# Paper's values (section 7.5).
PAPERS_BYTES = 683e6
PAPERS_END_S = {BCUBE: 114.0, TREE: 332.0}
PAPERS_SERVER_MBPS = {BCUBE: 750.0, TREE: 260.0}
PAPERS_SPREAD = 23.0 / 626.0  # standard deviation and mean of the links' load, in Mbit/s
PAPERS_LOCAL_END_S = 39.0


@figure(
    "bcube-fig11",
    ABOUT,
    "All-to-all over BCube and a two-level tree",
    "time with 683 MB a flow at 1 Gbit/s, s",
    "total TCP throughput, Gbit/s",
    live=True,
)
def fig11(settings: Settings) -> Made:
    """Reproduce Guo 2009, Fig. 11: run all-to-all traffic over BCube and the tree in turns."""
    return made(*all_to_all.run(settings, "bcube-fig11", ABOUT, SYSTEMS, PAPERS_BYTES))


def made(done: Run, scale: live_experiments.Scale) -> Made:
    """Return the figure's points and verdict from a run's records."""
    rows, valid = [], live_experiments.without_invalid_trials(done)
    for system in SYSTEMS:
        rows.append(
            all_to_all.completion_point(valid, system.name, scale, PAPERS_END_S[system.name])
        )
        rows.append(_server_throughput(valid, system, scale))
    links = valid.of(BCUBE).trials.link_spread
    rows.append(
        live_experiments.mean_of_trials(
            BCUBE, "spread of links, of mean", links, paper=PAPERS_SPREAD
        )
    )
    what = "below one switch done, s"
    rows.append(
        all_to_all.last_flow_completion(valid, TREE, what, _is_local, scale, PAPERS_LOCAL_END_S)
    )
    rows.append(all_to_all.speed_up(valid, PAPERS_END_S))
    return live_experiments.made_with_comparison(
        done, scale, live_experiments.throughput_curves(done, scale, (BCUBE, TREE)), rows
    )


def _server_throughput(done: Run, system: System, scale: live_experiments.Scale) -> Point:
    """Return a server's mean throughput over the whole all-to-all transfer."""
    trials = done.of(system.name).trials
    return live_experiments.mean_of_trials(
        system.name,
        "by server, Mbit/s",
        trials.goodput_bps,
        factor=scale.rate / parse(system.network).servers / 1e6,
        paper=PAPERS_SERVER_MBPS[system.name],
        ideal=live_experiments.ideal_of_trials(trials.ideal_bps),
    )


def _is_local(source: str, destination: str) -> bool:
    """Return True if both ends of a tree's connection are below the same mini-switch."""
    tree = parse(SYSTEMS[1].network)
    leaves = {tree.server_plug(tree.server(end), 0).node for end in (source, destination)}
    return len(leaves) == 1
