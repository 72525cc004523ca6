"""All networks side by side, at about 64, 512 and 4,096 servers: `pillarbox compare --all`.

All flows take shortest paths (`shortest_flows`). All-to-all throughput is exact: the flows of all
pairs, split over the shortest paths, until the busiest link is full. Max-min fair rates, with and
without failures, are those of a sample: each server sends to, and receives from, the same number of
random others. Throughput is per server, in units of a cable's rate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.comparison.bisection import smallest_structured_cut
from pillarbox.experiments.models.comparison.prices import PriceList, network_bill
from pillarbox.experiments.models.comparison.shortest_flows import ShortestFlows, shortest_flows
from pillarbox.experiments.models.fluid.directed_links import link_count
from pillarbox.experiments.models.fluid.rates import max_min
from pillarbox.experiments.models.simulator.failure_sets import draw
from pillarbox.experiments.models.simulator.sweeps import results
from pillarbox.topos.base.spec import kinds, parse
from pillarbox.topos.base.topology import Topology

# Networks of each size class, in the order of the table. Kinds that are not installed are skipped.
SPECS: dict[int, tuple[str, ...]] = {
    64: (
        *("dpillar,4,4", "dcell,8,1", "bcube,8,1", "ficonn,10,1", "bccc,6,1", "rail,8,8"),
        *("mesh,8,8", "torus,4,4,4", "hypercube,6"),
        *("tree,8,8", "fattree,6", "vl2,8,16,tor=2", "jellyfish,16,12,8", "domains,8,8"),
    ),
    512: (
        *("dpillar,32,2", "dcell,4,2", "bcube,8,2", "ficonn,8,2", "bccc,16,1", "rail,32,16"),
        *("mesh,8,8,8", "torus,8,8,8", "hypercube,9"),
        *("tree,32,16", "fattree,12", "vl2,32,32,tor=2", "jellyfish,64,24,16", "domains,32,16"),
    ),
    4096: (
        *("dpillar,22,3", "dcell,7,2", "bcube,8,3", "ficonn,14,2", "bccc,11,2", "rail,64,64"),
        *("mesh,8,8,8,8", "torus,16,16,16", "hypercube,12"),
        *("tree,64,64", "fattree,26", "vl2,64,128,tor=2", "jellyfish,256,48,32", "domains,64,64"),
    ),
}
STRUCTURES = {"hypercube"}  # graph structures of the table
PARTNERS = 16  # number of random servers to which each server of the sample sends
FAILED = 0.05  # share of failed cables
SEED = 1

COLUMNS = (
    *("network", "servers", "ports", "switches", "of ports", "cables", "cost", "per server"),
    *("diameter", "bisection", "all-to-all", "sample", "worst pair", "5 % cut"),
)


class NetworkRow(NamedTuple):
    """Measures of one network in the table of all networks; rates in cables' rates per server."""

    size_class: int
    spec: str
    servers: int
    ports_per_server: int
    switches: int
    switch_ports: int
    cables: int
    network_usd: float | None
    diameter_hops: int
    bisection_cables: float
    bisection_is_upper_bound: bool  # True: the smallest cut tried; False: the paper's value
    all_to_all: float  # exact: (N - 1) / flows on the busiest link
    sampled: float  # sum of the sampled flows' max-min fair rates / servers
    sampled_worst_pair: float  # the same if all sampled pairs had the rate of the slowest one
    sampled_failures: float  # value of `sampled` with 5 % of the cables cut


def installed_specs() -> list[tuple[int, str]]:
    """Return size class and spec of every network of the table whose kind is installed."""
    known = {*kinds(), *STRUCTURES}
    return [
        (size, spec)
        for size, specs in SPECS.items()
        for spec in specs
        if spec.partition(",")[0] in known
    ]


def compare_all(prices: PriceList, workers: int = 0) -> list[NetworkRow]:
    """Return the measures of all networks of the table, computed in parallel processes."""
    specs = installed_specs()
    found = results(measured_network, [spec for _, spec in reversed(specs)], workers)[::-1]
    rows = []
    for (size, spec), measures in zip(specs, found, strict=True):
        topology = parse(spec)
        rows.append(
            NetworkRow(
                *(size, spec, topology.servers, topology.ports, topology.switches),
                *(topology.switch_ports, topology.cables),
                network_bill(topology, prices).network_usd,
                *measures,
            )
        )
    return rows


def measured_network(spec: str) -> list[Any]:
    """Return the computed measures of a network, from the diameter on: called by workers."""
    topology = parse(spec)
    random = numpy.random.default_rng(SEED)
    count = min(PARTNERS, topology.servers - 1)
    partners = balanced_partners(topology.servers, count, random)
    works = draw(topology, random, cables=FAILED).works(topology)
    flows = shortest_flows(topology, partners, SEED)
    rates = _rates(topology, flows)
    broken = _rates(topology, shortest_flows(topology, partners, SEED, works))
    paper = topology.bisection().value
    width = smallest_structured_cut(topology) if paper is None else paper
    return [
        flows.longest_hops,
        width,
        paper is None,
        float((topology.servers - 1) / flows.loads.max()),
        float(rates.sum() / topology.servers),
        float(rates.min() * count),
        float(broken.sum() / topology.servers),
    ]


def balanced_partners(servers: int, shifts: int, random: numpy.random.Generator) -> Ints:
    """Return the sources that send to each server: as many for each, and each one as often.

    >>> balanced_partners(4, 3, numpy.random.default_rng(1)).sum(axis=0).tolist()  # 0 + 1 + 2 + 3
    [6, 6, 6]
    """
    order = random.permutation(servers)
    steps = 1 + random.permutation(servers - 1)[:shifts]
    found = numpy.empty((servers, shifts), numpy.int64)
    found[order] = order[(numpy.arange(servers)[:, None] + steps) % servers]
    return found


def _rates(topology: Topology, flows: ShortestFlows) -> Floats:
    """Return the flows' max-min fair rates in units of a cable's rate; 0 without a path."""
    return numpy.nan_to_num(max_min(flows.routes, 1.0, link_count(topology)), posinf=0.0)


def row_cells(row: NetworkRow) -> list[str]:
    """Return a network's cells in the table of all networks, one for each of `COLUMNS`."""
    cost = row.network_usd
    return [
        row.spec,
        f"{row.servers:,}",
        str(row.ports_per_server),
        f"{row.switches:,}",
        str(row.switch_ports) if row.switches else "-",
        f"{row.cables:,}",
        "-" if cost is None else f"${cost:,.0f}",
        "-" if cost is None else f"${cost / row.servers:,.2f}",
        str(row.diameter_hops),
        f"{'<= ' if row.bisection_is_upper_bound else ''}{row.bisection_cables:,.0f}",
        f"{row.all_to_all:.3f}",
        *(f"~{value:.3f}" for value in (row.sampled, row.sampled_worst_pair, row.sampled_failures)),
    ]


def notes(prices: PriceList) -> list[str]:
    """Return the explanatory notes below the table of all networks."""
    return [
        "Diameter: server-to-server hops, exact. Bisection: cables, the paper's value or bound; "
        "<= is the smallest cut of those tried, where the paper has none.",
        "Throughput per server in units of a cable's rate, on shortest paths. all-to-all: exact, "
        "the flows of all pairs until the busiest link is full. ~: max-min fair rates of a random "
        f"sample (seed {SEED}) in which each server sends to {PARTNERS} others; worst pair: the "
        f"same if all pairs had the slowest pair's rate; 5 % cut: {FAILED:.0%} of the cables cut.",
        f"Cost: switches and cables, {prices.source}; -: the list has no switch of as many ports "
        "(--switch-price PORTS=NUMBER adds it). All cables have one rate, all switches as many "
        "ports as the largest.",
    ]
