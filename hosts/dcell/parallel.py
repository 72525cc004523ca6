"""The k + 1 node-disjoint paths between two servers of a full DCell, one over each port.

Guo 2008 (section 4.1.2) states that multi-path routing gives k + 1 times the bandwidth of a link
between any two servers, without a construction. This one follows DCellRouting. Let l be the lowest
level whose DCell_l contains both servers, in its sub-DCells A and B:

- One path is DCellRouting's. It leaves the source by one port and enters the destination by one.
- For each level above l, the source's and the destination's cable of that level lead to two other
  sub-DCells, and DCellRouting joins these over the cable between them.
- Each other port up to level l leads to a neighbour in A (or, at level l, out of A), and the
  neighbour's level-l cable leads to a third sub-DCell of the DCell_l. The same holds for the
  destination and B. A third sub-DCell of the source is paired with one of the destination: with
  itself if both have it, else with any. DCellRouting joins each pair.

The servers of one sub-DCell have their level-l cables to different sub-DCells, and DCellRouting
between two sub-DCells crosses no third one. So the paths share no server and no switch. The direct
path crosses no neighbour over another port of its ends, and uses the only cable between A and B.
"""

from __future__ import annotations

from itertools import pairwise

from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.recursive import Nested, common_level, far_end, hops_between
from pillarbox.hosts.dcell.paths import path
from pillarbox.hosts.dcell.rules import nested
from pillarbox.topos.dcell import DCell


def path_set(dcell: DCell, source: int, destination: int) -> list[Path]:
    """Return the k + 1 node-disjoint paths, DCellRouting's path first, then the shortest first.

    In a partial DCell paths may cross servers that are missing.

    >>> dcell = DCell(4, 1)
    >>> for found in path_set(dcell, dcell.server("0.0"), dcell.server("4.3")):
    ...     print(*map(dcell.address, found.servers))
    0.0 0.3 4.0 4.3
    0.0 1.0 1.2 3.1 3.3 4.3
    """
    net = nested(dcell.sizes)
    direct = path(dcell, source, destination)
    a, b = dcell.uid(source), dcell.uid(destination)
    level = common_level(net.sizes, a, b)
    ports = range(level + 1)
    out_by, in_by = direct.steps[0].port, direct.steps[-1].port
    starts = [_exit_uids(net, a, port, level) for port in ports if port != out_by]
    ends = [_exit_uids(net, b, port, level) for port in ports if port != in_by]
    detours = _paired(net, level, starts, ends)
    for above in range(level + 1, dcell.k + 1):
        detours.append(([a, far_end(net, a, above)], [b, far_end(net, b, above)]))
    return [direct, *sorted((_joined(dcell, net, *pair) for pair in detours), key=len)]


def _exit_uids(net: Nested, uid: int, port: int, level: int) -> list[int]:
    """Return the uids from a server by a port over a level-l cable out of its DCell_{l-1}."""
    if port == level:
        return [uid, far_end(net, uid, level)]
    if port:
        neighbour = far_end(net, uid, port)
    else:
        n = net.sizes[0]
        neighbour = uid // n * n + (uid + 1) % n
    return [uid, neighbour, far_end(net, neighbour, level)]


def _paired(
    net: Nested, level: int, starts: list[list[int]], ends: list[list[int]]
) -> list[tuple[list[int], list[int]]]:
    """Return pairs of a start and an end, those that lead to the same sub-DCell together."""
    size = net.sizes[level - 1]
    by_cell = {end[-1] // size: end for end in ends}
    pairs, others = [], []
    for start in starts:
        end = by_cell.pop(start[-1] // size, None)
        if end:
            pairs.append((start, end))
        else:
            others.append(start)
    return pairs + list(zip(others, by_cell.values(), strict=True))


def _joined(dcell: DCell, net: Nested, start: list[int], end: list[int]) -> Path:
    """Return the path along `start`, by DCellRouting to the end of `end`, and back along `end`."""
    middle = [uid for _, uid in hops_between(net, start[-1], end[-1])]
    uids = [*start, *middle, *end[-2::-1]]
    steps = (
        Step(net.ports[common_level(net.sizes, a, b)], dcell.server_of_uid(b))
        for a, b in pairwise(uids)
    )
    return Path(dcell.server_of_uid(uids[0]), tuple(steps))
