"""How far routings are from what their network could carry: rates beside the optimum.

All in units of one link's rate. The optimum is that of linear programs in which flows may split
over all paths (see `analysis.fluid.bounds`): no routing carries more. Where these are too large,
what follows from counting alone still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy

from experiments.analysis.comparison.between import names_of
from experiments.analysis.comparison.counting import Limit, limits
from experiments.analysis.fluid.bounds import concurrent_flow, is_small_enough, throughput
from experiments.analysis.fluid.certificate import Optimum
from experiments.analysis.fluid.ideal import static_paths
from experiments.analysis.fluid.links import (
    LinkName,
    Routes,
    cabled_links,
    link_count,
    name_of,
    working_links,
)
from experiments.analysis.fluid.program import MOST_SECONDS
from experiments.analysis.fluid.rates import bottleneck_throughput, equal_share, link_loads, max_min
from experiments.analysis.simulator import adapting, around
from experiments.analysis.simulator.hops import Ints
from hosts.base.algorithms import SHORTEST
from hosts.base.failures import NONE, Failures
from topos.base.errors import require
from topos.base.topology import Topology

Pair = tuple[int, int]


@dataclass(frozen=True)
class Reached:
    """What flows get over one routing's paths."""

    routing: str
    flows: int  # that have a path
    total: float  # of max-min fair rates
    throughput: float  # aggregate bottleneck throughput: all flows as slow as the slowest
    worst: LinkName | None  # the link with the most flows
    worst_flows: int
    mean_flows: float  # of a link


@dataclass(frozen=True)
class Gap:
    """Every routing of a network beside the optimum, which is None where it is too large."""

    reached: tuple[Reached, ...]
    flows: int  # that have any path at all
    best_total: Optimum | None
    best_throughput: Optimum | None  # the largest total of equal rates
    limits: tuple[Limit, ...]  # above which it cannot be, by counting


def gap(
    topology: Topology,
    pairs: Sequence[Pair],
    routings: Iterable[str] = (),
    failures: Failures = NONE,
    seed: int = 1,
    seconds: float = MOST_SECONDS,
    rounds: int = 0,
) -> Gap:
    """Return what routings reach, and what would be possible.

    Where routing has several paths for a pair, each flow takes a random one.

    Parameters
    ----------
    topology : Topology
        The network.
    pairs : sequence of (source, destination)
        One for each flow.
    routings : iterable of str
        Names as in `pillarbox path`; all of the network's where none is given.
    failures : Failures
        What has failed; the routings know it.
    seed : int
        Of the choice between paths.
    seconds : float
        For each of two linear programs.
    rounds : int
        What routings that adapt to traffic reach after so many rounds of probes stands there too.

    Examples
    --------
    All-to-all over a BCube_1 is Theorem 6 of Guo 2009, n (N - 1) / (n - 1), and no routing does it
    better.

    >>> import topos
    >>> bcube = topos.parse("bcube,2,1")
    >>> every = [(a, b) for a in range(4) for b in range(4) if a != b]
    >>> found = gap(bcube, every, ["bcube"])
    >>> round(found.reached[0].throughput, 6), round(found.best_throughput.at_most, 6)
    (6.0, 6.0)
    """
    names = names_of(topology, routings)
    joined = list(pairs)
    if failures != NONE:
        ways = static_paths(topology, SHORTEST, pairs, failures)
        joined = [pair for pair, way in zip(pairs, ways, strict=True) if way]
    reached = [
        _reached(topology, name, _routes(topology, name, pairs, failures, seed), failures)
        for name in names
    ]
    reached += [
        _reached(topology, f"{name}, round {rounds}", routes, failures)
        for name, routes in _adapted(topology, names, pairs, failures, seed, rounds)
    ]
    best_total = best_throughput = None
    works = working_links(topology, failures)
    if joined and is_small_enough(topology, joined):
        best_total = throughput(topology, joined, 1.0, works, seconds)
        best_throughput = concurrent_flow(topology, joined, 1.0, works, seconds) * len(joined)
    found = tuple(limits(topology, joined, works))
    return Gap(tuple(reached), len(joined), best_total, best_throughput, found)


def _ends(pairs: Sequence[Pair]) -> tuple[Ints, Ints]:
    """Return sources and destinations, no views: for these, code would be compiled anew."""
    ends = numpy.array(pairs, numpy.int64).reshape(-1, 2)
    return ends[:, 0].copy(), ends[:, 1].copy()


def _routes(
    topology: Topology, name: str, pairs: Sequence[Pair], failures: Failures, seed: int
) -> Routes:
    sources, destinations = _ends(pairs)
    works, random = working_links(topology, failures), numpy.random.default_rng(seed)
    return around.routes(topology, name, sources, destinations, works, random)


def _adapted(
    topology: Topology,
    names: Sequence[str],
    pairs: Sequence[Pair],
    failures: Failures,
    seed: int,
    rounds: int,
) -> Iterator[tuple[str, Routes]]:
    """Yield what becomes of flows, by each routing that adapts to traffic."""
    known = [name for name in names if name in adapting.routings(topology)] if rounds else []
    require(
        bool(known) or not rounds,
        f"none of these routings of {topology.spec} adapts to traffic: leave out the rounds",
    )
    sources, destinations = _ends(pairs)
    works = working_links(topology, failures)
    for name in known:
        random = numpy.random.default_rng(seed)
        flows = adapting.adapting(topology, name, sources, destinations, random, works)
        for _ in range(rounds):
            flows.probe()
        yield name, flows.routes()


def _reached(topology: Topology, name: str, routes: Routes, failures: Failures) -> Reached:
    links = link_count(topology)
    loads = link_loads(routes, None, links)
    worst = int(loads.argmax())
    works = working_links(topology, failures)[cabled_links(topology)].sum()
    return Reached(
        name,
        flows=int(numpy.count_nonzero(numpy.diff(routes.starts))),
        total=float(numpy.nansum(max_min(routes, 1.0, links))),
        throughput=bottleneck_throughput(equal_share(routes, 1.0)),
        worst=name_of(topology, worst) if loads[worst] else None,
        worst_flows=int(loads[worst]),
        mean_flows=float(loads.sum() / works) if works else 0.0,
    )
