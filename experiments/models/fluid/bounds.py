"""Upper bounds for any routing: maximum concurrent flow and throughput, by linear programs.

Traffic may split over all paths. All flows of one source are one commodity, part of which stays at
each destination, so that a program has sources x links variables instead of pairs x links.

Small programs are solved exactly, medium ones approximately in bounded time. The result is a lower
and an upper bound of the optimum (see `pillarbox.experiments.models.fluid.optimum_bounds`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy
from scipy import sparse

from pillarbox.experiments.models.arrays import Bools, Floats
from pillarbox.experiments.models.fluid.directed_links import cabled_ends, link_count, working_links
from pillarbox.experiments.models.fluid.linear_program import MOST_SECONDS, MOST_VARIABLES, maximise
from pillarbox.experiments.models.fluid.optimum_bounds import (
    Commodities,
    Optimum,
    candidate_link_lengths,
    repaired_flow,
    shortest_path_lengths,
)
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology


def concurrent_flow(
    topology: Topology,
    pairs: Sequence[tuple[int, int]],
    capacity_bps: float | Floats,
    works: Bools | None = None,
    seconds: float = MOST_SECONDS,
) -> Optimum:
    """Return the largest equal rate that all flows between these server pairs can have.

    Parameters
    ----------
    topology : Topology
        The network.
    pairs : sequence of (source, destination)
        Ends of the flows; a pair that is listed twice has two flows.
    capacity_bps : float or array
        Capacity of every link in bit/s, or an array indexed by link number.
    works : array, optional
        State of each link by link number, True if the link works (see `working_links`).
    seconds : float
        Time limit of the solver in seconds. If it is reached, the two bounds are farther apart.

    Returns
    -------
    Optimum
        Lower and upper bound in bit/s; 0 if failures disconnect a pair.
    """
    if not pairs:
        return Optimum(0.0, 0.0)
    scale, net = _commodities(topology, pairs, capacity_bps, works)
    count, links = len(net.sources), len(net.capacity)
    if not links:
        return Optimum(0.0, 0.0)
    # Unit of the linear program's last variable (the rate), which keeps all numbers near 1.
    unit = count / len(pairs)
    wanted = net.demand.copy()
    wanted[numpy.arange(count), net.sources] = -net.demand.sum(axis=1)
    balance = sparse.hstack(
        [sparse.block_diag([net.incidence] * count), -wanted.reshape(-1, 1) * unit], format="csr"
    )
    cost = numpy.zeros(count * links + 1)
    cost[-1] = 1.0
    values, prices = maximise(cost, balance, net, seconds)
    rate = max(float(values[-1]), 0.0) * unit
    _, load = repaired_flow(net, values[:-1].reshape(count, links), rate * net.demand)
    most = min(
        float(lengths @ net.capacity / (net.demand * shortest_path_lengths(net, lengths)).sum())
        for lengths in candidate_link_lengths(net, prices)
    )
    if not most:  # a pair of servers has no path
        return Optimum(0.0, 0.0)
    return Optimum.between(rate / load if load else 0.0, most) * scale


def throughput(
    topology: Topology,
    pairs: Sequence[tuple[int, int]],
    capacity_bps: float | Floats,
    works: Bools | None = None,
    seconds: float = MOST_SECONDS,
) -> Optimum:
    """Return the largest sum of rates between these pairs; some pairs may have the rate 0.

    No routing and no allocation of link capacity exceeds this sum. See `concurrent_flow` for the
    parameters and the result.
    """
    if not pairs:
        return Optimum(0.0, 0.0)
    scale, net = _commodities(topology, pairs, capacity_bps, works)
    count, links = len(net.sources), len(net.capacity)
    if not links:
        return Optimum(0.0, 0.0)
    nodes = net.incidence.shape[0]
    # Each of these variables is the rate of a commodity that ends at one of its destinations.
    row, far = numpy.nonzero(net.demand)
    column = numpy.tile(numpy.arange(len(row)), 2)
    ones = numpy.ones(len(row))
    left = sparse.csr_matrix(
        (
            numpy.concatenate([-ones, ones]),
            (numpy.concatenate([row * nodes + far, row * nodes + net.sources[row]]), column),
        ),
        (count * nodes, len(row)),
    )
    balance = sparse.hstack([sparse.block_diag([net.incidence] * count), left], format="csr")
    cost = numpy.zeros(balance.shape[1])
    cost[count * links :] = 1.0
    values, prices = maximise(cost, balance, net, seconds)
    flows = values[: count * links].reshape(count, links)
    arrived, load = repaired_flow(net, flows, numpy.zeros_like(net.demand))
    total = float(numpy.maximum(arrived[row, far], 0.0).sum())
    most = min(
        float(lengths @ net.capacity / shortest_path_lengths(net, lengths)[row, far].min())
        for lengths in candidate_link_lengths(net, prices)
    )
    return Optimum.between(total / load if load else 0.0, most) * scale


def is_small_enough(topology: Topology, pairs: Sequence[tuple[int, int]]) -> bool:
    """Return True if the linear programs of these pairs are within the size limit."""
    return len({source for source, _ in pairs}) * 2 * topology.cables <= MOST_VARIABLES


def _commodities(
    topology: Topology,
    pairs: Sequence[tuple[int, int]],
    capacity_bps: float | Floats,
    works: Bools | None,
) -> tuple[float, Commodities]:
    """Return the divisor of the capacities, and the commodities with the scaled capacities."""
    sources = sorted({source for source, _ in pairs})
    require(
        is_small_enough(topology, pairs),
        f"the optimum of {len(pairs)} flows from {len(sources)} servers of {topology.spec} is a "
        f"linear program of {len(sources) * 2 * topology.cables} variables, and the limit is "
        f"{MOST_VARIABLES}: choose a smaller network or fewer sources",
    )
    demand = numpy.zeros((len(sources), topology.nodes))
    row_of = {source: row for row, source in enumerate(sources)}
    for (source, destination), flows in Counter(pairs).items():
        require(source != destination, "a flow needs two different servers as its ends")
        demand[row_of[source], destination] = flows
    capacity = numpy.full(link_count(topology), capacity_bps, numpy.float64)
    usable = working_links(topology) if works is None else works
    links, near, far = cabled_ends(topology)
    used = usable[links] & (capacity[links] > 0)
    links, near, far = links[used], near[used], far[used]
    scale = float(capacity[links].max(initial=0.0)) or 1.0
    return scale, Commodities(near, far, capacity[links] / scale, numpy.array(sources), demand)
