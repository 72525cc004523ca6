"""DCell's routing (Guo 2008, section 4.1): divide at the link between two sub-DCells, and conquer.

Two servers that first differ in digit l are in two DCell_{l-1}s of one DCell_l, which have exactly
one cable between them. DCellRouting (Fig. 3) goes to that cable, over it, and on to the
destination, each part by the same rule. The next hop alone needs O(k): the first cable towards
the first cable towards ... the destination.
"""

from __future__ import annotations

from hosts.base import recursive
from hosts.base.path import Path, Step
from topos.dcell import DCell


def link_between(dcell: DCell, a: int, b: int, level: int) -> tuple[int, int]:
    """Return the uids of the cable between the DCell_{level-1}s of two uids (GetLink).

    >>> dcell = DCell(4, 1)
    >>> link_between(dcell, dcell.server("0.0"), dcell.server("4.3"), level=1) == (
    ...     dcell.server("0.3"), dcell.server("4.0"))
    True
    """
    size, whole = dcell.sizes[level - 1], dcell.sizes[level]
    base = a // whole * whole
    cell_a, cell_b = a % whole // size, b % whole // size
    # Server `inner` of a cell leads to the inner-th *other* cell.
    end_a = base + cell_a * size + cell_b - (cell_b > cell_a)
    end_b = base + cell_b * size + cell_a - (cell_a > cell_b)
    return end_a, end_b


def next_step(dcell: DCell, server: int, destination: int) -> Step:
    """Return DCellRouting's next hop alone, in O(k) and without the rest of the path."""

    def link(a: int, b: int, level: int) -> tuple[int, int]:
        return link_between(dcell, a, b, level)

    port, uid = recursive.next_step(dcell.sizes, link, dcell.uid(server), dcell.uid(destination))
    return Step(port, dcell.server_of_uid(uid))


def path(dcell: DCell, source: int, destination: int) -> Path:
    """Return the path of DCellRouting (Fig. 3): at most 2^(k+1) - 1 hops.

    In a partial DCell it may lead over servers that are not there.

    >>> dcell = DCell(4, 1)
    >>> found = path(dcell, dcell.server("0.0"), dcell.server("4.3"))
    >>> [dcell.address(server) for server in found.servers]
    ['0.0', '0.3', '4.0', '4.3']
    """
    hops = _hops(dcell, dcell.uid(source), dcell.uid(destination))
    return Path(source, tuple(Step(port, dcell.server_of_uid(uid)) for port, uid in hops))


def _hops(dcell: DCell, a: int, b: int) -> list[tuple[int, int]]:
    if a == b:
        return []
    level = recursive.common_level(dcell.sizes, a, b)
    if level == 0:
        return [(0, b)]
    near, far = link_between(dcell, a, b, level)
    return [*_hops(dcell, a, near), (level, far), *_hops(dcell, far, b)]


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
