"""Guo 2008, Table 1: mean and deviation of path lengths, shortest paths and DCellRouting.

Small networks count every pair. Of those with more servers, 64 random servers send to all others.
"""

from __future__ import annotations

import numpy

from experiments.reproductions._sampled import Claim, verdict
from experiments.reproductions.result import Point, Reproduction, Settings
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
SOURCES, QUICK_SOURCES = 64, 8
NEAR_HOPS = 0.02


def reproduce(settings: Settings) -> Reproduction:
    """Count the hops of all six networks."""
    points = []
    for spec, papers in PAPERS.items():
        network = parse(spec)
        sources = _sources(network, settings)
        settings.say(f"{spec}: from {len(sources)} of {network.servers} servers to all")
        ours = (*mean_and_deviation(distances(network, sources)), *_routed(network, sources))
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


def _sources(network: Topology, settings: Settings) -> numpy.ndarray:
    if network.servers**2 <= MOST_PAIRS:
        return numpy.arange(network.servers)
    random = numpy.random.default_rng(settings.seed)
    count = QUICK_SOURCES if settings.quick else SOURCES
    return random.choice(network.servers, count, replace=False)


def _routed(network: Topology, sources: numpy.ndarray) -> tuple[float, float]:
    """Return the mean and the deviation of DCellRouting's hops."""
    every = numpy.arange(network.servers)
    counts = numpy.zeros(2, numpy.int64)
    for source in sources.tolist():
        hops = lengths(network, "dcell", numpy.full(len(every) - 1, source), every[every != source])
        counted = numpy.bincount(hops, minlength=len(counts))
        counted[: len(counts)] += counts
        counts = counted
    return mean_and_deviation(counts[None])
