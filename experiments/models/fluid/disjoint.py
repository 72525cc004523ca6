"""Number of disjoint paths between two servers, by maximum flows (Menger's theorem).

Link-disjoint paths share no direction of a cable; node-disjoint paths share no server and no switch
except their ends. The number of link-disjoint paths is the maximum flow with link capacities of one
unit; the number of node-disjoint paths is the maximum flow in which every server and every switch
has a capacity of one unit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy
from scipy import sparse

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import cabled_ends
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

MOST_CABLES = 1_000_000


class DisjointPathCount(NamedTuple):
    """Maximum number of link-disjoint and of node-disjoint paths between two servers."""

    by_link: int
    by_node: int


def disjoint_paths(
    topology: Topology, source: int, destination: int, works: Bools | None = None
) -> DisjointPathCount:
    """Return the maximum number of link-disjoint and node-disjoint paths.

    Parameters
    ----------
    topology : Topology
        The network.
    source, destination : int
        Two different servers.
    works : array, optional
        State of each link by link number, True if paths may use the link (see
        `pillarbox.experiments.models.fluid.directed_links`).

    Examples
    --------
    DPillar's parallel paths share the source's switch and the destination's (Liao 2012, section
    4.1): of the n/2 clockwise and n/2 counter-clockwise ones, a server with two ports can use two
    at the full rate.

    >>> from pillarbox import topos
    >>> disjoint_paths(topos.parse("dpillar,8,2"), 0, 31)
    DisjointPathCount(by_link=2, by_node=2)
    >>> disjoint_paths(topos.parse("bcube,4,2"), 0, 63)  # Guo 2009, Theorem 3: k + 1
    DisjointPathCount(by_link=3, by_node=3)
    """
    require(
        source != destination,
        "disjoint paths are computed between two different servers, not from a server to itself",
    )
    require(
        topology.cables <= MOST_CABLES,
        f"a maximum flow of {topology.spec} would need all its {topology.cables:,} cables in "
        f"memory, and the limit is {MOST_CABLES:,}: choose a smaller network",
    )
    links, near, far = cabled_ends(topology)
    if works is not None:
        near, far = near[works[links]], far[works[links]]
    count = topology.nodes
    every = numpy.arange(count)
    # Each node is split in two with an inner link: links enter the first half, leave the second.
    ends = numpy.concatenate([near + count, every]), numpy.concatenate([far, every + count])
    return DisjointPathCount(
        _max_flow(near, far, count, source, destination),
        _max_flow(*ends, 2 * count, source + count, destination),
    )


def _max_flow(near: Ints, far: Ints, nodes: int, source: int, destination: int) -> int:
    ones = numpy.ones(len(near), numpy.int32)
    graph = sparse.csr_matrix((ones, (near, far)), (nodes, nodes), numpy.int32)
    return int(sparse.csgraph.maximum_flow(graph, source, destination).flow_value)


def node_disjoint_paths(
    topology: Topology, source: int, destination: int, failures: Failures = NONE
) -> list[list[int]]:
    """Return the maximum set of working node-disjoint paths, the shortest first.

    >>> from pillarbox import topos
    >>> node_disjoint_paths(topos.parse("dcell,2,1"), 0, 4)
    [[0, 6, 1, 4], [0, 2, 7, 3, 5, 8, 4]]
    """
    import networkx

    graph = networkx.Graph((cable.a, cable.b) for cable in topology.links())
    graph.remove_edges_from(map(tuple, failures.links))
    graph.remove_nodes_from(failures.nodes)
    try:
        return sorted(networkx.node_disjoint_paths(graph, source, destination), key=len)
    except networkx.NetworkXException:  # no working path exists, or an end of the path has failed
        return []
