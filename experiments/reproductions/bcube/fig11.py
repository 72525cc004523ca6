"""Guo 2009, Fig. 11: all-to-all over BCube and over a two-level tree.

Paper: 16 servers, BCube_1 of n = 4; in the tree, four mini-switches of four servers and a fifth.
Each of the 240 connections carries 683 MB at 1 Gbit/s. The curves are not printed as numbers;
section 7.5 gives when they end, throughput by server, how even the load of BCube's 32 links is, and
when the tree's connections below one mini-switch have ended.
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

ABOUT = "total throughput of 240 TCP connections, BCube against a two-level tree (Guo 2009)"
LIVE = True

BCUBE, TREE = "BCube", "tree"
SYSTEMS = (System("bcube,4,1", routing="bsr", label=BCUBE), System("tree,4,4", label=TREE))
# Section 7.5.
PAPERS_BYTES = 683e6
PAPERS_END_S = {BCUBE: 114.0, TREE: 332.0}
PAPERS_SERVER_MBPS = {BCUBE: 750.0, TREE: 260.0}
PAPERS_SPREAD = 23.0 / 626.0  # Mbit/s a link: standard deviation and mean
PAPERS_LOCAL_END_S = 39.0


def reproduce(settings: Settings) -> Reproduction:
    """Run both all-to-all, in turns."""
    return reproduced(*all_to_all.measured(settings, "bcube-fig11", ABOUT, SYSTEMS, PAPERS_BYTES))


def reproduced(done: Run, scale: live.Scale) -> Reproduction:
    """Return what a run's records say."""
    rows = []
    for system in (BCUBE, TREE):
        rows.append(all_to_all.completion(done, system, scale, PAPERS_END_S[system]))
        rows.append(_by_server(done, system, scale))
    spread = done.of(BCUBE).trials.link_spread
    rows.append(live.spread(BCUBE, "spread of links, of mean", spread, paper=PAPERS_SPREAD))
    rows.append(_local(done.of(TREE).flows, scale))
    paper = PAPERS_END_S[TREE] / PAPERS_END_S[BCUBE]
    rows.append(live.speed_up(done, BCUBE, TREE, paper))
    return Reproduction(
        name="bcube-fig11",
        title="All-to-all over BCube and a two-level tree",
        x_label="time with 683 MB a flow at 1 Gbit/s, s",
        y_label="total TCP throughput, Gbit/s",
        points=tuple(live.curves(done, scale, (BCUBE, TREE))),
        rows=tuple(rows),
        verdict=live.verdict_of(rows),
        reasons=tuple(live.against_ideal(rows)),
        notes=tuple(live.notes(done, scale)),
    )


def _by_server(done: Run, system: str, scale: live.Scale) -> Point:
    """Return what each server sends, on average over the whole time."""
    trials = done.of(system).trials
    servers = topos.parse(next(s.network for s in SYSTEMS if s.label == system)).servers
    return live.spread(
        system,
        "by server, Mbit/s",
        trials.goodput_bps,
        factor=scale.rate / servers / 1e6,
        paper=PAPERS_SERVER_MBPS[system],
        ideal=live.ideal_of(trials.ideal_bps),
    )


def _local(flows: pandas.DataFrame, scale: live.Scale) -> Point:
    """Return when the tree's connections below one mini-switch had ended, the last of them."""
    tree = topos.parse(SYSTEMS[1].network)

    def leaf(address: str) -> int:
        return int(tree.server_plug(tree.server(address), 0).node)

    local = [leaf(a) == leaf(b) for a, b in zip(flows.source, flows.destination, strict=True)]
    own = flows[local]
    return live.spread(
        TREE,
        "below one switch done, s",
        own.groupby("trial").end_s.max(),
        factor=scale.time,
        paper=PAPERS_LOCAL_END_S,
        ideal=live.ideal_of(own.groupby("trial").ideal_end_s.max()),
    )
