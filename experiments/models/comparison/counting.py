"""Upper bounds of the aggregate bottleneck throughput that follow from counting links and ports.

Flows of equal rates use links and cross cuts. Whatever the routing, all flows together use at least
the links of their shortest paths; the flows of a server pass its ports; and in all-to-all traffic
half of the servers send to the other half over the cables of a bisection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy
from scipy import sparse

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.comparison.bisection import bisection
from pillarbox.experiments.models.fluid.directed_links import cabled_ends, link_factors
from pillarbox.topos.base.topology import Topology

SOURCES = 256  # number of source servers per shortest-path search
MOST_SERVERS = 512  # maximum number of servers for computing the bisection
BISECTION_S = 2.0


class ThroughputLimit(NamedTuple):
    """Upper bound of a network's throughput, and a text with the reason for it."""

    name: str
    throughput: float  # throughput bound, in units of a link's rate
    why: str


def throughput_limits(
    topology: Topology, pairs: Sequence[tuple[int, int]], works: Bools
) -> Iterator[ThroughputLimit]:
    """Yield upper bounds of the throughput of flows between pairs of servers that have a path.

    Examples
    --------
    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.fluid.directed_links import working_links
    >>> tree = topos.parse("tree,2,2")
    >>> every = [(a, b) for a in range(4) for b in range(4) if a != b]
    >>> for limit in throughput_limits(tree, every, working_links(tree)):
    ...     print(limit.name, round(limit.throughput, 3), limit.why)
    links 3.6 12 links, and 3.33 on a flow's shortest path
    ports 4.0 3 flows over 1 port of 0.0
    bisection 3.0 1 cable between halves, and 4 flows each way
    """
    if not pairs:
        return
    links, near, far = cabled_ends(topology)
    used = works[links]
    near, far = near[used], far[used]
    rates = link_factors(topology, topology.factors.rates)[links[used]]
    ends = numpy.array(pairs, numpy.int64)
    taken = _links_of_shortest_paths(topology, ends, near, far)
    each = f"{taken / len(pairs):.3g} on a flow's shortest path"
    equal = not topology.factors.rates
    counted = f"{len(near)} links" if equal else f"{len(near)} links of rate {rates.sum():g}"
    yield ThroughputLimit(
        "links", len(pairs) * float(rates.sum()) / taken, f"{counted}, and {each}"
    )
    yield _server_port_bound(topology, ends, near, rates)
    every = topology.servers * (topology.servers - 1)
    whole = len(near) == len(links) and len(set(pairs)) == len(pairs) == every
    if whole and topology.servers <= MOST_SERVERS:
        cut = bisection(topology, BISECTION_S).upper
        assert cut is not None
        across = topology.servers // 2 * -(-topology.servers // 2)
        cables = _counted(cut, "cable") if equal else f"cables of rate {cut}"
        reason = f"{cables} between halves, and {_counted(across, 'flow')} each way"
        yield ThroughputLimit("bisection", every * cut / across, reason)


def _links_of_shortest_paths(topology: Topology, ends: Ints, near: Ints, far: Ints) -> float:
    ones = numpy.ones(len(near))
    graph = sparse.csr_matrix((ones, (near, far)), (topology.nodes, topology.nodes))
    sources, row = numpy.unique(ends[:, 0], return_inverse=True)
    total = 0.0
    for first in range(0, len(sources), SOURCES):
        part = sources[first : first + SOURCES]
        away = sparse.csgraph.dijkstra(graph, indices=part, unweighted=True)
        here = (row >= first) & (row < first + SOURCES)
        total += away[row[here] - first, ends[here, 1]].sum()
    return total


def _server_port_bound(
    topology: Topology, ends: Ints, near: Ints, rates: Floats
) -> ThroughputLimit:
    """Return the bound by the server with the most flows per port, in either direction.

    Ports count by the relative rate of their cable.
    """
    ports = numpy.bincount(near, rates, minlength=topology.nodes)
    flows = numpy.stack([numpy.bincount(side, minlength=topology.nodes) for side in ends.T])
    crowd = flows.max(axis=0) / numpy.maximum(ports, 1)
    server = int(crowd.argmax())
    count, most = int(ports[server]), int(flows[:, server].max())
    over = f"ports of rate {count}" if topology.factors.rates else _counted(count, "port")
    reason = f"{_counted(most, 'flow')} over {over} of {topology.address(server)}"
    return ThroughputLimit("ports", len(ends) / float(crowd[server]), reason)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
