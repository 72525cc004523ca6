"""Not from a paper: a training iteration in six networks of the same price, with failed cables.

The job takes all servers that reach one another, in as many replicas as fit; the ranks of a tensor
group are below one switch, or in one row of a mesh. The time of an iteration is compared with its
lower bound, which depends on the job and the servers' ports alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy

from pillarbox.experiments.apps.papers.shared.draws import (
    Runs,
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
)
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, verdict
from pillarbox.experiments.models.comparison.prices import LIAO, network_bill
from pillarbox.experiments.models.fluid.ideal import goodput_share
from pillarbox.experiments.models.fluid.iteration import simulated_moments
from pillarbox.experiments.models.simulator.failure_sets import FailedNodes, draw
from pillarbox.experiments.models.simulator.walks import connected_parts
from pillarbox.experiments.models.workloads.training.bound import iteration_bound_s
from pillarbox.experiments.models.workloads.training.breakdown import iteration_times
from pillarbox.experiments.models.workloads.training.iteration_plan import iteration_plan
from pillarbox.experiments.models.workloads.training.transformer import Transformer
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.hosts.base.failures import Failures
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology


class PricedNetwork(NamedTuple):
    """A network, its routing, and the bandwidth of a server in ports of RATE_BPS."""

    spec: str
    routing: str
    server_ports: int


MESH = "nD-FullMesh"
# Networks whose switches and cables cost about BUDGET_USD; sizes come in large steps.
BUDGET_USD, OFF = 4000.0, 0.15
NETWORKS = {
    "tree": PricedNetwork("tree,44,5", "bridge", 1),
    "fat-tree": PricedNetwork("fattree,8", "hashed", 1),
    "BCube": PricedNetwork("bcube,12,1", "bsr", 2),
    "DCell": PricedNetwork("dcell,18,1", "dfr", 2),
    "Rail-only": PricedNetwork("rail,16,8", "bsr", 2),
    MESH: PricedNetwork("mesh,16,16", "spray", 2),
}
QUICK_NETWORKS = {
    "tree": PricedNetwork("tree,20,2", "bridge", 1),
    "fat-tree": PricedNetwork("fattree,8,levels=2", "hashed", 1),
    "BCube": PricedNetwork("bcube,8,1", "bsr", 2),
    "DCell": PricedNetwork("dcell,8,1", "dfr", 2),
    "Rail-only": PricedNetwork("rail,8,6", "bsr", 2),
    MESH: PricedNetwork("mesh,8,8", "spray", 2),
}
FAILED = (0.0, 0.01, 0.05)  # shares of cables that fail
RUNS = 3
RATE_BPS, MTU = 100e6, 9000
TENSOR, PIPELINE = 4, 4  # ways of tensor and pipeline parallelism


@figure(
    "training",
    "a training iteration in six networks of the same price, with failed cables (no paper's)",
    "Training iteration at equal cost",
    "failed cables, %",
    "time of an iteration, of its lower bound",
    log_y=True,
)
def training(settings: Settings) -> Made:
    """Simulate an iteration in each network, without failures and with failed cables."""
    networks = QUICK_NETWORKS if settings.quick else NETWORKS
    count = simulation_run_count(settings, RUNS, 2)
    cases = [(*network, share) for network in networks.values() for share in FAILED]
    counts = [count if share else 1 for *_, share in cases]
    results = simulation_runs(settings, measured, cases, counts)
    names = {network: name for name, network in networks.items()}
    found = [(names[PricedNetwork(*runs.case[:3])], runs) for runs in results]
    points = [_point(name, runs, "over_bound") for name, runs in found]
    rows = [
        _point(f"{name}: {title}", runs, key)
        for key, title in (
            ("sequences_per_s", "sequences per second"),
            ("exposed_share", "exposed communication, %"),
            ("ranks", "ranks"),
            ("ended", "iterations that end, %"),
        )
        for name, runs in found
    ]
    bounded = [
        Claim(Point(name, 100 * runs.case[-1], min(values)), 1e-9, at_least=True, wanted=1.0)
        for name, runs in found
        if (values := runs.values("over_bound"))
    ]
    return Made(
        points,
        rows=[*points, *rows, *_price_rows(networks)],
        judged=verdict(bounded),
        notes=(
            "; ".join(f"{name}: {one.spec}, {one.routing}" for name, one in networks.items())
            + ". Switches and cables by Liao 2012, Table 1; servers have their ports on board.",
            f"A transformer with {TENSOR} ways of tensor and {PIPELINE} ways of pipeline "
            "parallelism, in as many replicas as the servers that reach one another allow, in the "
            "order of addresses; ranks of a tensor group are below one switch, or in one row of "
            "the mesh. Ring all-reduce. Cables of 100 Mbit/s; those of the mesh share "
            "the bandwidth of two ports. Transfers share cables max-min fairly, without "
            f"acknowledgements. Failed cables: mean of {count} draws, seed {settings.seed}, over "
            "iterations that end. Agreement: no time is below the bound.",
        ),
    )


def _point(series: str, runs: Runs, key: str) -> Point:
    """Return the mean of a result as a point; results without failures are not random."""
    share = runs.case[-1]
    if share:
        return runs.point(series, 100 * share, key, least=0.0)
    values = runs.values(key)
    return Point(series, 0.0, values[0] if values else None)


@seeded_task_function
def measured(
    spec: str, routing: str, server_ports: int, share: float, random: numpy.random.Generator
) -> dict[str, float | None]:
    """Return an iteration's time, as a share of its bound, and its size, for a draw of failures."""
    network = parse(spec)
    failed = draw(network, random, cables=share)
    servers = servers_of_groups(network, connected_servers(network, failed))
    replicas = len(servers) // (TENSOR * PIPELINE)
    model = Transformer(tp=TENSOR, pp=PIPELINE, dp=replicas)
    plan = iteration_plan(network, model.trace(), servers[: model.ranks])
    rate_bps = RATE_BPS * server_ports / network.ports
    found: dict[str, float | None] = {"ranks": model.ranks, "ended": 0.0}
    found |= dict.fromkeys(("over_bound", "sequences_per_s", "exposed_share"))
    try:
        moments = simulated_moments(
            *(network, plan, routing, rate_bps, MTU, failures_of(network, failed)),
            segments_per_ack=math.inf,
        )
    except PillarboxError:  # the routing has no path around the failures
        return found
    times = iteration_times(plan, moments)
    port_bps = rate_bps * goodput_share(network, routing, MTU)
    return found | {
        "over_bound": times.total_s / iteration_bound_s(network, plan, port_bps),
        "sequences_per_s": replicas * model.micro_batches * model.micro_batch / times.total_s,
        "exposed_share": 100 * times.mean_s("exposed_s") / times.total_s,
        "ended": 100.0,
    }


def failures_of(network: Topology, failed: FailedNodes) -> Failures:
    """Return failed cables as a router knows them, by their ends."""
    cables = network.cable_arrays()
    ends = zip(cables.a[failed.cables].tolist(), cables.b[failed.cables].tolist(), strict=True)
    return Failures(links=frozenset(map(frozenset, ends)))


def connected_servers(network: Topology, failed: FailedNodes) -> list[int]:
    """Return the largest set of servers that reach one another, in the order of addresses."""
    part = connected_parts(network, failed)[: network.servers]
    largest = numpy.bincount(part).argmax()
    return [int(server) for server in numpy.flatnonzero(part == largest)]


def servers_of_groups(network: Topology, servers: Sequence[int]) -> list[int]:
    """Return the servers of whole tensor groups, whose servers differ in the last digit only."""
    cells: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for server in servers:
        cells[network.digits(server)[:-1]].append(server)
    return [one for cell in cells.values() for one in cell[: len(cell) // TENSOR * TENSOR]]


def _price_rows(networks: dict[str, PricedNetwork]) -> Iterator[Point]:
    """Yield the price of each network's switches and cables, and its servers."""
    for name, (spec, _, _) in networks.items():
        network = parse(spec)
        yield Point(f"{name}: $", "price", network_bill(network, LIAO).network_usd)
        yield Point(f"{name}: servers", "devices", network.servers)
