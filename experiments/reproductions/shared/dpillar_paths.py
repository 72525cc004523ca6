"""DPillar's paths, with and without failures: what Liao 2012, Fig. 8-12 share.

In each run failures are drawn anew, and pairs of servers that work are drawn as sources and
destinations (section 5.4). That a server works says nothing of its two switches: where both have
failed it is cut off, and no routing reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy

from experiments.analysis.simulator.failures import draw
from experiments.analysis.simulator.flows import random_flows
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.walks import parted, path_sets
from experiments.reporting.reproduced.result import Point, Settings
from experiments.reproductions.shared import sampled
from experiments.reproductions.shared.sweep import swept
from topos.base.spec import parse
from topos.dpillar import DPillar

PAIRS = 10_000  # section 5.3
RUNS, QUICK_RUNS = 20, 2
SERIES = ("SP", "MP, clockwise", "MP, both ways", "cut off from all")
DIRECTIONS = (
    "The paper does not say whether a pair may use the paths of one direction or of both, so both "
    "are drawn. Both is the reading that comes nearer."
)
# Above this the network's graph is not built to see what is cut off.
MOST_CUT_OFF = 100_000


class Task(NamedTuple):
    """One run."""

    network: str
    servers: int  # how many fail
    switches: int
    seed: int
    run: int


class Found(NamedTuple):
    """What a run found; hops are those of a mean path, shares are of pairs."""

    sp_hops: float | None  # None where nothing works
    mp_hops: float | None  # of a random clockwise path that works
    mp_available: float  # clockwise paths of a pair that work
    sp_lost: float  # share of pairs without a working path
    mp_lost: float  # of the clockwise ones
    both_lost: float  # of both directions
    cut_off: float | None  # share of pairs without any way; None where the network is too large


def measure(task: Task) -> Found:
    """Draw failures and pairs, and look at all paths of each pair."""
    dpillar = network(task.network)
    random = numpy.random.default_rng([task.seed, task.run])
    broken = draw(
        dpillar,
        random,
        servers=task.servers / dpillar.servers,
        switches=task.switches / dpillar.switches,
    )
    alive = numpy.flatnonzero(~broken.servers)
    sources, destinations = random_flows(len(alive), PAIRS, random)
    ends = alive[sources], alive[destinations]
    single = path_sets(dpillar, "sp-cw", *ends, broken)
    both = path_sets(dpillar, "mp-both", *ends, broken)
    hops, works = both.hops[:, : dpillar.half], both.works[:, : dpillar.half]  # clockwise
    count = works.sum(axis=1)
    small = dpillar.servers <= MOST_CUT_OFF
    return Found(
        sp_hops=_mean(single.hops[single.works]),
        # Of a pair's random path the mean is the mean of its paths.
        mp_hops=_mean((hops * works).sum(axis=1)[count > 0] / count[count > 0]),
        mp_available=float(count.mean()),
        sp_lost=float(1 - single.works.mean()),
        mp_lost=float((count == 0).mean()),
        both_lost=float(1 - both.works.any(axis=1).mean()),
        cut_off=float(parted(dpillar, broken, *ends).mean()) if small else None,
    )


def network(spec: str) -> DPillar:
    """Return the DPillar of a specification."""
    dpillar = parse(spec)
    assert isinstance(dpillar, DPillar)
    return dpillar


def label(spec: str) -> str:
    """Return how the paper names a network.

    >>> label("dpillar,16,3")
    '(16, 3)'
    """
    dpillar = network(spec)
    return f"({dpillar.n}, {dpillar.k})"


class Runs(NamedTuple):
    """The runs of one network and number of failures."""

    case: Task  # without its run
    found: list[Found]

    def point(
        self,
        series: str,
        x: float | str,
        value: Callable[[Found], float | None],
        paper: float | None = None,
    ) -> Point:
        """Return the mean over the runs, and its confidence interval."""
        values = [value(found) for found in self.found]
        return sampled.point(series, x, [v for v in values if v is not None], paper)


def measured(
    settings: Settings, cases: Iterable[tuple[str, int, int]], runs: int = RUNS
) -> list[Runs]:
    """Return the runs of each (network, servers that fail, switches that fail)."""
    count = repeats(settings, runs)
    heads = [Task(*case, settings.seed, 0) for case in cases]
    tasks = [head._replace(run=run) for head in heads for run in range(count)]
    found = [Found(*one) for one in swept(settings, measure, tasks)]
    return [Runs(head, found[i * count : (i + 1) * count]) for i, head in enumerate(heads)]


def repeats(settings: Settings, runs: int = RUNS) -> int:
    """Return how many runs there are of each case."""
    return settings.repeats or (QUICK_RUNS if settings.quick else runs)


def failing(runs: Sequence[Runs], xs: Sequence[float]) -> list[Point]:
    """Return routing failure ratios in percent: of SP, MP, and of what is cut off altogether."""
    shares = ("sp_lost", "mp_lost", "both_lost", "cut_off")
    return [
        one.point(name, x, partial(_percent, share))
        for name, share in zip(SERIES, shares, strict=True)
        for one, x in zip(runs, xs, strict=True)
    ]


def notes(settings: Settings, runs: int = RUNS) -> list[str]:
    """Return how it was measured."""
    return [
        f"Mean of {repeats(settings, runs)} runs and its 95 % confidence interval, seed "
        f"{settings.seed}. In each, other servers or switches fail, and {PAIRS} random pairs of "
        "servers that work are looked at."
    ]


def _percent(share: str, found: Found) -> float | None:
    value: float | None = getattr(found, share)
    return None if value is None else value * 100


def _mean(values: Ints) -> float | None:
    return float(values.mean()) if len(values) else None
