"""Not a paper's figure: slowdowns estimated by regions against packet simulation, six networks.

`pillarbox simulate --regions` estimates the slowdowns of TCP flows from the fluid model and packet
simulations of parts of the network. Here the whole network is simulated packet by packet as well,
with about 250 servers, and quantiles of both are compared by size class: Parsimon's comparison with
ns-3 (Zhao 2023, NSDI, section 5).

Regions of a single node show what their size is worth: with them, delays at different nodes are
independent, and flows never have their bottleneck at another node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.papers.shared.draws import (
    Found,
    Runs,
    drawn_note,
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
    values_by_run,
)
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, point, verdict
from pillarbox.experiments.models.arrivals.arrival_request import CABLES, ArrivalRequest
from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    goodput_bps,
    routing_header_bytes,
    simulate,
)
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.packets.tail_estimates import REGION_LINKS, estimate_tails
from pillarbox.experiments.models.packets.tcp_arrivals import simulate_by_tcp
from pillarbox.experiments.models.workloads.sizes import ALL, CLASSES
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse


class Case(NamedTuple):
    """A network, the load of its cables, and the number of flows."""

    spec: str
    load: float
    flows: int


# Loads at which no link of the network is overloaded.
CASES = (
    Case("bcube,4,3", 0.5, 20_000),
    Case("dcell,15,1", 0.5, 10_000),
    Case("dpillar,8,3", 0.3, 6_000),
    Case("ficonn,20,1", 0.35, 8_000),
    Case("tree,4,64", 0.25, 8_000),
    Case("fattree,10", 0.5, 8_000),
)
QUICK_CASES = (Case("bcube,4,1", 0.4, 1_000), Case("tree,4,4", 0.25, 1_000))
SIZES, PATTERN = "web-search", "all-to-all"
RATE_BPS, QUEUE_PACKETS, FRAME_BYTES = 1e9, 100, 1514
QUANTILES = {"median": 0.5, "99th percentile": 0.99, "99.9th percentile": 0.999}
TAIL = "99th percentile"
RUNS = 3
LEAST_FLOWS = 100  # flows of a class whose 99th percentile is compared
EVENTS_SHARE = 0.5  # events of the regions, as a share of those of the packet simulation
MOST_ERROR = 0.12
PACKETS, REGIONS, NODES = "packets", "regions", "single nodes"
OTHER_SEED = "packets, other seed"  # packet simulation with other random sending times


@seeded_task_function
def measure(spec: str, load: float, count: int, random: numpy.random.Generator) -> Found:
    """Return quantiles of slowdowns by size class, by packets and by both kinds of regions."""
    network, seed = parse(spec), int(random.integers(1_000_000))
    header = routing_header_bytes(network, "")
    cable_bps = goodput_bps(network, "", RATE_BPS)
    tcp = TcpParameters(RATE_BPS, QUEUE_PACKETS * (FRAME_BYTES + header), header=header)
    request = ArrivalRequest(network, "", PATTERN, SIZES, seed, cable_bps)
    fluid = simulate(
        network, "", *request.drawn(load, CABLES, count), cable_bps, seed=seed, records_limits=True
    )
    by_packets = simulate_by_tcp(network, fluid, "", tcp, seed)
    events = EVENTS_SHARE * by_packets.course.events
    again = simulate_by_tcp(network, fluid, "", tcp, seed + 1)
    found = {PACKETS: by_packets.slowdown, OTHER_SEED: again.slowdown}
    for name, links in ((REGIONS, REGION_LINKS), (NODES, 1)):
        found[name] = estimate_tails(
            network, fluid, "", tcp, seed, events=events, region_links=links, workers=1
        ).simulation.slowdown
    counted, volumes = fluid.counts, fluid.arrivals.volume_bytes
    rows: Found = {}
    for size, (least, below) in CLASSES.items():
        chosen = counted & (volumes >= least) & (volumes < below)
        if chosen.sum() < LEAST_FLOWS:
            continue
        for name, slowdown in found.items():
            values = numpy.nanquantile(slowdown[chosen], tuple(QUANTILES.values()))
            rows |= {
                f"{name}, {size}, {what}": float(value)
                for what, value in zip(QUANTILES, values, strict=True)
            }
    return rows


@figure(
    "tails",
    "slowdowns estimated by simulated regions against packet simulation, six networks (no paper's)",
    "99th percentile of slowdowns by size class: estimate and packet simulation",
    "packet simulation of the whole network",
    "estimate by regions",
    log_x=True,
    log_y=True,
)
def tails(settings: Settings) -> Made:
    """Compare estimated and packet-simulated slowdowns of six networks."""
    cases = QUICK_CASES if settings.quick else CASES
    count = simulation_run_count(settings, RUNS, 1)
    runs = simulation_runs(settings, measure, cases, count)
    points = [one for case, of in zip(cases, runs, strict=True) for one in _points(case, of)]
    claims = [_error_claim(cases[0].spec, runs[0], size, TAIL) for size in _size_classes(runs[0])]
    rows = [
        _error_point(f"{case.spec}, {name}", of, name, size, what)
        for case, of in zip(cases, runs, strict=True)
        for name in (REGIONS, NODES, OTHER_SEED)
        for size in _size_classes(of)
        for what in QUANTILES
    ]
    return Made(
        points,
        rows=[*(claim.row for claim in claims), *rows],
        judged=verdict(claims),
        notes=(
            drawn_note(settings, count),
            f"Sizes of {SIZES}, all-to-all, {RATE_BPS / 1e9:g} Gbit/s, queues of {QUEUE_PACKETS} "
            f"packets. Loads of cables: "
            + ", ".join(f"{case.spec} {case.load:g}" for case in cases)
            + f". A point is a size class. Regions have {REGION_LINKS} links and "
            f"{EVENTS_SHARE:.0%} of the events of the packet simulation. Rows: estimate divided by "
            f"packet simulation, also with regions of single nodes, and the packet simulation with "
            f"another seed divided by itself: what a quantile of this number of flows is worth. "
            f"Agreement: 99th percentiles of "
            f"{cases[0].spec} within {MOST_ERROR:.0%} in all classes.",
        ),
    )


def _size_classes(of: Runs) -> list[str]:
    """Return the size classes with enough flows in all runs of a case."""
    return [
        size for size in CLASSES if all(f"{PACKETS}, {size}, {TAIL}" in run for run in of.found)
    ]


def _points(case: Case, of: Runs) -> Iterator[Point]:
    """Yield the figure's point of each size class: 99th percentiles."""
    for size in _size_classes(of):
        if size != ALL:
            simulated = float(numpy.mean(of.values(f"{PACKETS}, {size}, {TAIL}")))
            yield of.point(case.spec, round(simulated, 2), f"{REGIONS}, {size}, {TAIL}")


def _ratios(of: Runs, name: str, size: str, what: str) -> list[float]:
    both = ((of, f"{model}, {size}, {what}") for model in (name, PACKETS))
    return values_by_run(lambda estimated, simulated: estimated / simulated, *both)


def _error_point(series: str, of: Runs, name: str, size: str, what: str) -> Point:
    return point(f"{series}: {size}", what, _ratios(of, name, size, what))


def _error_claim(spec: str, of: Runs, size: str, what: str) -> Claim:
    """Claim that the estimate is close to the packet simulation."""
    row = point(f"{spec}: {size}", f"{what}, ratio", _ratios(of, REGIONS, size, what))
    sentence = f"The estimate is within {MOST_ERROR:.0%} of the packet simulation"
    return Claim(row, tolerance=MOST_ERROR, wanted=1.0, sentence=sentence)
