"""Liao 2025: throughput for the price of an nD-FullMesh against a Clos, and with failed cables.

A server has the same bandwidth in all networks: each of a mesh's or torus's ports has its share.
Only the text that docs/papers.md names was available; its sentence on cost-efficiency is tested
with the prices of this project's list, and with all-to-all traffic, the worst for a mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.papers.shared.draws import simulation_run_count, task_results
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, point, quoted
from pillarbox.experiments.models.comparison.all_networks import balanced_partners
from pillarbox.experiments.models.comparison.prices import LIAO, network_bill
from pillarbox.experiments.models.comparison.shortest_flows import shortest_flows
from pillarbox.experiments.models.fluid.directed_links import link_count
from pillarbox.experiments.models.fluid.rates import max_min
from pillarbox.experiments.models.simulator.failure_sets import draw
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse

MESH, CLOS, TORUS, BCUBE = "nD-FullMesh", "Clos (fat-tree)", "torus", "BCube"
# Networks of about 500 servers, and of 54 to 64.
NETWORKS = {MESH: "mesh,8,8,8", CLOS: "fattree,12", TORUS: "torus,8,8,8", BCUBE: "bcube,8,2"}
QUICK_NETWORKS = {MESH: "mesh,4,4,4", CLOS: "fattree,6", TORUS: "torus,4,4,4", BCUBE: "bcube,8,1"}
FAILED = (0.0, 0.01, 0.05, 0.1)  # shares of cables that fail
PARTNERS = 16  # servers to which each server sends, at random
RUNS = 10
COST_EFFICIENT = quoted("2.04x higher cost-efficiency", "Liao 2025, abstract")
TIMES = 2.04


class Found(NamedTuple):
    """Throughput of a server, as a share of its ports' bandwidth, and pairs cut off, %."""

    throughput: float
    cut_off: float


@figure(
    "mesh",
    "throughput for the price of a full mesh in n dimensions, and with failed cables (Liao 2025)",
    "Full mesh, Clos, torus and BCube with failed cables",
    "failed cables, %",
    "what a server sends, of its ports' bandwidth",
)
def mesh(settings: Settings) -> Made:
    """Simulate random traffic while cables fail, and divide its throughput by the price."""
    networks = QUICK_NETWORKS if settings.quick else NETWORKS
    runs = range(simulation_run_count(settings, RUNS, 3))
    tasks = [
        (spec, share, settings.seed, run)
        for spec in networks.values()
        for share in FAILED
        for run in runs
    ]
    results = task_results(settings, _found, tasks)
    found = {task: Found(*values) for task, values in zip(tasks, results, strict=True)}

    def values(name: str, share: float) -> list[Found]:
        return [found[networks[name], share, settings.seed, run] for run in runs]

    points = [
        point(name, 100 * share, [one.throughput for one in values(name, share)], least=0.0)
        for name in networks
        for share in FAILED
    ]
    efficiency = {
        name: [one.throughput / _usd_per_server(spec) for one in values(name, 0.0)]
        for name, spec in networks.items()
    }
    ratios = [ours / clos for ours, clos in zip(efficiency[MESH], efficiency[CLOS], strict=True)]
    claim = Claim(
        point(f"{MESH} / {CLOS}", "throughput for the price", ratios, TIMES),
        at_least=True,
        sentence=COST_EFFICIENT,
    )
    cut_off = [
        point(
            f"{name}: pairs cut off, %", 100 * share, [one.cut_off for one in values(name, share)]
        )
        for name in networks
        for share in FAILED[1:]
    ]
    return Made(
        points,
        [claim],
        rows=[*points, claim.row, *cut_off, *_price_rows(networks)],
        why="The paper's value is that of training jobs, whose traffic stays mostly within the "
        "first dimensions; here every server sends to random others.",
        notes=(
            "; ".join(
                f"{name}: {spec} ({parse(spec).servers} servers of {parse(spec).ports} ports)"
                for name, spec in networks.items()
            )
            + f". Each server sends to {PARTNERS} others at random, on shortest paths, max-min "
            f"fair; mean of {len(runs)} draws of pairs and failures, seed {settings.seed}. The "
            "bandwidth of a server is that of all its ports. Price: switches and cables by "
            "Liao 2012, Table 1; a cable of a mesh or torus, which is slower, counts as much as "
            "one of the Clos. The paper's price has also servers and optical modules.",
        ),
    )


def _found(task: tuple[str, float, int, int]) -> list[float]:
    """Return a network's throughput and cut-off pairs for one draw of pairs and failures."""
    spec, share, seed, run = task
    network = parse(spec)
    random = numpy.random.default_rng([seed, run])
    partners = balanced_partners(network.servers, PARTNERS, random)
    works = draw(network, random, cables=share).works(network) if share else None
    flows = shortest_flows(network, partners, seed + run, works)
    rates = numpy.nan_to_num(max_min(flows.routes, 1.0, link_count(network)), posinf=0.0)
    sent = rates.sum() / network.servers / network.ports
    return [float(sent), 100 * float((numpy.diff(flows.routes.starts) == 0).mean())]


def _usd_per_server(spec: str) -> float:
    """Return the price of a network's switches and cables, per server."""
    network = parse(spec)
    price = network_bill(network, LIAO).network_usd
    assert price is not None
    return price / network.servers


def _price_rows(networks: dict[str, str]) -> Iterator[Point]:
    """Yield each network's price and devices per server."""
    for name, spec in networks.items():
        network = parse(spec)
        yield Point(f"{name}: $ per server", "price", _usd_per_server(spec))
        yield Point(f"{name}: switches", "devices", network.switches)
        yield Point(f"{name}: cables", "devices", network.cables)
