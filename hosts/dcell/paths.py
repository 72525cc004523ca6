"""DCell's routing (Guo 2008, section 4.1): divide at the link between two sub-DCells, and conquer.

Two servers that first differ in digit l are in two DCell_{l-1}s of one DCell_l, which have exactly
one cable between them. DCellRouting (Fig. 3) goes to that cable, over it, and on to the
destination, each part by the same rule. The next hop alone needs O(k): the first cable towards
the first cable towards ... the destination.
"""

from __future__ import annotations

from hosts.base import recursive
from hosts.base.path import Path, Step
from hosts.dcell.rules import nested
from topos.dcell import DCell


def next_step(dcell: DCell, server: int, destination: int) -> Step:
    """Return DCellRouting's next hop alone, in O(k) and without the rest of the path."""
    port, uid = recursive.next_hop(nested(dcell.sizes), dcell.uid(server), dcell.uid(destination))
    return Step(port, dcell.server_of_uid(uid))


def path(dcell: DCell, source: int, destination: int) -> Path:
    """Return the path of DCellRouting (Fig. 3): at most 2^(k+1) - 1 hops.

    In a partial DCell it may lead over servers that are not there.

    >>> dcell = DCell(4, 1)
    >>> found = path(dcell, dcell.server("0.0"), dcell.server("4.3"))
    >>> [dcell.address(server) for server in found.servers]
    ['0.0', '0.3', '4.0', '4.3']
    """
    ends = dcell.uid(source), dcell.uid(destination)
    hops = recursive.hops_between(nested(dcell.sizes), *ends)
    return Path(source, tuple(Step(port, dcell.server_of_uid(uid)) for port, uid in hops))


def group(dcell: DCell, source: int, destination: int) -> int:
    """Return the level of the source's first hop: Theorem 6's group of the destination."""
    return next_step(dcell, source, destination).port


def group_sizes(dcell: DCell) -> list[int]:
    """Return how many servers each level's first hop leads to in a full DCell (Theorem 6).

    >>> group_sizes(DCell(4, 1))
    [15, 4]
    """
    sizes = []
    for level in range(1, dcell.k + 1):
        beyond = dcell.servers // dcell.sizes[level]  # DCell_levels, the product of the g above
        sizes.append(beyond * dcell.sizes[level - 1])
    return [dcell.servers - 1 - sum(sizes), *sizes]
