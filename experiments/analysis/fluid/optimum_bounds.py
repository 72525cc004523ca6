"""What a solver's answer proves: two numbers between which the optimum lies.

**At least.** The flows that it found may break the balance at a node, or a capacity, by a little.
What is missing anywhere is sent there from the source, over fewest links; then all is divided by
the load of the fullest link. What is left is a flow that keeps to everything.

**At most.** Give each link any length. A flow of rate r over a way of length d takes r d of all
that there is, which is the sum of capacity times length: so rates cannot be above what shortest
ways need. The prices of links' capacities, the solver's dual solution, are lengths for which this
is tight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray
from scipy import sparse

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]
    Ints = NDArray[numpy.integer[Any]]

EXACT = 1e-6  # relative: what floating point leaves
NO_LENGTH = 1e-12  # in place of 0, which would be no link


@dataclass(frozen=True)
class Optimum:
    """What is possible, and what is not."""

    at_least: float
    at_most: float

    @classmethod
    def between(cls, at_least: float, at_most: float) -> Optimum:
        """Return both, where rounding has not swapped them."""
        return cls(min(float(at_least), float(at_most)), float(at_most))

    def __mul__(self, factor: float) -> Optimum:
        """Return the same in another unit."""
        return Optimum(self.at_least * factor, self.at_most * factor)

    @property
    def gap(self) -> float:
        """How far the two are apart, relative to the larger; 0 where they are the same."""
        apart = 1 - self.at_least / self.at_most if self.at_most else 0.0
        return apart if apart > EXACT else 0.0


@dataclass(frozen=True)
class Commodities:
    """Who sends how much to whom, over which links; capacities are 1 at most."""

    near: Ints  # the node that each link leaves
    far: Ints
    capacity: Floats
    sources: Ints
    demand: Floats  # of each source (row), at each node

    @cached_property
    def incidence(self) -> sparse.csr_matrix:
        """Nodes x links: what enters a node minus what leaves it."""
        links = numpy.arange(len(self.near))
        signs = numpy.repeat([-1.0, 1.0], len(links))
        ends = numpy.concatenate([self.near, self.far]), numpy.tile(links, 2)
        return sparse.csr_matrix((signs, ends), (self.demand.shape[1], len(links)))

    def graph(self, lengths: Floats) -> tuple[sparse.csr_matrix, Ints]:
        """Return the graph of nodes, and the links that it has; of parallel ones the shortest."""
        nodes = self.demand.shape[1]
        order = numpy.argsort(lengths, kind="stable")
        _, first = numpy.unique((self.near * nodes + self.far)[order], return_index=True)
        links = order[first]
        ends = self.near[links], self.far[links]
        return sparse.csr_matrix((lengths[links], ends), (nodes, nodes)), links


def lengths_tried(net: Commodities, prices: Floats) -> Iterator[Floats]:
    """Yield lengths of links, all above 0: the solver's prices, and some that follow from counting.

    Where the solver had no time its prices can be worse than to count all links, or the ports of
    those who send or receive.
    """
    yield numpy.maximum(prices, NO_LENGTH)
    yield numpy.ones(len(net.near))
    receives = numpy.flatnonzero(net.demand.any(axis=0))
    for ports in (numpy.isin(net.near, net.sources), numpy.isin(net.far, receives)):
        yield numpy.where(ports, 1.0, NO_LENGTH)


def lengths_needed(net: Commodities, lengths: Floats) -> Floats:
    """Return how long the shortest way is from each source to each node; infinite without one.

    Every length is above 0.
    """
    graph, _ = net.graph(lengths)
    away: Floats = sparse.csgraph.dijkstra(graph, indices=net.sources)
    # What no flow wants needs nothing, also where there is no way.
    return numpy.where(net.demand > 0, away, 0.0)


def routed(net: Commodities, flows: Floats, wanted: Floats) -> tuple[Floats, float]:
    """Return what then arrives at each node, of each commodity, and the load of the fullest link.

    Parameters
    ----------
    net : Commodities
        What is to be sent.
    flows : array
        Of each commodity (row), on each link: as a solver has found them.
    wanted : array
        What has to arrive, of each commodity at each node. What is missing is sent as well.
    """
    depth, before, link = _trees(net)
    rows = numpy.arange(len(net.sources))
    # What the source does not reach is none of its flow.
    flows = numpy.maximum(flows, 0.0) * (depth[:, net.near] >= 0)
    arrived = (net.incidence @ flows.T).T
    missing = numpy.where(depth > 0, numpy.maximum(wanted - arrived, 0.0), 0.0)
    arrived = arrived + missing
    load = flows.sum(axis=0)
    for level in range(depth.max(initial=0), 0, -1):  # from the leaves of each tree to its root
        row, node = numpy.nonzero(depth == level)
        numpy.add.at(load, link[row, node], missing[row, node])
        numpy.add.at(missing, (row, before[row, node]), missing[row, node])
    arrived[rows, net.sources] = 0.0
    return arrived, float((load / net.capacity).max(initial=0.0))


def _trees(net: Commodities) -> tuple[Ints, Ints, Ints]:
    """Return each node's depth in a tree of fewest links from each source, its parent and link.

    The depth is -1 where the source does not reach.
    """
    graph, links = net.graph(numpy.ones(len(net.near)))
    away, before = sparse.csgraph.dijkstra(
        graph, indices=net.sources, unweighted=True, return_predecessors=True
    )
    depth = numpy.where(numpy.isfinite(away), away, -1).astype(numpy.int64)
    nodes = net.demand.shape[1]
    keys = net.near[links] * nodes + net.far[links]  # in order, as `graph` has them
    wanted = numpy.maximum(before, 0) * nodes + numpy.arange(nodes)
    place = numpy.minimum(numpy.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    return depth, before, links[place] if len(links) else numpy.zeros_like(depth)
