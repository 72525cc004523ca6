"""Not from a paper: an all-reduce in six networks of the same price.

Its time relative to the lower bound by the servers' ports: a ring in every network, with the ranks
in the order of addresses and at random, and BML in BCube. Networks of the same price are those of
`six`; they are simulated as fluids whose steps are synchronous.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from pillarbox.experiments.apps.papers.ours.six import SAME_PRICE, cost_usd
from pillarbox.experiments.apps.papers.shared.draws import simulation_run_count
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, point, verdict
from pillarbox.experiments.models.fluid.collective import phases_duration_s
from pillarbox.experiments.models.workloads.collectives.bound import all_reduce_share
from pillarbox.experiments.models.workloads.collectives.phases import Phase, of_digits, of_ring
from pillarbox.experiments.models.workloads.collectives.schedules import bml_threads
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.bcube import BCube

RING, RANDOM, BML = "ring", "ring, ranks at random", "BML"
DRAWS = 5
NEAR = 0.10  # tolerance, relative to the all-reduce's lower bound
PRICED = {name: spec for name, (spec, _) in SAME_PRICE.items()}


@figure(
    "collectives",
    "an all-reduce in six networks of the same price, over its lower bound (no paper's)",
    "All-reduce at equal cost",
    "network",
    "time, of the least that the servers' ports allow",
    kind="bars",
)
def collectives(settings: Settings) -> Made:
    """Compute the all-reduce over the paths of all six networks."""
    count = simulation_run_count(settings, DRAWS, 2)
    points: list[Point] = []
    seconds: list[Point] = []
    for name, spec in PRICED.items():
        network = parse(spec)
        for series, took in _series_times(network, settings.seed, count):
            least = all_reduce_share(network, range(network.servers))
            points.append(_mean_point(series, name, [one / least for one in took]))
            seconds.append(
                _mean_point(f"{series}, 1 GB at 1 Gbit/s, s", name, [8 * t for t in took])
            )
    meets = [
        Claim(one, NEAR, wanted=1.0)
        for one in points
        if one.series == BML or (one.series == RING and parse(PRICED[str(one.x)]).ports == 1)
    ]
    bounded = [Claim(one, 1e-9, at_least=True, wanted=1.0) for one in points]
    return Made(
        points,
        rows=[*points, *seconds],
        judged=verdict([*meets, *bounded]),
        notes=(
            "; ".join(
                f"{name}: {spec} ({parse(spec).servers} servers, "
                f"${cost_usd(SAME_PRICE, name):,.0f})"
                for name, spec in PRICED.items()
            )
            + ".",
            "All ranks take each step together, on the paths of each network's default "
            f"algorithm, max-min fair; random ranks: mean of {count} draws, seed {settings.seed}. "
            "Agreement: no value is below the bound; a ring in the trees and BML in BCube are "
            f"within {NEAR:.0%} of it.",
        ),
    )


def _series_times(network: Topology, seed: int, count: int) -> Iterable[tuple[str, list[float]]]:
    """Yield each algorithm's all-reduce times, in units of sending all data over one cable."""
    ranks = network.servers
    ring = of_ring(ranks)
    yield RING, [phases_duration_s(network, ring, range(ranks))]
    yield (
        RANDOM,
        [phases_duration_s(network, ring, _random_ranks(ranks, seed, run)) for run in range(count)],
    )
    if isinstance(network, BCube):
        phases: list[Phase] = of_digits(bml_threads(network.radices()[::-1]))
        yield BML, [phases_duration_s(network, phases, range(ranks), "bcube")]


def _mean_point(series: str, x: str, values: list[float]) -> Point:
    """Return the mean time of all draws of ranks as a point; a single time is not random."""
    if series.startswith(RANDOM):
        return point(series, x, values, least=0.0)
    (value,) = values
    return Point(series, x, value)


def _random_ranks(ranks: int, seed: int, run: int) -> Sequence[int]:
    return Random(f"{seed} {run} ranks").sample(range(ranks), ranks)
