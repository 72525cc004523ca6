"""Gap between routings and the optimum: flow rates compared with what the network could carry.

All values are in units of one link's rate. The optimum is that of linear programs in which flows
may split over all paths (see `fluid.bounds`): no routing carries more. Where these are too
large to solve, the bounds by counting still hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.comparison.counting import ThroughputLimit, throughput_limits
from pillarbox.experiments.models.comparison.server_pairs import known_routing_names
from pillarbox.experiments.models.fluid.bounds import concurrent_flow, is_small_enough, throughput
from pillarbox.experiments.models.fluid.directed_links import (
    LinkName,
    Routes,
    cabled_links,
    link_count,
    link_rates_bps,
    name_of,
    path_counts,
    routes_of,
    working_links,
)
from pillarbox.experiments.models.fluid.ideal import static_flow_paths, static_paths
from pillarbox.experiments.models.fluid.linear_program import MOST_SECONDS
from pillarbox.experiments.models.fluid.optimum_bounds import Optimum
from pillarbox.experiments.models.fluid.rates import (
    MaxMin,
    bottleneck_throughput,
    equal_share_rates_bps,
    link_loads,
)
from pillarbox.experiments.models.simulator import adapting, around
from pillarbox.hosts.base.algorithms import SHORTEST, algorithms
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

Pair = tuple[int, int]


@dataclass(frozen=True)
class RoutingThroughput:
    """Rates that flows reach over one routing's paths."""

    routing: str
    flows: int  # number of flows that have a path
    total: float  # sum of the flows' max-min fair rates
    throughput: float  # aggregate bottleneck throughput: all flows at the rate of the slowest one
    worst: LinkName | None  # link with the most flows
    worst_flows: int  # rounded up where flows are sprayed
    mean_flows: float  # mean number of flows per link


@dataclass(frozen=True)
class ThroughputGap:
    """Throughput of every routing, and the optimum: None if its linear program is too large."""

    reached: tuple[RoutingThroughput, ...]
    flows: int  # number of flows that have any path
    best_total: Optimum | None
    best_throughput: Optimum | None  # largest total of equal rates
    limits: tuple[
        ThroughputLimit, ...
    ]  # upper bounds of the optimal throughput, found by counting links and ports


def compute_throughput_gap(
    topology: Topology,
    pairs: Sequence[Pair],
    routings: Iterable[str] = (),
    failures: Failures = NONE,
    seed: int = 1,
    seconds: float = MOST_SECONDS,
    rounds: int = 0,
) -> ThroughputGap:
    """Return the throughput that each routing of a network reaches, and the optimum.

    Where a routing has several paths for a pair, each flow takes a random one. A routing that
    sprays divides each flow equally among them.

    Parameters
    ----------
    topology : Topology
        The network.
    pairs : sequence of (source, destination)
        Pair of servers of each flow.
    routings : iterable of str
        Names of routings, as in `pillarbox path`; empty for all of the network's.
    failures : Failures
        Failures, which the routings know.
    seed : int
        Seed of the random choice between paths.
    seconds : float
        Time limit of each of two linear programs.
    rounds : int
        Number of probe rounds after which routings that adapt to traffic are measured in addition;
        0 for none.

    Examples
    --------
    All-to-all traffic over a BCube_1 reaches n (N - 1) / (n - 1) by Theorem 6 of Guo 2009, and no
    routing reaches more.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,2,1")
    >>> every = [(a, b) for a in range(4) for b in range(4) if a != b]
    >>> found = compute_throughput_gap(bcube, every, ["bcube"])
    >>> round(found.reached[0].throughput, 6), round(found.best_throughput.at_most, 6)
    (6.0, 6.0)
    """
    names = known_routing_names(topology, routings)
    joined = list(pairs)
    if failures != NONE:
        paths = static_paths(topology, SHORTEST, pairs, failures)
        joined = [pair for pair, path in zip(pairs, paths, strict=True) if path]
    ends, works = _flow_ends(pairs), working_links(topology, failures)
    sprayed = {name for name in names if algorithms(topology)[name].sprays}
    found = {
        name: around.routes(topology, name, *ends, works, numpy.random.default_rng(seed))
        for name in names
        if name not in sprayed
    }
    found |= _adapted_routes(topology, names, ends, works, seed, rounds)
    sprayed_paths = {name: static_flow_paths(topology, name, pairs, failures) for name in sprayed}
    found |= {name: routes_of(topology, paths) for name, paths in sprayed_paths.items()}
    reached = tuple(
        _rates_reached(topology, name, found[name], works, path_counts(sprayed_paths.get(name, ())))
        for name in [*names, *(name for name in found if name not in names)]
    )
    best_total = best_throughput = None
    rates = link_rates_bps(topology, 1.0)
    if joined and is_small_enough(topology, joined):
        best_total = throughput(topology, joined, rates, works, seconds)
        best_throughput = concurrent_flow(topology, joined, rates, works, seconds) * len(joined)
    limits = tuple(throughput_limits(topology, joined, works))
    return ThroughputGap(reached, len(joined), best_total, best_throughput, limits)


def _flow_ends(pairs: Sequence[Pair]) -> tuple[Ints, Ints]:
    """Return sources and destinations as copies: views would need code to be compiled again."""
    ends = numpy.array(pairs, numpy.int64).reshape(-1, 2)
    return ends[:, 0].copy(), ends[:, 1].copy()


def _adapted_routes(
    topology: Topology,
    names: Sequence[str],
    ends: tuple[Ints, Ints],
    works: Bools,
    seed: int,
    rounds: int,
) -> Iterator[tuple[str, Routes]]:
    """Yield the name and the flows' routes of each routing that adapts to traffic."""
    known = [name for name in names if name in adapting.routings(topology)] if rounds else []
    require(
        bool(known) or not rounds,
        f"none of these routings of {topology.spec} adapts to traffic: omit the probe rounds",
    )
    for name in known:
        random = numpy.random.default_rng(seed)
        flows = adapting.adaptive_flows(topology, name, *ends, random, works)
        for _ in range(rounds):
            flows.probe()
        yield f"{name}, round {rounds}", flows.routes()


def _rates_reached(
    topology: Topology, name: str, routes: Routes, works: Bools, counts: Floats
) -> RoutingThroughput:
    """Return the throughput over these routes; `counts` are the paths of each sprayed flow."""
    links, rates = link_count(topology), link_rates_bps(topology, 1.0)
    counts = counts if len(counts) else numpy.ones(routes.flows)
    loads = link_loads(routes, 1 / counts, links)
    worst = int((loads / rates).argmax())
    working = works[cabled_links(topology)].sum()
    return RoutingThroughput(
        name,
        flows=int(numpy.count_nonzero(numpy.diff(routes.starts))),
        total=float(numpy.nansum(MaxMin(routes, links, counts).rates(rates))),
        throughput=bottleneck_throughput(equal_share_rates_bps(routes, rates, counts)),
        worst=name_of(topology, worst) if loads[worst] else None,
        worst_flows=math.ceil(round(float(loads[worst]), 6)),
        mean_flows=float(loads.sum() / working) if working else 0.0,
    )
