"""Properties of the paths of many flows: failures, relayed flows, and disconnected pairs.

Only servers and switches on the flows' paths are computed. So the cost depends on the number of
flows, not on the size of the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy

from experiments.models.simulator.failure_sets import Bools, FailedNodes
from experiments.models.simulator.hops import Hops, Ints, hops_of_flows, in_blocks
from experiments.models.simulator.paths import routing_by_name
from topos.base.errors import require
from topos.base.topology import Topology


class PathSets(NamedTuple):
    """Path sets of flows: one row per flow, one column per path of its set."""

    hops: Ints  # hops of each path; 0 without a path, or if an earlier column has the same path
    works: Bools  # whether the path exists and has no failure


def hops_in_blocks(
    topology: Topology, name: str, sources: Ints, destinations: Ints, choice: Ints
) -> Iterator[tuple[slice, Hops]]:
    """Yield the hops of flows on a routing's paths, block by block."""
    walker = routing_by_name(topology, name).walk
    require(
        walker is not None,
        f"routing {name!r} of {topology.spec} passes switches only, no servers",
    )
    assert walker
    fill, most, _ = walker(topology)
    for part in in_blocks(len(sources)):
        yield part, hops_of_flows(fill(choice[part]), most, sources[part], destinations[part])


def path_sets(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    broken: FailedNodes | None = None,
) -> PathSets:
    """Return the lengths of all paths of each flow's set, and which of them work.

    The routing's paths must be disjoint, so that paths with the same first hop are the same.

    >>> import topos
    >>> dpillar = topos.parse("dpillar,8,2")
    >>> ends = (numpy.array([dpillar.server(server)]) for server in ("0.0.0", "0.3.3"))
    >>> path_sets(dpillar, "mp", *ends).hops.tolist()
    [[2, 4, 4, 4]]
    """
    count = routing_by_name(topology, name).choices(topology)
    starts, ends = numpy.repeat(sources, count), numpy.repeat(destinations, count)
    choice = numpy.tile(numpy.arange(count), len(sources))
    hops = numpy.zeros(len(starts), numpy.int32)
    works = numpy.zeros(len(starts), bool)
    first_hops = numpy.full(len(starts), -1, numpy.int64)
    for part, found in hops_in_blocks(topology, name, starts, ends, choice):
        hops[part] = found.counts
        works[part] = _intact_paths(topology, starts[part], found, broken)
        there = found.counts > 0
        first_hops[part][there] = found.peers[there, 0] * topology.ports + found.ports[there, 0]
    again = repeats_in_rows(first_hops.reshape(-1, count)).ravel()
    hops[again] = 0
    works[again] = False
    return PathSets(hops.reshape(-1, count), works.reshape(-1, count))


def flows_forwarded(
    topology: Topology, name: str, sources: Ints, destinations: Ints, choice: Ints
) -> Ints:
    """Return the number of flows that each server relays; a flow's ends do not relay it.

    >>> import topos
    >>> bcube = topos.parse("bcube,4,1")
    >>> ends = numpy.array([0, 1]), numpy.array([5, 2])  # one over a server, one not
    >>> flows_forwarded(bcube, "bcube", *ends, numpy.zeros(2, int)).nonzero()[0].tolist()
    [4]
    """
    counts = numpy.zeros(topology.servers, numpy.int64)
    for _, found in hops_in_blocks(topology, name, sources, destinations, choice):
        relays = numpy.arange(found.peers.shape[1]) < found.counts[:, None] - 1
        servers, flows = numpy.unique(found.peers[relays], return_counts=True)
        counts[servers] += flows
    return counts


def disconnected_flows(
    topology: Topology, broken: FailedNodes, sources: Ints, destinations: Ints
) -> Bools:
    """Return a mask of the flows whose ends the failures disconnect: no routing has a path."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    cables = topology.cable_arrays()
    failed = numpy.concatenate([broken.servers, broken.switches])
    well = ~(broken.cables | failed[cables.a] | failed[cables.b])
    ends = cables.a[well].astype(numpy.int64), cables.b[well].astype(numpy.int64)
    graph = sparse.coo_array((well[well], ends), (topology.nodes, topology.nodes))
    _, island = connected_components(graph, directed=False)
    found: Bools = island[sources] != island[destinations]
    return found


def _intact_paths(
    topology: Topology, sources: Ints, hops: Hops, broken: FailedNodes | None
) -> Bools:
    """Return a mask of the flows whose path has no failed server or switch."""
    intact: Bools = hops.counts > 0
    if broken is None:
        return intact
    require(
        not broken.cables.any(),
        "this function takes failed servers and switches; for failed cables see "
        "`failures.surviving`",
    )
    written = hops.written()
    ports, peers = hops.ports[written], hops.peers[written]
    at = numpy.column_stack([sources, hops.peers[:, :-1]])[written]
    failed = broken.servers[peers]
    for port in range(topology.ports):
        here = numpy.flatnonzero(ports == port)
        node = numpy.broadcast_to(topology.server_plug(at[here], port).node, here.shape)
        switched = node >= topology.servers
        failed[here[switched]] |= broken.switches[node[switched] - topology.servers]
    flow = numpy.repeat(numpy.arange(len(sources)), hops.counts)
    intact[flow[failed]] = False
    return intact


def repeats_in_rows(rows: Ints) -> Bools:
    """Return a mask of the values that occur earlier in their row.

    >>> repeats_in_rows(numpy.array([[7, 3, 7], [1, 2, 3]])).tolist()
    [[False, False, True], [False, False, False]]
    """
    order = numpy.argsort(rows, axis=1, kind="stable")
    ordered = numpy.take_along_axis(rows, order, axis=1)
    same = numpy.zeros(rows.shape, bool)
    same[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    found = numpy.zeros(rows.shape, bool)
    numpy.put_along_axis(found, order, same, axis=1)
    return found
