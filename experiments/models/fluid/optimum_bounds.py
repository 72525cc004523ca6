"""Lower and upper bound of the optimum, derived from a solver's solution.

**Lower bound.** The solver's flows may violate the balance of a node, or a capacity, slightly. Any
deficit at a node is sent there from the source over the fewest links; then all flows are divided by
the load of the most loaded link. The result is a flow that satisfies every condition.

**Upper bound.** Assign any length to each link. A flow of rate r over a path of length d uses r d
of the total resource, which is the sum of capacity x length over all links: rates are therefore
limited by the lengths of the shortest paths. The prices of link capacities, the solver's dual
solution, are lengths for which this bound is tight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy
from scipy import sparse

from pillarbox.experiments.models.arrays import Floats, Ints

EXACT = 1e-6  # relative difference of bounds that counts as a floating-point error
NO_LENGTH = 1e-12  # replaces the length 0, which a sparse graph treats as "no link"


@dataclass(frozen=True)
class Optimum:
    """Lower and upper bound of the optimal throughput."""

    at_least: float
    at_most: float

    @classmethod
    def between(cls, at_least: float, at_most: float) -> Optimum:
        """Return the optimum with these bounds; a larger lower bound is lowered."""
        return cls(min(float(at_least), float(at_most)), float(at_most))

    def __mul__(self, factor: float) -> Optimum:
        """Return the throughput bounds multiplied by a factor, for a change of unit."""
        return Optimum(self.at_least * factor, self.at_most * factor)

    @property
    def gap(self) -> float:
        """Difference of the throughput bounds relative to the upper bound; 0 within rounding."""
        apart = 1 - self.at_least / self.at_most if self.at_most else 0.0
        return apart if apart > EXACT else 0.0


@dataclass(frozen=True)
class Commodities:
    """Demands between nodes, and the links with their capacities, which are at most 1."""

    near: Ints  # node that each link leaves
    far: Ints
    capacity: Floats
    sources: Ints
    demand: Floats  # demand of each source (row) at each node (column)

    @cached_property
    def incidence(self) -> sparse.csr_matrix:
        """Incidence matrix, nodes x links: 1 if a link enters the node, -1 if it leaves."""
        links = numpy.arange(len(self.near))
        signs = numpy.repeat([-1.0, 1.0], len(links))
        ends = numpy.concatenate([self.near, self.far]), numpy.tile(links, 2)
        return sparse.csr_matrix((signs, ends), (self.demand.shape[1], len(links)))

    def graph(self, lengths: Floats) -> tuple[sparse.csr_matrix, Ints]:
        """Return the graph of nodes and its links, with the shortest of parallel links."""
        nodes = self.demand.shape[1]
        order = numpy.argsort(lengths, kind="stable")
        _, first = numpy.unique((self.near * nodes + self.far)[order], return_index=True)
        links = order[first]
        ends = self.near[links], self.far[links]
        return sparse.csr_matrix((lengths[links], ends), (nodes, nodes)), links


def candidate_link_lengths(net: Commodities, prices: Floats) -> Iterator[Floats]:
    """Yield candidate link lengths, all above 0: the solver's prices and three fixed choices.

    After a solver timeout its prices can give a worse bound than equal lengths of all links, or of
    the links at the senders or the receivers alone.
    """
    yield numpy.maximum(prices, NO_LENGTH)
    yield numpy.ones(len(net.near))
    receives = numpy.flatnonzero(net.demand.any(axis=0))
    for ports in (numpy.isin(net.near, net.sources), numpy.isin(net.far, receives)):
        yield numpy.where(ports, 1.0, NO_LENGTH)


def shortest_path_lengths(net: Commodities, lengths: Floats) -> Floats:
    """Return the shortest path length from each source to each node; infinite without a path.

    All link lengths must be above 0. The result is 0 at nodes without demand.
    """
    graph, _ = net.graph(lengths)
    away: Floats = sparse.csgraph.dijkstra(graph, indices=net.sources)
    # Nodes without demand need no capacity, even if they are unreachable.
    return numpy.where(net.demand > 0, away, 0.0)


def repaired_flow(net: Commodities, flows: Floats, wanted: Floats) -> tuple[Floats, float]:
    """Return the solver's arrivals per commodity and node, corrected, and the highest link load.

    Parameters
    ----------
    net : Commodities
        Demands and links.
    flows : array
        Rate of each commodity (row) on each link (column), from a solver.
    wanted : array
        Required arrivals of each commodity (row) at each node (column). Deficits are sent in
        addition to `flows`.
    """
    depth, before, link = _trees(net)
    rows = numpy.arange(len(net.sources))
    # Discard flow that the solver put on links that the source cannot reach.
    flows = numpy.maximum(flows, 0.0) * (depth[:, net.near] >= 0)
    arrived = (net.incidence @ flows.T).T
    missing = numpy.where(depth > 0, numpy.maximum(wanted - arrived, 0.0), 0.0)
    arrived = arrived + missing
    load = flows.sum(axis=0)
    for level in range(
        depth.max(initial=0), 0, -1
    ):  # order: from the leaves of the breadth-first tree to its root
        row, node = numpy.nonzero(depth == level)
        numpy.add.at(load, link[row, node], missing[row, node])
        numpy.add.at(missing, (row, before[row, node]), missing[row, node])
    arrived[rows, net.sources] = 0.0
    return arrived, float((load / net.capacity).max(initial=0.0))


def _trees(net: Commodities) -> tuple[Ints, Ints, Ints]:
    """Return each node's depth, parent and parent link in a breadth-first tree of each source.

    The depth of unreachable nodes is -1.
    """
    graph, links = net.graph(numpy.ones(len(net.near)))
    away, before = sparse.csgraph.dijkstra(
        graph, indices=net.sources, unweighted=True, return_predecessors=True
    )
    depth = numpy.where(numpy.isfinite(away), away, -1).astype(numpy.int64)
    nodes = net.demand.shape[1]
    keys = (
        net.near[links] * nodes + net.far[links]
    )  # sorted in ascending order, since `graph` sorts its links
    wanted = numpy.maximum(before, 0) * nodes + numpy.arange(nodes)
    place = numpy.minimum(numpy.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    return depth, before, links[place] if len(links) else numpy.zeros_like(depth)
