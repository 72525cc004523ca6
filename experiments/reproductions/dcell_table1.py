"""Guo 2008, Table 1: mean and deviation of path lengths, shortest paths and DCellRouting.

Small networks count every pair. Of those with more servers, 64 random servers send to all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from experiments.reproductions._sampled import Claim, verdict
from experiments.reproductions._sweep import swept
from experiments.reproductions.result import Point, Reproduction, Settings
from experiments.simulator.hops import Ints
from experiments.simulator.paths import lengths
from experiments.simulator.search import distances, mean_and_deviation
from topos.base.spec import parse
from topos.base.topology import Topology

ABOUT = "path lengths of shortest paths and DCellRouting (Guo 2008)"
LIVE = False

# Shortest paths' mean and deviation, DCellRouting's.
PAPERS = {
    "dcell,4,2": (4.87, 1.27, 5.16, 1.42),
    "dcell,5,2": (5.22, 1.23, 5.50, 1.33),
    "dcell,6,2": (5.48, 1.18, 5.73, 1.25),
    "dcell,4,3": (9.96, 1.64, 11.29, 2.05),
    "dcell,5,3": (10.74, 1.59, 11.98, 1.91),
    "dcell,6,3": (11.31, 1.55, 12.46, 1.79),
}
COLUMNS = ("shortest, mean", "shortest, deviation", "DCellRouting, mean", "DCellRouting, deviation")
MOST_PAIRS = 4_000_000  # that are all counted
TASK_PAIRS = 50_000_000  # of a task, about
SOURCES, QUICK_SOURCES = 64, 8
NEAR_HOPS = 0.02


class Task(NamedTuple):
    """Some of the sources of one network."""

    network: str
    drawn: int  # how many sources there are; 0 for all servers
    seed: int
    first: int  # of those, from this one on, so many are the task's
    sources: int


class Counts(NamedTuple):
    """How many servers are how many hops away, over all sources."""

    shortest: list[int]
    routed: list[int]


def reproduce(settings: Settings) -> Reproduction:
    """Count the hops of all six networks."""
    tasks = [task for spec in PAPERS for task in _tasks(spec, settings)]
    found = swept(settings, measure, tasks)
    points = []
    for spec, papers in PAPERS.items():
        parts = [Counts(*of) for task, of in zip(tasks, found, strict=True) if task.network == spec]
        shortest, routed = (_total(of) for of in zip(*parts, strict=True))
        ours = (*mean_and_deviation(shortest), *mean_and_deviation(routed))
        points += [
            Point(spec, column, own, paper)
            for column, own, paper in zip(COLUMNS, ours, papers, strict=True)
        ]
    word, reasons = verdict([Claim(point, NEAR_HOPS) for point in points])
    return Reproduction(
        name="dcell-table1",
        title="Path lengths in DCells",
        x_label="",
        y_label="hops",
        kind="table",
        points=tuple(points),
        verdict=word,
        reasons=reasons,
        notes=(
            f"To all servers, from all in networks of up to {MOST_PAIRS:,} pairs, else from "
            f"{QUICK_SOURCES if settings.quick else SOURCES} random ones, seed {settings.seed}. "
            "By DCellRouting every server has as many others at each distance, so one source is "
            f"all; shortest paths differ a little. Agreement is within {NEAR_HOPS} hops.",
        ),
    )


def measure(task: Task) -> Counts:
    """Count the hops from these sources to all servers, both ways."""
    network = parse(task.network)
    sources = numpy.arange(network.servers)
    if task.drawn:
        random = numpy.random.default_rng(task.seed)
        sources = random.choice(network.servers, task.drawn, replace=False)
    own = sources[task.first : task.first + task.sources]
    return Counts(distances(network, own).sum(axis=0).tolist(), _routed(network, own))


def _tasks(spec: str, settings: Settings) -> list[Task]:
    """Return the network's sources, some for each task."""
    servers = parse(spec).servers
    drawn = 0
    if servers**2 > MOST_PAIRS:
        drawn = QUICK_SOURCES if settings.quick else SOURCES
    count = drawn or servers
    each = min(count, max(1, TASK_PAIRS // servers))
    return [Task(spec, drawn, settings.seed, first, each) for first in range(0, count, each)]


def _routed(network: Topology, sources: Ints) -> list[int]:
    """Return how many servers are how many hops of DCellRouting away."""
    every = numpy.arange(network.servers)
    counts = []
    for source in sources.tolist():
        others = every[every != source]
        hops = lengths(network, "dcell", numpy.full_like(others, source), others)
        counts.append(numpy.bincount(hops).tolist())
    return _total(counts)[0].tolist()


def _total(parts: Iterable[Sequence[int]]) -> NDArray[numpy.int64]:
    """Return the sum of counts, some of which may end earlier, as a table of one row."""
    return numpy.array([list(map(sum, zip_longest(*parts, fillvalue=0)))])
