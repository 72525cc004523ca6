"""Liao 2012, Fig. 8: average length of DPillarSP's and DPillarMP's paths, n = 16 and several k.

The curves are not printed as numbers. Section 5.3.1 says that SP's paths are always about 20 %
shorter than their bound 2k - 1, MP's about 25 % shorter than theirs, 2k + 1, and that MP's are
within 2 hops of SP's.

MP is drawn twice. As servers forward, it has two repairs: where the destination is one column on,
equal symbols are paired, as the proof of Theorem 4.2 does (by Algorithm 2 as printed, two paths
would meet); and a path that comes back through s or passes d early is cut there. As printed, it
has neither.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from experiments.analysis.simulator.flows import random_flows
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.paths import lengths
from experiments.analysis.simulator.walks import path_sets
from experiments.reporting.reproduced.result import AGREES, AMBIGUOUS, Point, Reproduction, Settings
from experiments.reproductions.shared import dpillar_paths
from experiments.reproductions.shared.sampled import Claim, point, verdict
from experiments.reproductions.shared.sweep import swept
from hosts.dpillar.rules import neighbour, numbers, symbol, symbol_set
from topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar

ABOUT = "length of DPillar's single and multiple paths by columns (Liao 2012)"
LIVE = False

N = 16
COLUMNS, QUICK_COLUMNS = (2, 3, 4, 5, 6, 7), (2, 3, 4)
SP, PRINTED, REPAIRED = "SP", "MP, as printed", "MP, repaired"
# Section 5.3.1, in percent and in hops.
PAPERS_SHORTER = {SP: 20.0, PRINTED: 25.0, REPAIRED: 25.0}
PAPERS_INFLATION = 2.0
NEAR = 5.0  # percent: the paper's are whole twentieths


class Task(NamedTuple):
    """One run."""

    network: str
    seed: int
    run: int


def measure(task: Task) -> dict[str, float]:
    """Return the mean hops of the paths of random pairs."""
    dpillar = dpillar_paths.network(task.network)
    random = numpy.random.default_rng([task.seed, task.run])
    ends = random_flows(dpillar.servers, dpillar_paths.PAIRS, random)
    cut = path_sets(dpillar, "mp", *ends).hops
    return {
        SP: float(lengths(dpillar, "sp-cw", *ends).mean()),
        PRINTED: float(printed_hops(dpillar, *ends).mean()),
        REPAIRED: float(cut[cut > 0].mean()),
    }


def reproduce(settings: Settings) -> Reproduction:
    """Draw pairs in networks of more and more columns."""
    columns = QUICK_COLUMNS if settings.quick else COLUMNS
    count = dpillar_paths.repeats(settings)
    tasks = [Task(f"dpillar,{N},{k}", settings.seed, run) for k in columns for run in range(count)]
    found = swept(settings, measure, tasks)
    return reproduced(settings, {k: found[i * count :][:count] for i, k in enumerate(columns)})


def reproduced(settings: Settings, found: dict[int, list[dict[str, float]]]) -> Reproduction:
    """Return what the runs of each k say."""
    points = [
        point(name, k, [run[name] for run in runs], paper=(1 - percent / 100) * _bound(name, k))
        for name, percent in PAPERS_SHORTER.items()
        for k, runs in found.items()
    ]
    claims = {
        name: [_shorter(name, k, runs) for k, runs in found.items()]
        for name in (SP, PRINTED, REPAIRED)
    }
    inflation = _inflation(found)
    word, reasons = verdict([*claims[SP], *claims[PRINTED], inflation])
    if word == AGREES and verdict(claims[REPAIRED])[0] != AGREES:
        word, reasons = AMBIGUOUS, (_READINGS,)
    rows = [*claims[SP], *claims[PRINTED], *claims[REPAIRED], inflation]
    return Reproduction(
        name="dpillar-fig8",
        title=f"Path lengths in DPillar, n = {N}",
        x_label="columns k",
        y_label="server-to-server hops",
        points=tuple(points),
        rows=tuple(claim.row for claim in rows),
        verdict=word,
        reasons=reasons,
        notes=(
            f"Mean of {dpillar_paths.repeats(settings)} runs and its 95 % confidence interval, "
            f"seed {settings.seed}. In each {dpillar_paths.PAIRS} random pairs; clockwise. The "
            "paper's points are its percentages of the bounds.",
        ),
    )


_READINGS = (
    "MP's paths are as long as the paper says if they are built as Algorithm 2 is printed, which "
    "are not disjoint where the destination is one column on. Repaired they are shorter; and only "
    "repaired ones give the paper's loads of Fig. 14."
)


def _bound(name: str, k: int) -> int:
    return 2 * k - 1 if name == SP else 2 * k + 1


def _shorter(name: str, k: int, runs: list[dict[str, float]]) -> Claim:
    """Claim by how many percent the paths are shorter than the bound."""
    percent = [(1 - run[name] / _bound(name, k)) * 100 for run in runs]
    row = point(name, f"k = {k}: below the bound, %", percent, PAPERS_SHORTER[name])
    return Claim(row, NEAR)


def _inflation(found: dict[int, list[dict[str, float]]]) -> Claim:
    """Claim that at no k MP's paths are longer than SP's by more than the paper's hops."""
    means = [numpy.mean([run[PRINTED] - run[SP] for run in runs]) for runs in found.values()]
    row = Point(PRINTED, "most hops above SP", float(max(means)), PAPERS_INFLATION)
    return Claim(row, 0.0, at_most=True)


def printed_hops(dpillar: DPillar, sources: Ints, destinations: Ints) -> Ints:
    """Return the hops of all paths s -> s' ~> d' -> d of Algorithm 2, wherever they lead.

    One row a pair, one column for each s'. The first of these has the symbol of d, and the first d'
    that of s; the others are paired in order.
    """
    s: Any
    d: Any
    s, d = (numpy.repeat(ends[:, None], dpillar.half, axis=1) for ends in (sources, destinations))
    k, half, size = numbers(dpillar)
    first, last = symbol_set(k, size, s, CLOCKWISE), symbol_set(k, size, d, COUNTER_CLOCKWISE)
    near: Any = neighbour(k, half, size, s, CLOCKWISE, _in_order(dpillar, d, first))
    far: Any = neighbour(k, half, size, d, COUNTER_CLOCKWISE, _in_order(dpillar, s, last))
    hops = numpy.full(near.shape, 2, numpy.int64)
    apart = near != far
    hops[apart] += lengths(dpillar, "sp-cw", near[apart], far[apart])
    return hops


def _in_order(dpillar: DPillar, server: Any, position: Any) -> Any:
    """Return all symbols, the server's at that position first."""
    special = symbol(dpillar.half, dpillar.column_servers, server, position)
    number = numpy.arange(dpillar.half)
    return numpy.where(number == 0, special, number - (number <= special))
