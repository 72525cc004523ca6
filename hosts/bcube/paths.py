"""BCube's paths (Guo 2009, section 3): each hop corrects one digit of the address.

Digits may be corrected in any order: every order is a shortest path (BCubeRouting, Fig. 2). k + 1
orders that start at different digits give parallel paths; a path that starts at a digit that is
already correct takes a detour through a neighbour with another value of that digit (BuildPathSet,
Fig. 3). The complete graphs for one-to-several traffic (section 3.4) and the spanning trees for
one-to-all traffic (section 3.5) are built in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.bcube import rules
from pillarbox.hosts.bcube.rules import BCUBE_ROUTING, BUILD_PATH_SET, corrected, digit, with_digit
from pillarbox.topos.base.digits import DigitNetwork


class Edge(NamedTuple):
    """Directed edge of a BCube graph: `sender` to `receiver` through a switch of level `level`."""

    sender: int
    receiver: int
    level: int


def width(bcube: DigitNetwork, level: int) -> int:
    """Return the number of values of a digit: n in BCube, fewer for digit k of a partial one."""
    return rules.width(bcube.weights, level)


def step_to(bcube: DigitNetwork, server: int, level: int, peer: int) -> Step:
    """Return the hop from a server to a peer that differs in the digit at a level only."""
    return Step(bcube.port_towards(server, level, digit(bcube.weights, peer, level)), peer)


def path(bcube: DigitNetwork, source: int, destination: int, order: Sequence[int] = ()) -> Path:
    """Return BCubeRouting's path that corrects digits in the given order of levels.

    The default order is k, k - 1, ..., 0.

    >>> from pillarbox.topos.bcube import BCube
    >>> bcube = BCube(4, 1)
    >>> print(*map(bcube.address, path(bcube, bcube.server("0.0"), bcube.server("2.3")).servers))
    0.0 2.0 2.3
    """
    if not order:
        return BCUBE_ROUTING.path(bcube, source, destination)
    servers = [source]
    for level in order:
        servers.append(corrected(bcube.weights, servers[-1], destination, level))
    hops = zip(order, pairwise(servers), strict=True)
    return Path(source, tuple(Step(level, b) for level, (a, b) in hops if a != b))


def path_set(bcube: DigitNetwork, source: int, destination: int) -> list[Path]:
    """Return the k + 1 parallel paths of BuildPathSet, P_k first, with at most k + 2 hops each.

    If digit k of a partial BCube has a single value, P_k is missing.

    >>> from pillarbox.topos.bcube import BCube
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
    bcube: DigitNetwork, source: int, neighbours: Sequence[int]
) -> dict[tuple[int, int], Path]:
    """Return edge-disjoint paths between any two of the source and its neighbours (Theorem 4).

    `neighbours[i]` differs from the source in digit i only. The path between two neighbours leads
    over the server that has the changed digits of both. The neighbour of the higher level leaves by
    its port of the lower level, and vice versa.
    """
    members = [source, *neighbours]
    paths = {}
    for level, member in enumerate(neighbours):
        if with_digit(bcube.weights, member, level, digit(bcube.weights, source, level)) != source:
            raise ValueError(f"server {member} is no level-{level} neighbour of {source}")
        paths[source, member] = Path(source, (Step(level, member),))
        paths[member, source] = Path(member, (Step(level, source),))
    for low in range(len(neighbours)):
        for high in range(low + 1, len(neighbours)):
            a, b = members[low + 1], members[high + 1]
            both = with_digit(bcube.weights, a, high, digit(bcube.weights, b, high))
            paths[a, b] = Path(a, (Step(high, both), Step(low, b)))
            paths[b, a] = Path(b, (Step(low, both), Step(high, a)))
    return paths


def spanning_trees(bcube: DigitNetwork, source: int) -> list[list[Edge]]:
    """Return k + 1 spanning trees from the source that share no directed link (BuildMultipleSPTs).

    Each edge comes after the edge by which its sender is reached. A level whose digit has a single
    value (in a partial BCube) has no tree.

    Departs from the paper: as printed, Part I adds n - 1 servers in each dimension to each
    server of the tree. In the first dimension these would include the source itself, from which the
    root was reached, so only n - 2 servers are added there.
    """
    return [
        _spanning_tree(bcube, source, level)
        for level in range(bcube.k + 1)
        if width(bcube, level) > 1
    ]


def _spanning_tree(bcube: DigitNetwork, source: int, level: int) -> list[Edge]:
    def turned(server: int, dimension: int, by: int) -> int:
        value = (digit(bcube.weights, server, dimension) + by) % width(bcube, dimension)
        return with_digit(bcube.weights, server, dimension, value)

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
        if server != source
        and digit(bcube.weights, server, level) == digit(bcube.weights, source, level)
    )
    return edges + [Edge(turned(server, level, -1), server, level) for server in same_digit]
