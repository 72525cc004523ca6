"""Properties of the paths of many flows: failures, relayed flows, and disconnected pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, hop_counts, leave_relays
from pillarbox.experiments.models.simulator.failure_sets import (
    FailedNodes,
    intact_flows,
    links_of_selected_flows,
)
from pillarbox.experiments.models.simulator.hops import BLOCK, in_blocks
from pillarbox.experiments.models.simulator.paths import routes, routing_by_name
from pillarbox.hosts.base.rules import NONE
from pillarbox.topos.base.topology import Topology


class PathSets(NamedTuple):
    """Path sets of flows: one row per flow, one column per path of its set."""

    hops: Ints  # hops of each path; 0 without a path, or if an earlier column has the same path
    works: Bools  # whether the path exists and has no failure


def different_paths(topology: Topology, name: str, sources: Ints, destinations: Ints) -> Routes:
    """Return the links of all paths of each flow's set, one set after the other.

    A path without links does not exist, or equals an earlier one of its set. The routing's paths
    must be disjoint, so that paths with the same first hop are the same.
    """
    count = routing_by_name(topology, name).choices(topology)
    ends = numpy.repeat(sources, count), numpy.repeat(destinations, count)
    found = routes(topology, name, *ends, numpy.tile(numpy.arange(count), len(sources)))
    lengths = numpy.diff(found.starts)
    # A hop over a switch ends with the path's second link; the next hop identifies others as well.
    first_hops = numpy.full(len(lengths), NONE)
    there = lengths > 0
    first_hops[there] = found.links[found.starts[:-1][there] + (lengths[there] > 1)]
    again = repeats_in_rows(first_hops.reshape(-1, count)).ravel()
    return links_of_selected_flows(found, ~again)


def path_sets(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    broken: FailedNodes | None = None,
) -> PathSets:
    """Return the lengths of all paths of each flow's set, and which of them work.

    >>> from pillarbox import topos
    >>> dpillar = topos.parse("dpillar,8,2")
    >>> ends = (numpy.array([dpillar.server(server)]) for server in ("0.0.0", "0.3.3"))
    >>> path_sets(dpillar, "mp", *ends).hops.tolist()
    [[2, 4, 4, 4]]
    """
    shape = len(sources), routing_by_name(topology, name).choices(topology)
    sets = PathSets(numpy.zeros(shape, numpy.int32), numpy.zeros(shape, bool))
    link_works = None if broken is None else broken.works(topology)
    for part in in_blocks(len(sources), max(BLOCK // shape[1], 1)):
        found = different_paths(topology, name, sources[part], destinations[part])
        sets.hops[part] = hop_counts(topology, found).reshape(-1, shape[1])
        sets.works[part] = sets.hops[part] > 0
        if link_works is not None:
            sets.works[part] &= intact_flows(link_works, found).reshape(-1, shape[1])
    return sets


def flows_forwarded(
    topology: Topology, name: str, sources: Ints, destinations: Ints, choice: Ints
) -> Ints:
    """Return the number of flows that each server relays; a flow's ends do not relay it.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,4,1")
    >>> ends = numpy.array([0, 1]), numpy.array([5, 2])  # one over a server, one not
    >>> flows_forwarded(bcube, "bcube", *ends, numpy.zeros(2, int)).nonzero()[0].tolist()
    [4]
    """
    counts = numpy.zeros(topology.servers, numpy.int64)
    for part in in_blocks(len(sources)):
        found = routes(topology, name, sources[part], destinations[part], choice[part])
        relays = found.links[leave_relays(topology, found)] // topology.ports
        servers, flows = numpy.unique(relays, return_counts=True)
        counts[servers] += flows
    return counts


def disconnected_flows(
    topology: Topology, broken: FailedNodes, sources: Ints, destinations: Ints
) -> Bools:
    """Return a mask of the flows whose ends the failures disconnect: no routing has a path."""
    island = connected_parts(topology, broken)
    found: Bools = island[sources] != island[destinations]
    return found


def connected_parts(topology: Topology, broken: FailedNodes) -> Ints:
    """Return for each node the number of the part of the network that the failures leave it in."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    cables = topology.cable_arrays()
    failed = numpy.concatenate([broken.servers, broken.switches])
    well = ~(broken.cables | failed[cables.a] | failed[cables.b])
    ends = cables.a[well].astype(numpy.int64), cables.b[well].astype(numpy.int64)
    graph = sparse.coo_array((well[well], ends), (topology.nodes, topology.nodes))
    found: Ints = connected_components(graph, directed=False)[1]
    return found


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
