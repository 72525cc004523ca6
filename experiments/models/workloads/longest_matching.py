"""Longest-matching traffic: the permutation of servers with the longest paths.

The pattern is that of Jyothi et al., "Measuring and Understanding Throughput of Network
Topologies", SC 2016. Each server sends to one server and receives from one, and the total length of
the shortest paths is the maximum over all such permutations. Long paths use the capacity of many
cables, so the pattern is close to the worst case of a network's throughput. Its computation is an
assignment problem.
"""

from __future__ import annotations

import numpy

from pillarbox.experiments.models.arrays import Floats
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

MOST_SERVERS = 2000  # maximum number of servers, limited by computing time


def longest_matching(topology: Topology) -> list[tuple[int, int]]:
    """Return the pairs of sender and receiver with the longest shortest paths in total.

    >>> from pillarbox import topos
    >>> longest_matching(topos.parse("bcube,2,1"))  # both digits differ
    [(0, 3), (1, 2), (2, 1), (3, 0)]
    """
    require(
        topology.servers <= MOST_SERVERS,
        f"longest-matching is computed for at most {MOST_SERVERS} servers, and {topology.spec} has "
        f"{topology.servers}: choose a smaller network, or the pattern permutation",
    )
    from scipy.optimize import linear_sum_assignment

    senders, receivers = linear_sum_assignment(_weights(topology), maximize=True)
    return list(zip(senders.tolist(), receivers.tolist(), strict=True))


def _weights(topology: Topology) -> Floats:
    """Return the number of cables between each pair of servers, 0 if they are not connected.

    A server's weight to itself is negative: with the triangle inequality, no maximum contains it.
    """
    from scipy import sparse

    ends = numpy.array([(cable.a, cable.b) for cable in topology.links()]).T
    graph = sparse.csr_matrix((numpy.ones(ends.shape[1]), tuple(ends)), (topology.nodes,) * 2)
    weights: Floats = sparse.csgraph.dijkstra(
        graph, directed=False, unweighted=True, indices=range(topology.servers)
    )[:, : topology.servers]
    weights[numpy.isinf(weights)] = 0
    numpy.fill_diagonal(weights, -1)
    return weights
