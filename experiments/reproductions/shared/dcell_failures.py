"""DFR and shortest paths around failures: what Guo 2008, Fig. 7-9 and Table 2 share.

In each run failures are drawn anew, and servers that work are drawn as sources. Shortest paths
(SPF, which knows every failure) go to all servers, DFR's packets to a sample of them. A failed
destination counts as a path failure of both, as it does in the paper.

The paper's simulations do not give DFR's retry count. Its header has four bits for it, and its
implementation begins with 5 (section 7.1). Only at high failure ratios does it matter; there the
paper's numbers come out with the most that the header holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy

from experiments.analysis.simulator import dfr
from experiments.analysis.simulator.failures import draw
from experiments.analysis.simulator.hops import count_hops
from experiments.analysis.simulator.search import distances, mean_and_deviation
from experiments.reporting.reproduced.result import Point, Settings
from experiments.reproductions.shared.sampled import by_series, point
from experiments.reproductions.shared.sweep import swept
from hosts.dcell.dfr import RETRY, TTL
from topos.base.spec import parse
from topos.dcell import DCell

MOST_RETRIES = 15  # of a 4-bit field
RUNS, QUICK_RUNS = 20, 2
SOURCES, DESTINATIONS = 64, 1000  # of DFR's packets in each run
# Section 6.1: DCell_3 of 176,820 and 865,830 servers.
NETWORKS = {"n = 4": "dcell,4,3", "n = 5": "dcell,5,3"}
PERCENT = range(2, 21, 2)
QUICK_PERCENT = (4, 8, 20)
SERVERS, RACKS, CABLES = "servers", "racks", "cables"  # what fails


class Task(NamedTuple):
    """One run."""

    network: str
    kind: str
    share: float
    seed: int
    run: int


class Found(NamedTuple):
    """What a run found: shares of packets that were lost, and hops of the others."""

    spf_lost: float
    spf_hops: float
    dfr_lost: float
    dfr_hops: float
    dfr_deviation: float
    few_lost: float  # with the implementation's retry count


def measure(task: Task) -> Found:
    """Draw failures, and send packets around them."""
    dcell = parse(task.network)
    assert isinstance(dcell, DCell)
    random = numpy.random.default_rng([task.seed, task.run])
    # A rack is a DCell_1, of which all servers and links fail.
    broken = draw(dcell, random, rack_servers=dcell.unit, **{task.kind: task.share})
    works = broken.works(dcell)
    sources = random.choice(numpy.flatnonzero(~broken.servers), SOURCES, replace=False)
    counts = distances(dcell, sources, works)
    ends = numpy.repeat(sources, DESTINATIONS), _others(dcell, sources, random)
    many, few = (
        count_hops(dfr.fill(dcell, works, retry=retry), TTL, *ends)
        for retry in (MOST_RETRIES, RETRY)
    )
    # How many destinations have failed is known; only what becomes of the others is sampled.
    failed, up = float(broken.servers.sum()) / (dcell.servers - 1), ~broken.servers[ends[1]]
    many_lost, few_lost = (
        failed + (1 - failed) * float((counted[up] == 0).mean()) for counted in (many, few)
    )
    return Found(
        spf_lost=1 - float(counts[:, 1:].sum()) / (SOURCES * (dcell.servers - 1)),
        spf_hops=mean_and_deviation(counts)[0],
        dfr_lost=many_lost,
        dfr_hops=float(many[many > 0].mean()),
        dfr_deviation=float(many[many > 0].std()),
        few_lost=few_lost,
    )


def _others(dcell: DCell, sources: numpy.ndarray, random: numpy.random.Generator) -> numpy.ndarray:
    """Return random servers for each source, itself not among them."""
    destinations = random.integers(0, dcell.servers - 1, (len(sources), DESTINATIONS))
    return (destinations + (destinations >= sources[:, None])).ravel()


class Runs(NamedTuple):
    """The runs of one network and one kind of failure, of one share."""

    network: str
    kind: str
    share: float
    found: list[Found]

    def point(self, series: str, x: float | str, value: Callable[[Found], float]) -> Point:
        """Return the mean over the runs, and its confidence interval."""
        return point(series, x, [value(found) for found in self.found])

    def lost(self, x: float, label: str) -> list[Point]:
        """Return the path failure ratios in percent: DFR's, and the least that any routing has."""
        return [
            self.point(f"DFR, {label}", x, lambda found: found.dfr_lost * 100),
            self.point(f"SPF, {label}", x, lambda found: found.spf_lost * 100),
        ]

    def lost_with_few(self, x: float, label: str) -> Point:
        """Return DFR's path failure ratio with the implementation's retry count."""
        series = f"DFR, {label}, retries {RETRY}"
        return self.point(series, x, lambda found: found.few_lost * 100)


def measured(
    settings: Settings, cases: Iterable[tuple[str, str, float]], runs: int = RUNS
) -> list[Runs]:
    """Return the runs of each (network, kind of failure, share)."""
    count = settings.repeats or (QUICK_RUNS if settings.quick else runs)
    heads = [Task(*case, settings.seed, 0) for case in cases]
    tasks = [head._replace(run=run) for head in heads for run in range(count)]
    found = [Found(*one) for one in swept(settings, measure, tasks)]
    return [
        Runs(head.network, head.kind, head.share, found[i * count : (i + 1) * count])
        for i, head in enumerate(heads)
    ]


def lost_by_share(settings: Settings, kind: str) -> tuple[list[Runs], list[Point]]:
    """Return the runs, and path failure ratios in percent against the percentage that fails."""
    networks = dict([*NETWORKS.items()][: 1 if settings.quick else None])
    percents = QUICK_PERCENT if settings.quick else PERCENT
    cases = [(spec, kind, percent / 100) for spec in networks.values() for percent in percents]
    runs = measured(settings, cases)
    labels = {spec: label for label, spec in networks.items()}
    points = []
    for one in runs:
        x, label = round(one.share * 100), labels[one.network]
        points += one.lost(x, label)
        if label == next(iter(networks)):
            points.append(one.lost_with_few(x, label))
    return runs, by_series(points)


def notes(settings: Settings, runs: list[Runs]) -> list[str]:
    """Return how it was measured."""
    count = len(runs[0].found)
    return [
        f"Mean of {count} runs and its 95 % confidence interval, seed {settings.seed}. In each, "
        f"{SOURCES} random servers that work send: shortest paths to all servers, DFR's packets to "
        f"{DESTINATIONS} random ones each. A failed destination is a path failure.",
        f"DFR with link states inside DCell_1 and a retry count of {MOST_RETRIES}, the most of the "
        f"header's four bits. The paper does not say with what it simulated; its implementation "
        f"begins with {RETRY}, which loses more packets at high failure ratios.",
    ]
