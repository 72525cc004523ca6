"""Not a paper's figure: slowdowns estimated by a smaller network against packet simulation.

`pillarbox simulate --smaller` estimates the slowdowns of TCP flows from the fluid model and packet
simulations of a smaller network of the same kind. Here six networks of about 250 servers are
simulated packet by packet as well, and quantiles of both are compared by size class: Parsimon's
comparison with ns-3 (Zhao 2023, NSDI, section 5).
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
)
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, point, verdict
from pillarbox.experiments.models.arrivals.arrival_request import ArrivalRequest
from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    goodput_bps,
    routing_header_bytes,
    simulate,
)
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.packets.tail_estimates import estimate_tails, simulate_samples
from pillarbox.experiments.models.packets.tcp_arrivals import simulate_by_tcp
from pillarbox.experiments.models.workloads.sizes import ALL, CLASSES
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology


class Case(NamedTuple):
    """A network, a smaller one of its kind, the load of cables, and the number of flows."""

    spec: str
    smaller: str
    load: float
    flows: int


# Loads at which no link of the network is overloaded.
CASES = (
    Case("bcube,4,3", "bcube,3,3", 0.5, 12_000),
    Case("dcell,15,1", "dcell,8,1", 0.5, 12_000),
    Case("dpillar,8,3", "dpillar,6,3", 0.3, 12_000),
    Case("ficonn,20,1", "ficonn,10,1", 0.35, 12_000),
    Case("tree,4,64", "tree,4,16", 0.25, 12_000),
    Case("fattree,10", "fattree,6", 0.5, 12_000),
)
QUICK_CASES = (
    Case("bcube,4,1", "bcube,3,1", 0.4, 1_000),
    Case("tree,4,4", "tree,2,4", 0.25, 1_000),
)
SIZES, PATTERN = "web-search", "all-to-all"
RATE_BPS, QUEUE_PACKETS, FRAME_BYTES = 1e9, 100, 1514
QUANTILES = {"median": 0.5, "99th percentile": 0.99, "99.9th percentile": 0.999}
TAIL = "99th percentile"
RUNS = 4
LEAST_FLOWS = 100  # flows of a class whose 99th percentile is compared
MOST_EVENTS = 1e9  # largest number of packet events in the smaller network
MOST_ERROR = 0.12
PACKETS, ESTIMATE = "packets", "estimate"
OTHER_FLOWS = "packets, other flows"  # packet simulations of other random flows


@seeded_task_function
def measure(
    spec: str, smaller: str, load: float, count: int, random: numpy.random.Generator
) -> Found:
    """Return quantiles of slowdowns by size class, by packets and by the estimate."""
    large, small = (parse(one) for one in (spec, smaller))
    seed = int(random.integers(1_000_000))
    request, of_smaller = _request(large, seed), _request(small, seed)
    flows = request.drawn(load, count)
    fluid = simulate(large, "", *flows, request.cable_bps, seed=seed, records_limits=True)
    tcp = _tcp(large)
    by_packets = simulate_by_tcp(large, fluid, "", tcp, seed)
    smaller_count = of_smaller.count_in_time_of(request, count)
    samples = simulate_samples(
        of_smaller, load, smaller_count, _tcp(small), most_samples=count, most_events=MOST_EVENTS
    )
    found = {PACKETS: by_packets, ESTIMATE: estimate_tails(large, fluid, tcp, samples, seed)}
    volumes = fluid.arrivals.volume_bytes
    rows: Found = {}
    for size, (least, below) in CLASSES.items():
        chosen = fluid.counts & (volumes >= least) & (volumes < below)
        if chosen.sum() < LEAST_FLOWS:
            continue
        for name, simulated in found.items():
            values = numpy.nanquantile(simulated.slowdown[chosen], tuple(QUANTILES.values()))
            rows |= {
                f"{name}, {size}, {what}": float(value)
                for what, value in zip(QUANTILES, values, strict=True)
            }
    return rows


def _request(network: Topology, seed: int) -> ArrivalRequest:
    return ArrivalRequest(network, "", PATTERN, SIZES, seed, goodput_bps(network, "", RATE_BPS))


def _tcp(network: Topology) -> TcpParameters:
    header = routing_header_bytes(network, "")
    return TcpParameters(RATE_BPS, QUEUE_PACKETS * (FRAME_BYTES + header), header=header)


@figure(
    "tails",
    "slowdowns estimated by a smaller network against packet simulation, six networks (no paper's)",
    "99th percentile of slowdowns by size class: estimate and packet simulation",
    "packet simulation of the whole network",
    "estimate by a smaller network",
    log_x=True,
    log_y=True,
)
def tails(settings: Settings) -> Made:
    """Compare estimated and packet-simulated slowdowns of six networks."""
    cases = QUICK_CASES if settings.quick else CASES
    count = simulation_run_count(settings, RUNS, 1)
    runs = simulation_runs(settings, measure, cases, count)
    points = [one for case, of in zip(cases, runs, strict=True) for one in _points(case, of)]
    claims = [
        _error_claim(case.spec, of, size, TAIL)
        for case, of in zip(cases, runs, strict=True)
        for size in _size_classes(of)
    ]
    rows = [
        _error_point(f"{case.spec}, {name}", of, name, size, what)
        for case, of in zip(cases, runs, strict=True)
        for name in (ESTIMATE, *([OTHER_FLOWS] if count > 1 else []))
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
            "packets. Networks, smaller networks and loads of cables: "
            + "; ".join(f"{case.spec} from {case.smaller} at {case.load:g}" for case in cases)
            + ". A point is a size class. Rows: the estimate divided by the packet simulation; and "
            "a packet simulation divided by one of other random flows, which shows the random "
            "error of a quantile. Agreement: 99th percentiles of all networks within "
            f"{MOST_ERROR:.0%} in all classes.",
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
            yield of.point(case.spec, round(simulated, 2), f"{ESTIMATE}, {size}, {TAIL}")


def _ratios(of: Runs, name: str, size: str, what: str) -> list[float]:
    """Return quantiles divided by those of the packet simulation.

    Packet simulations of other flows are those of every second run; they are divided by those of
    the run before.
    """
    simulated = of.values(f"{PACKETS}, {size}, {what}")
    if name == OTHER_FLOWS:
        return [other / one for one, other in zip(simulated[::2], simulated[1::2], strict=False)]
    values = of.values(f"{name}, {size}, {what}")
    return [value / reference for value, reference in zip(values, simulated, strict=True)]


def _error_point(series: str, of: Runs, name: str, size: str, what: str) -> Point:
    return point(f"{series}: {size}", what, _ratios(of, name, size, what))


def _error_claim(spec: str, of: Runs, size: str, what: str) -> Claim:
    """Claim that the estimate is close to the packet simulation."""
    row = point(f"{spec}: {size}", f"{what}, ratio", _ratios(of, ESTIMATE, size, what))
    sentence = f"The estimate is within {MOST_ERROR:.0%} of the packet simulation"
    return Claim(row, tolerance=MOST_ERROR, wanted=1.0, sentence=sentence)
