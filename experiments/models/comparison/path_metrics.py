"""Diameters, link loads and disjoint paths, by exhaustive search in a small network."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy
from scipy import sparse

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.fluid.disjoint import disjoint_paths as between
from pillarbox.topos.base import diameter as topo_diameter
from pillarbox.topos.base.diameter import MOST_SEARCHED
from pillarbox.topos.base.topology import Topology

# Number of sources searched together: a search holds matrices of servers x SOURCES numbers.
SOURCES = 512
# Maximum number of servers for which disjoint paths are computed, on sampled pairs.
MOST_PAIRED = 4096
SAMPLED_PAIRS = 40
SEED = 0
SAMPLE = "a sample of"


class SearchedMetric(NamedTuple):
    """Value of a metric found by graph search (None if missing), and the method or reason."""

    value: int | None
    note: str


def diameter(topology: Topology) -> SearchedMetric:
    """Return the longest shortest path in server-to-server hops, by a search from every server."""
    if topology.servers > MOST_SEARCHED:
        return SearchedMetric(None, f"not searched: more than {MOST_SEARCHED:,} servers")
    found = topo_diameter.diameter(topology)
    return SearchedMetric(found, "not connected" if found is None else "searched from every server")


def adjacency(topology: Topology) -> sparse.csr_matrix:
    """Return the symmetric matrix of cables between nodes (two parallel cables count as 2).

    A cable counts by the relative rate of its level: it is as many cables of the network's rate.
    """
    cables = topology.cable_arrays()
    a, b = cables.a.astype(numpy.int64), cables.b.astype(numpy.int64)
    ends = (numpy.concatenate([a, b]), numpy.concatenate([b, a]))
    weights = numpy.tile(cable_rates(topology), 2)
    return sparse.csr_matrix((weights, ends), (topology.nodes, topology.nodes))


def cable_rates(topology: Topology) -> Floats:
    """Return the relative rate of each cable, in the order of `Topology.links`."""
    if not topology.factors.rates:
        return numpy.ones(topology.cables)
    of_level = numpy.array(topology.factors.rates, numpy.float64)
    found: Floats = of_level[topology.cable_arrays().level]
    return found


def link_loads(topology: Topology) -> Floats:
    """Return the flows on each cable, a to b (row 0) and back (row 1), in all-to-all traffic."""
    cables = topology.cable_arrays()
    a, b = cables.a.astype(numpy.int64), cables.b.astype(numpy.int64)
    ends = numpy.concatenate([a, b]), numpy.concatenate([b, a])
    return edge_loads(*ends, topology.nodes, topology.servers).reshape(2, -1)


def edge_loads(near: Ints, far: Ints, nodes: int, senders: int) -> Floats:
    """Return the flows on each directed edge in all-to-all traffic between the first `senders`
    nodes.

    Each ordered pair of senders is one flow, split evenly over its paths of fewest edges. Brandes's
    algorithm for many sources simultaneously, as products of matrices.
    """
    matrix = sparse.csr_matrix((numpy.ones(len(near)), (far, near)), (nodes, nodes))
    loads = numpy.zeros(len(near))
    for first in range(0, senders, SOURCES):
        sources = numpy.arange(first, min(first + SOURCES, senders))
        depth, path_counts, through = _brandes(matrix, sources, senders)
        for start in range(0, len(near), 1 << 13):
            part = slice(start, start + (1 << 13))
            u, v = near[part], far[part]
            onward = depth[v] == depth[u] + 1
            share = path_counts[u] * through[v]
            loads[part] += numpy.where(onward, share, 0).sum(axis=1)
    return loads


def _brandes(matrix: sparse.csr_matrix, sources: Ints, servers: int) -> tuple[Ints, Floats, Floats]:
    """Run Brandes' algorithm: return depth, shortest paths and inflow, as nodes x sources."""
    shape = (matrix.shape[0], len(sources))
    depth = numpy.full(shape, -2)
    path_counts = numpy.zeros(shape)
    columns = numpy.arange(len(sources))
    depth[sources, columns], path_counts[sources, columns] = 0, 1.0
    level, frontier = 0, path_counts.copy()
    while frontier.any():
        level += 1
        found = (matrix @ frontier) * (depth == -2)
        depth[found > 0] = level
        path_counts += found
        frontier = found
    through = numpy.zeros(shape)  # flow into each node / number of shortest paths to the node
    ends = numpy.zeros(shape)
    ends[:servers] = 1.0
    inward = numpy.zeros(shape)
    for here in range(level - 1, 0, -1):
        at = depth == here
        flow = at * (ends + path_counts * inward)
        per_path = numpy.divide(flow, path_counts, out=numpy.zeros(shape), where=at)
        through += per_path
        inward = matrix.T @ per_path
    return depth, path_counts, through


class DisjointPathCounts(NamedTuple):
    """Node-disjoint paths per pair of servers: lowest and most frequent number, and the pairs."""

    least: int | None
    typical: int | None
    note: str


def disjoint_paths(topology: Topology) -> DisjointPathCounts:
    """Return the number of paths that share no server or switch, by max-flow over sampled pairs."""
    if topology.servers > MOST_PAIRED:
        return DisjointPathCounts(None, None, f"not computed: more than {MOST_PAIRED:,} servers")
    if topology.servers < 2:
        return DisjointPathCounts(None, None, "there is only one server")
    pairs, note = _server_pairs_to_search(topology.servers)
    found = [between(topology, source, destination).by_node for source, destination in pairs]
    return DisjointPathCounts(min(found), max(set(found), key=found.count), note)


def _server_pairs_to_search(servers: int) -> tuple[list[tuple[int, int]], str]:
    every = servers * (servers - 1) // 2
    if every <= SAMPLED_PAIRS * 5:
        return [(s, d) for d in range(servers) for s in range(d)], "all pairs"
    draw = random.Random(SEED)
    pairs = [tuple(draw.sample(range(servers), 2)) for _ in range(SAMPLED_PAIRS)]
    return [(s, d) for s, d in pairs], f"{SAMPLE} {SAMPLED_PAIRS} pairs, seed {SEED}"
