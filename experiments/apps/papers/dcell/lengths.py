"""Guo 2008, Table 1: mean and deviation of path lengths, shortest paths and DCellRouting.

Small networks count every pair. In larger ones a sample of servers sends to all others: a few by
DCellRouting, where all servers have the same lengths, and 4096 by shortest paths, whose means
differ from server to server by 0.15 to 0.2 hops: a quarter as many would give an interval of half
the tolerance in both directions, which some draws put outside the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.papers.shared.draws import task_results
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, point
from pillarbox.experiments.models.simulator.breadth_first import distances, mean_and_deviation
from pillarbox.experiments.models.simulator.paths import lengths
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

# Mean and deviation of shortest paths, then of DCellRouting.
PAPERS = {
    "dcell,4,2": (4.87, 1.27, 5.16, 1.42),
    "dcell,5,2": (5.22, 1.23, 5.50, 1.33),
    "dcell,6,2": (5.48, 1.18, 5.73, 1.25),
    "dcell,4,3": (9.96, 1.64, 11.29, 2.05),
    "dcell,5,3": (10.74, 1.59, 11.98, 1.91),
    "dcell,6,3": (11.31, 1.55, 12.46, 1.79),
}
COLUMNS = ("shortest, mean", "shortest, deviation", "DCellRouting, mean", "DCellRouting, deviation")
MOST_PAIRS = 4_000_000  # maximum number of pairs of servers for counting all of them
SHORTEST, ROUTED = "shortest", "DCellRouting"
SOURCES = {SHORTEST: 4096, ROUTED: 8}
QUICK_SOURCES = 8
TASK_SOURCES = {SHORTEST: 512, ROUTED: 4}
NEAR_HOPS = 0.02


class LengthTask(NamedTuple):
    """A task of the path length simulation: some sources of one network."""

    network: str
    paths: str  # kind of paths: SHORTEST or ROUTED
    drawn: int  # number of random sources; 0 for all servers
    seed: int
    first: int  # index of the task's first source server; `sources` is the number
    sources: int


@figure(
    "dcell-table1",
    "path lengths of shortest paths and DCellRouting (Guo 2008)",
    "Path lengths in DCells",
    "",
    "hops",
    kind="table",
)
def table1(settings: Settings) -> Made:
    """Reproduce Guo 2008, Table 1: count the hops of shortest paths and DCellRouting."""
    tasks = [task for spec in PAPERS for paths in SOURCES for task in _tasks(spec, paths, settings)]
    counts: dict[tuple[str, str], list[list[int]]] = {}
    for task, rows in zip(tasks, task_results(settings, measure, tasks), strict=True):
        counts.setdefault((task.network, task.paths), []).extend(rows)
    sampled = {task.network for task in tasks if task.drawn}
    points = [
        replace(one, paper=paper)
        for spec, papers in PAPERS.items()
        for one, paper in zip(_points(spec, counts, spec in sampled), papers, strict=True)
    ]
    return Made(
        points,
        [Claim(point, NEAR_HOPS) for point in points],
        rows=(),
        notes=(
            f"To all servers; from all in networks of up to {MOST_PAIRS:,} pairs. In larger ones "
            f"from {_count(SHORTEST, settings)} random servers by shortest paths, whose mean "
            f"differs between servers, and from {_count(ROUTED, settings)} by DCellRouting, whose "
            f"distances are the same for every server; seed {settings.seed}. Agreement is within "
            f"{NEAR_HOPS} hops.",
        ),
    )


def measure(task: LengthTask) -> list[list[int]]:
    """Return for each source the number of servers at each distance in hops."""
    network = parse(task.network)
    sources = numpy.arange(network.servers)
    if task.drawn:
        random = numpy.random.default_rng(task.seed)
        sources = random.choice(network.servers, task.drawn, replace=False)
    own = sources[task.first : task.first + task.sources]
    if task.paths == SHORTEST:
        found: list[list[int]] = distances(network, own).tolist()
        return found
    return [_routed_counts(network, source) for source in own.tolist()]


def _count(paths: str, settings: Settings) -> int:
    return QUICK_SOURCES if settings.quick else SOURCES[paths]


def _tasks(spec: str, paths: str, settings: Settings) -> list[LengthTask]:
    """Return a network's path length tasks, each with some of the source servers."""
    servers = parse(spec).servers
    if servers**2 <= MOST_PAIRS:
        return [LengthTask(spec, paths, 0, settings.seed, 0, servers)]
    count, each = _count(paths, settings), TASK_SOURCES[paths]
    return [LengthTask(spec, paths, count, settings.seed, at, each) for at in range(0, count, each)]


def _routed_counts(network: Topology, source: int) -> list[int]:
    """Return the number of servers by hops of DCellRouting; at 0 hops, the source itself."""
    others = numpy.delete(numpy.arange(network.servers), source)
    counts = numpy.bincount(lengths(network, "dcell", numpy.full_like(others, source), others))
    return [1, *counts[1:].tolist()]


def _points(
    spec: str, counts: Mapping[tuple[str, str], list[list[int]]], sampled: bool
) -> Iterator[Point]:
    """Yield a network's mean and deviation of path lengths, in the order of COLUMNS."""
    names = iter(COLUMNS)
    for paths in SOURCES:
        table = numpy.array(list(zip_longest(*counts[spec, paths], fillvalue=0))).T
        mean, deviation = mean_and_deviation(table)
        if not sampled:
            yield Point(spec, next(names), mean)
            yield Point(spec, next(names), deviation)
            continue
        # Confidence intervals for all sources; the deviation's by its first-order change.
        hops, others = numpy.arange(table.shape[1]), table.sum(axis=1) - 1
        squares = ((hops[1:] - mean) ** 2 * table[:, 1:]).sum(axis=1) / others
        yield point(spec, next(names), (table @ hops / others).tolist())
        yield point(spec, next(names), (deviation / 2 + squares / (2 * deviation)).tolist())
