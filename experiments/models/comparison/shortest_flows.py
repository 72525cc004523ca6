"""Flows on random shortest paths in any network, with failures, compiled.

A shortest path has the fewest server-to-server hops, and among those the fewest cables. Each flow
takes a random one: at each node any port that leads on along a shortest path is equally likely. No
routing of a paper is needed, so that all networks are measured alike. The loads of all-to-all
traffic are exact: the flows of all pairs of servers are split by the same shares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, cabled_ends, link_count
from pillarbox.experiments.models.simulator.compiled import native
from pillarbox.topos.base.topology import Topology

# Cost of a cable that leaves a server, compared with 1 of a cable that leaves a switch: more than
# the number of switches on a hop.
HOP = 256
FAR = 1 << 30  # cost of unreachable nodes
SLOTS = 8  # links per flow for which memory is reserved at first; doubled as needed


class ShortestFlows(NamedTuple):
    """Links of flows, and the longest shortest path to the flows' destinations, in hops."""

    routes: Routes
    longest_hops: int  # over all pairs of servers; -1 if two servers with cables are disconnected
    # All-to-all flows on each link, by link number, split over shortest paths; empty with failures.
    loads: Floats


class _Adjacency(NamedTuple):
    """Working links in the order of their far ends, for a search from a destination backwards."""

    first: Ints  # for each node: number of its first entry
    near: Ints  # node at the near end of each link
    link: Ints


def _adjacency(topology: Topology, works: Bools | None, backwards: bool) -> _Adjacency:
    links, near, far = cabled_ends(topology)
    if works is not None:
        kept = works[links]
        links, near, far = links[kept], near[kept], far[kept]
    at, other = (far, near) if backwards else (near, far)
    order = numpy.argsort(at, kind="stable")
    first = numpy.searchsorted(at[order], numpy.arange(topology.nodes + 1))
    return _Adjacency(first.astype(numpy.int64), other[order].copy(), links[order].copy())


def shortest_flows(
    topology: Topology, partners: Ints, seed: int, works: Bools | None = None
) -> ShortestFlows:
    """Return the links of flows on random shortest paths.

    Parameters
    ----------
    topology : Topology
        The network.
    partners : array of rows
        Row d contains the sources that send to server d; each is one flow, in the order of rows.
    seed : int
        Seed of the random choices.
    works : array, optional
        Whether each link works, by link number (default: all).

    Examples
    --------
    >>> from pillarbox import topos
    >>> ring = topos.parse("ring,4")
    >>> flows = shortest_flows(ring, numpy.array([[2], [2], [3], [2]]), seed=1)
    >>> numpy.diff(flows.routes.starts).tolist(), flows.longest_hops
    ([2, 1, 1, 1], 2)
    >>> flows.loads.tolist()  # each server: 1 flow to a neighbour, halves of 2 of length 2
    [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    """
    backwards = _adjacency(topology, works, backwards=True)
    onwards = _adjacency(topology, works, backwards=False)
    partners = numpy.ascontiguousarray(partners, numpy.int64)
    starts = numpy.zeros(partners.size + 1, numpy.int64)
    slots = SLOTS
    while True:
        loads = numpy.zeros(link_count(topology) if works is None else 0)
        links = numpy.empty(partners.size * slots, numpy.int64)
        longest = _walk_flows(
            topology.servers, backwards, onwards, partners, seed, starts, links, loads
        )
        if starts[-1] <= len(links):
            routes = Routes(starts, links[: starts[-1]].copy())
            return ShortestFlows(routes, int(longest), loads)
        slots *= 2


@native
def _walk_flows(
    servers: int,
    backwards: _Adjacency,
    onwards: _Adjacency,
    partners: Ints,
    seed: int,
    starts: Ints,
    links: Ints,
    loads: Floats,
) -> int:
    """Write each flow's links, as far as they fit; return the longest shortest path in hops.

    The last entry of `starts` is the number of links of all flows, whether or not they fit.
    """
    first, near, _ = backwards
    out, far, link = onwards
    nodes = len(first) - 1
    cost = numpy.empty(nodes, numpy.int64)
    waiting = numpy.zeros(nodes, numpy.bool_)
    queue = numpy.empty(nodes + 1, numpy.int64)
    state = numpy.int64(seed * 2 + 1)
    end, flow, longest = 0, 0, 0
    for destination in range(servers):
        _search(servers, first, near, destination, cost, waiting, queue)
        if len(loads):
            _add_loads(servers, onwards, cost, loads)
        for server in range(servers):
            if cost[server] >= FAR:
                if (
                    first[server] < first[server + 1]
                    and first[destination] < first[destination + 1]
                ):
                    longest = -1
            elif longest >= 0:
                longest = max(longest, cost[server] // HOP)
        for row in range(partners.shape[1]):
            node = partners[destination, row]
            if cost[node] < FAR:
                while node != destination:
                    count, chosen = 0, -1
                    for place in range(out[node], out[node + 1]):
                        weight = HOP if node < servers else 1
                        if cost[far[place]] + weight == cost[node]:
                            count += 1
                            # Linear congruential generator of 31 bits; its high bits are used.
                            state = (state * 1103515245 + 12345) % 2147483648
                            if (state >> 8) % count == 0:
                                chosen = place
                    if end < len(links):
                        links[end] = link[chosen]
                    end += 1
                    node = far[chosen]
            flow += 1
            starts[flow] = end
    return longest


def _search(
    servers: int,
    first: Ints,
    near: Ints,
    destination: int,
    cost: Ints,
    waiting: Bools,
    queue: Ints,
) -> None:
    """Compute the cost of every node's shortest path to a destination, by a label-correcting queue.

    The queue is a ring: a node is in it at most once.
    """
    for node in range(len(cost)):
        cost[node] = FAR
    cost[destination] = 0
    head, tail, size = 0, 1, len(queue)
    queue[0] = destination
    while head != tail:
        node = queue[head]
        head = head + 1 if head + 1 < size else 0
        waiting[node] = False
        for place in range(first[node], first[node + 1]):
            other = near[place]
            reached = cost[node] + (HOP if other < servers else 1)
            if reached < cost[other]:
                cost[other] = reached
                if not waiting[other]:
                    waiting[other] = True
                    queue[tail] = other
                    tail = tail + 1 if tail + 1 < size else 0


def _add_loads(servers: int, onwards: _Adjacency, cost: Ints, loads: Floats) -> None:
    """Add the flows from all servers to one destination, given the cost of every node's path."""
    out, far, link = onwards
    nodes = len(cost)
    flow = numpy.zeros(nodes)
    order, count = _by_cost(cost)
    for place in range(count - 1, 0, -1):  # farthest node first; number 0 is the destination
        node = order[place]
        weight = 1
        if node < servers:
            flow[node] += 1.0
            weight = HOP
        ways = 0
        for entry in range(out[node], out[node + 1]):
            ways += cost[far[entry]] + weight == cost[node]
        share = flow[node] / ways
        for entry in range(out[node], out[node + 1]):
            if cost[far[entry]] + weight == cost[node]:
                loads[link[entry]] += share
                flow[far[entry]] += share


def _by_cost(cost: Ints) -> tuple[Ints, int]:
    """Return the reachable nodes in the order of their costs, and their number."""
    largest = 0
    for value in cost:
        if value < FAR:
            largest = max(largest, value)
    begins = numpy.zeros(largest + 2, numpy.int64)
    for value in cost:
        if value < FAR:
            begins[value + 1] += 1
    for value in range(largest + 1):
        begins[value + 1] += begins[value]
    count = begins[largest + 1]
    order = numpy.empty(len(cost), numpy.int64)
    for node in range(len(cost)):
        if cost[node] < FAR:
            order[begins[cost[node]]] = node
            begins[cost[node]] += 1
    return order, count
