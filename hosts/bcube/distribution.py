"""File distribution from a BCube source, over trees that share no directed link.

If the receivers are a few neighbours of the source at different levels, the source sends each of
them an equal part, which the receiver sends on to the others over a complete graph (Guo 2009,
section 3.4). If all servers are receivers, the source sends one part over each of its spanning
trees (section 3.5). For any other set of receivers the spanning trees are pruned to the branches
that lead to a receiver.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pillarbox.hosts.bcube.paths import complete_graph, spanning_trees, width
from pillarbox.hosts.bcube.rules import digit, with_digit
from pillarbox.topos.base.digits import DigitNetwork

Hop = tuple[int, int]  # sender and receiver of a hop, two neighbouring servers


def trees(bcube: DigitNetwork, source: int, receivers: Sequence[int]) -> list[list[Hop]]:
    """Return the trees that distribute data to the receivers; each is a list of hops.

    >>> from pillarbox.topos.bcube import BCube
    >>> bcube = BCube(4, 1)  # chunk replication of section 7.5: A = 0.0, B = 0.1, C = 1.0
    >>> for tree in trees(bcube, 0, [1, 4]):
    ...     print(*(f"{bcube.address(a)}-{bcube.address(b)}" for a, b in tree))
    0.0-0.1 0.1-1.1 1.1-1.0
    0.0-1.0 1.0-1.1 1.1-0.1
    """
    levels = [_differing_level(bcube, source, receiver) for receiver in receivers]
    if len(receivers) > 1 and None not in levels and len(set(levels)) == len(levels):
        return _complete_graph_trees(bcube, source, receivers)
    wanted = set(receivers)
    return [
        _prune([(edge.sender, edge.receiver) for edge in tree], wanted)
        for tree in spanning_trees(bcube, source)
    ]


def _differing_level(bcube: DigitNetwork, source: int, receiver: int) -> int | None:
    """Return the level of the only digit in which two addresses differ, None if several differ."""
    differing = [
        level
        for level in range(bcube.k + 1)
        if digit(bcube.weights, source, level) != digit(bcube.weights, receiver, level)
    ]
    return differing[0] if len(differing) == 1 else None


def _complete_graph_trees(
    bcube: DigitNetwork, source: int, receivers: Sequence[int]
) -> list[list[Hop]]:
    """Return a tree per receiver: the receiver gets its part of the data first and forwards it."""
    # A level without a receiver needs some server as its corner, whose edges are not used.
    corners = [
        with_digit(
            bcube.weights,
            source,
            level,
            (digit(bcube.weights, source, level) + 1) % width(bcube, level),
        )
        for level in range(bcube.k + 1)
    ]
    for receiver in receivers:
        level = _differing_level(bcube, source, receiver)
        assert level is not None
        corners[level] = receiver
    graph = complete_graph(bcube, source, corners)
    found = []
    for first in receivers:
        paths = [graph[first, other] for other in receivers if other != first]
        onward = [hop for path in paths for hop in pairwise(path.servers)]
        found.append([(source, first), *onward])
    return found


def _prune(tree: list[Hop], wanted: set[int]) -> list[Hop]:
    """Return a distribution tree without the hops that lead to no receiver in `wanted`."""
    needed, kept = set(wanted), []
    for sender, receiver in reversed(tree):
        if receiver in needed:
            needed.add(sender)
            kept.append((sender, receiver))
    return kept[::-1]
