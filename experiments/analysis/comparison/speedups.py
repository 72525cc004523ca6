"""What one server's traffic gains from several ports: Guo 2009, Table 1's one-to-x.

In units of one link's rate, over the paths of the network's own routing, and of the trees by which
it distributes a file. The two-level tree, where every server has one port, is what they speed up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from experiments.analysis.fluid.disjoint import disjoint_paths
from experiments.analysis.fluid.ideal import static_paths
from experiments.analysis.fluid.links import link_count, routes_of
from experiments.analysis.fluid.rates import link_loads, max_min
from experiments.traffic.distribution_plan import plan_of
from hosts.base.path import Path
from topos.base.topology import Topology

SOURCE = 0


def to_one(topology: Topology) -> int:
    """Return what a server can send to any other over all paths that share no link.

    >>> import topos
    >>> to_one(topos.parse("bcube,4,1")), to_one(topos.parse("tree,2,2"))
    (2, 1)
    """
    others = range(SOURCE + 1, topology.servers)
    return min(disjoint_paths(topology, SOURCE, other).by_link for other in others)


def of_a_file(topology: Topology, receivers: Sequence[int]) -> float:
    """Return how many times as fast as over one link a file reaches all receivers.

    Each tree takes an equal part, each hop of it the path that routing takes, and the link that
    carries most decides. A tree that does not reach all is worth nothing.

    >>> import topos
    >>> of_a_file(topos.parse("bcube,4,1"), range(1, 16))
    2.0
    >>> of_a_file(topos.parse("tree,2,2"), [1, 2, 3])
    1.0
    """
    trees = plan_of(topology, SOURCE, receivers).trees
    if any(not set(receivers) <= {receiver for _, receiver in tree} for tree in trees):
        return 0.0
    hops = [hop for tree in trees for hop in tree]
    links = link_count(topology)
    loads = link_loads(routes_of(topology, _paths(topology, hops)), None, links)
    return float(len(trees) / loads.max())


def groups(topology: Topology, routing: str) -> dict[int, list[int]]:
    """Return all others by the port that the routing reaches them with.

    By DCellRouting these are the groups of Guo 2008, Theorem 6.

    >>> import topos
    >>> [len(group) for group in groups(topos.parse("dcell,4,1"), "dcell").values()]
    [15, 4]
    """
    found: dict[int, list[int]] = {}
    others = [server for server in range(topology.servers) if server != SOURCE]
    pairs = [(SOURCE, other) for other in others]
    for other, path in zip(others, static_paths(topology, routing, pairs), strict=True):
        if path:
            found.setdefault(path.steps[0].port, []).append(other)
    return dict(sorted(found.items()))


def to_groups(topology: Topology, routing: str) -> float:
    """Return what a server sends to one other of each group, the last of each.

    >>> import topos
    >>> to_groups(topos.parse("dcell,4,1"), "dcell")
    2.0
    """
    pairs = [(SOURCE, members[-1]) for members in groups(topology, routing).values()]
    paths = static_paths(topology, routing, pairs)
    return float(numpy.sum(max_min(routes_of(topology, paths), 1.0, link_count(topology))))


def _paths(topology: Topology, hops: Sequence[tuple[int, int]]) -> list[Path | None]:
    return static_paths(topology, "", hops)
