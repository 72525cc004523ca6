"""DCellRouting (Guo 2008, section 4.1): paths split recursively at links between sub-DCells.

Two servers that first differ in digit l are in two DCell_{l-1}s of one DCell_l, which are joined by
exactly one cable. DCellRouting (Fig. 3) concatenates the path from the source to that cable, the
cable, and the path from the cable to the destination; both parts are split by the same rule. A
server that needs only its next hop computes it in O(k), without the rest of the path.
"""

from __future__ import annotations

from pillarbox.hosts.base import recursive
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.dcell.rules import nested
from pillarbox.topos.dcell import DCell


def next_step(dcell: DCell, server: int, destination: int) -> Step:
    """Return the next hop of DCellRouting in O(k), without computing the rest of the path."""
    port, uid = recursive.next_hop(nested(dcell.sizes), dcell.uid(server), dcell.uid(destination))
    return Step(port, dcell.server_of_uid(uid))


def path(dcell: DCell, source: int, destination: int) -> Path:
    """Return the path of DCellRouting (Fig. 3), which has at most 2^(k+1) - 1 hops.

    In a partial DCell the path may cross servers that are missing.

    >>> dcell = DCell(4, 1)
    >>> found = path(dcell, dcell.server("0.0"), dcell.server("4.3"))
    >>> [dcell.address(server) for server in found.servers]
    ['0.0', '0.3', '4.0', '4.3']
    """
    ends = dcell.uid(source), dcell.uid(destination)
    hops = recursive.hops_between(nested(dcell.sizes), *ends)
    return Path(source, tuple(Step(port, dcell.server_of_uid(uid)) for port, uid in hops))


def group(dcell: DCell, source: int, destination: int) -> int:
    """Return the level of the source's first hop: the destination's group in Theorem 6."""
    return next_step(dcell, source, destination).port


def group_sizes(dcell: DCell) -> list[int]:
    """Return the number of destinations reached by each level of first hop (Theorem 6).

    >>> group_sizes(DCell(4, 1))
    [15, 4]
    """
    sizes = []
    for level in range(1, dcell.k + 1):
        # number of DCells of this level in the whole DCell: product of g at the levels above
        beyond = dcell.servers // dcell.sizes[level]
        sizes.append(beyond * dcell.sizes[level - 1])
    return [dcell.servers - 1 - sum(sizes), *sizes]
