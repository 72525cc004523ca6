"""BCube's paths (Guo 2009, section 3): digits corrected in some order, one a hop.

Any order of digits is a shortest path (BCubeRouting, Fig. 2). k + 1 orders that start at
different digits give parallel paths; a digit that needs no correction starts a path by a detour
through a neighbour that has it wrong (BuildPathSet, Fig. 3). Of the same kind are the complete
graphs for one-to-several (section 3.4) and the spanning trees for one-to-all (section 3.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hosts.base.path import Path, Step
from hosts.bcube import rules
from hosts.bcube.rules import BCUBE_ROUTING, BUILD_PATH_SET, corrected, digit, numbers, with_digit
from topos.bcube import BCube


class Edge(NamedTuple):
    """A directed hop: `sender` reaches `receiver` through the switch of that level."""

    sender: int
    receiver: int
    level: int


def width(bcube: BCube, level: int) -> int:
    """Return how many values the digit takes: n, but fewer for the first digit of a partial one."""
    return rules.width(*numbers(bcube), level)


def path(bcube: BCube, source: int, destination: int, order: Sequence[int] = ()) -> Path:
    """Return the path that corrects digits in that order of levels (BCubeRouting).

    Without an order it is k, k - 1, ..., 0.

    >>> bcube = BCube(4, 1)
    >>> print(*map(bcube.address, path(bcube, bcube.server("0.0"), bcube.server("2.3")).servers))
    0.0 2.0 2.3
    """
    if not order:
        return BCUBE_ROUTING.path(bcube, source, destination)
    ways = [source]
    for level in order:
        ways.append(corrected(bcube.n, ways[-1], destination, level))
    hops = zip(order, pairwise(ways), strict=True)
    return Path(source, tuple(Step(level, b) for level, (a, b) in hops if a != b))


def path_set(bcube: BCube, source: int, destination: int) -> list[Path]:
    """Return the k + 1 parallel paths of BuildPathSet, P_k first; at most k + 2 hops each.

    A partial BCube with a single value of its first digit has no path that starts there.

    >>> bcube = BCube(8, 3)  # the example of Fig. 4
    >>> for path in path_set(bcube, bcube.server("0.0.0.1"), bcube.server("1.0.1.1")):
    ...     print(*map(bcube.address, path.servers))
    0.0.0.1 1.0.0.1 1.0.1.1
    0.0.0.1 0.1.0.1 0.1.1.1 1.1.1.1 1.0.1.1
    0.0.0.1 0.0.1.1 1.0.1.1
    0.0.0.1 0.0.0.2 1.0.0.2 1.0.1.2 1.0.1.1
    """
    if source == destination:
        return [Path(source, ())]
    return BUILD_PATH_SET.paths(bcube, source, destination)


def complete_graph(
    bcube: BCube, source: int, neighbours: Sequence[int]
) -> dict[tuple[int, int], Path]:
    """Return edge-disjoint paths between all of the source and one neighbour a level (Theorem 4).

    `neighbours[i]` differs from the source in digit i alone. Two of them meet over a server that
    has both digits: the one of the higher level uses its port of the lower level.
    """
    members = [source, *neighbours]
    paths = {}
    for level, member in enumerate(neighbours):
        if with_digit(bcube.n, member, level, digit(bcube.n, source, level)) != source:
            raise ValueError(f"server {member} is no level-{level} neighbour of {source}")
        paths[source, member] = Path(source, (Step(level, member),))
        paths[member, source] = Path(member, (Step(level, source),))
    for low in range(len(neighbours)):
        for high in range(low + 1, len(neighbours)):
            a, b = members[low + 1], members[high + 1]
            both = with_digit(bcube.n, a, high, digit(bcube.n, b, high))
            paths[a, b] = Path(a, (Step(high, both), Step(low, b)))
            paths[b, a] = Path(b, (Step(low, both), Step(high, a)))
    return paths


def spanning_trees(bcube: BCube, source: int) -> list[list[Edge]]:
    """Return k + 1 spanning trees from the source, no directed link in two (BuildMultipleSPTs).

    Edges stand in an order in which every sender has what it sends. Levels whose digit has one
    value only (in a partial BCube) have no tree.

    Departs from the paper: as printed, Part I adds n - 1 servers in each dimension to each
    server of the tree, and in the first dimension that includes the source itself, which the
    tree's root has just come from: n - 2 there.
    """
    return [
        _spanning_tree(bcube, source, level)
        for level in range(bcube.k + 1)
        if width(bcube, level) > 1
    ]


def _spanning_tree(bcube: BCube, source: int, level: int) -> list[Edge]:
    def turned(server: int, dimension: int, by: int) -> int:
        value = (digit(bcube.n, server, dimension) + by) % width(bcube, dimension)
        return with_digit(bcube.n, server, dimension, value)

    root = turned(source, level, 1)
    edges = [Edge(source, root, level)]
    tree = [root]
    for i in range(bcube.k + 1):  # Part I
        dimension = (level + i) % (bcube.k + 1)
        grown = []
        for server in tree:
            sender = server
            for _ in range(width(bcube, dimension) - (2 if i == 0 else 1)):
                receiver = turned(sender, dimension, 1)
                edges.append(Edge(sender, receiver, dimension))
                grown.append(receiver)
                sender = receiver
        tree += grown
    same_digit = (  # Part II
        server
        for server in range(bcube.servers)
        if server != source and digit(bcube.n, server, level) == digit(bcube.n, source, level)
    )
    return edges + [Edge(turned(server, level, -1), server, level) for server in same_digit]
