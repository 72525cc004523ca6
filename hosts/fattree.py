"""Paths through the switches of a fat-tree (Al-Fares 2008, sections 3.3 to 3.5).

A server has one port, and every other server is one hop away, so the switches choose the path. A
packet goes up until a switch has both servers below it, then down. The destination's prefix
determines the downward path. On the upward path, a switch of level l chooses one of n/2 ports; the
choices u_1, u_2, ... identify every switch of the path (`pillarbox.topos.fattree` has the
numbering).

- *Two-level* routing tables choose by the suffix (the destination's last digit) and the switch's
  position z: port (digit + z) mod n/2 (Algorithm 1). Packets to one server always take the same
  path from a switch on; packets to other servers take other paths.
- *Hashed* (equal-cost multi-path) chooses by a hash of the flow's source and destination. If that
  path has failed, the switches are notified and use the next path that works.
"""

from __future__ import annotations

from collections.abc import Iterator

from pillarbox.hosts.base.algorithms import Algorithm, Routed
from pillarbox.hosts.base.direct import PORT, Direct
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.hashed import first_working, hashed_paths
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.rules import SwitchPath
from pillarbox.topos.fattree import FatTree

# -- rules on plain numbers (hosts/base/rules.py); `half` is n/2 -----------------------------------

Links = Iterator[tuple[int, int]]


def numbers(fattree: FatTree) -> tuple[int, int, int]:
    """Return a fat-tree's n/2, number of levels and number of servers, for the path rules."""
    return fattree.half, fattree.levels, fattree.servers


def turn(half: int, levels: int, source: int, destination: int) -> int:
    """Return the level of the topmost switch on a path, where it turns from up to down."""
    level, near, far = 0, source // half, destination // half
    while level < levels - 1 and near != far:
        level, near, far = level + 1, near // half, far // half
    return level


def equal_cost(
    half: int, levels: int, servers: int, source: int, destination: int, choice: int
) -> Links:
    """Yield the links of one of the equal-cost paths, given by its upward ports (`choice`).

    A switch of level l is identified by the digits of a server below it without the last l + 1
    (no digits at the top, which is above all servers), and by the l choices that lead to it.
    """
    yield source, PORT
    # Switches per level, and node number of the current level's first switch.
    width, first = 2 * half ** (levels - 1), servers
    top = turn(half, levels, source, destination)
    ups, choices = 1, 0  # number of combinations of up ports so far; the chosen combination
    prefix = source
    for _ in range(top):
        prefix //= half
        choice, up = choice // half, choice % half
        yield first + prefix * ups + choices, half + up
        first += width
        ups, choices = ups * half, choices * half + up
    for level in range(top, -1, -1):
        prefix, down = 0, destination // ups
        if level < levels - 1:
            prefix, down = down // half, down % half
        yield first + prefix * ups + choices, down
        first -= width
        ups, choices = ups // half, choices // half


def suffix(half: int, levels: int, source: int, destination: int) -> int:
    """Return the upward ports that the suffix tables choose for a destination (Al-Fares 2008)."""
    choice, up, weight = 0, 0, 1
    for level in range(turn(half, levels, source, destination)):
        # Position z of Algorithm 1 in a pod: d_1 for edge switches, u_1 for aggregation switches.
        # With more than three levels of switches, the position is the sum of both.
        inside_pod = level + 1 < levels - 1
        position = up + (source // (weight * half) % half if inside_pod else 0)
        up = (destination + position) % half
        choice += up * weight
        weight *= half
    return choice


def two_level(
    half: int, levels: int, servers: int, source: int, destination: int, _choice: int
) -> Links:
    """Return the links of the path that the two-level routing tables choose."""
    choice = suffix(half, levels, source, destination)
    return equal_cost(half, levels, servers, source, destination, choice)


TWO_LEVEL = SwitchPath(two_level, numbers, lambda fattree: 2 * fattree.levels)
EQUAL_COST = SwitchPath(
    equal_cost,
    numbers,
    lambda fattree: 2 * fattree.levels,
    lambda fattree: fattree.half ** (fattree.levels - 1),
)

RULES = {"two-level": TWO_LEVEL, "any": EQUAL_COST}


# -- paths ----------------------------------------------------------------------------------------


def two_level_path(fattree: FatTree, source: int, destination: int) -> Path:
    """Return the path of the two-level tables, which do not react to failures.

    From 10.0.1.2 to 10.2.0.3, section 3.4's example: out of port 2 of the edge switch, then out of
    port 3 (the aggregation switch's second port upwards).

    >>> fattree = FatTree(4)
    >>> step = two_level_path(fattree, fattree.server("0.1.0"), fattree.server("2.0.1")).steps[0]
    >>> print(*(fattree.switch_label(node - fattree.servers) for node in step.via), sep=", ")
    edge 0.1, aggregation 0.0, core 1, aggregation 2.0, edge 2.0
    """
    return TWO_LEVEL.path(fattree, source, destination)


def hashed_path(fattree: FatTree, source: int, destination: int, flow: int = 0) -> Path:
    """Return the path that a flow's hash selects if no switch has failed."""
    return next(_hashed_paths(fattree, source, destination, flow))


def hashed_around(
    fattree: FatTree,
    source: int,
    destination: int,
    failures: Failures,
    _several: bool = False,
    flow: int = 0,
) -> Routed:
    """Return a flow's hashed path, or the next working path if that path has failed."""
    return first_working(fattree, _hashed_paths(fattree, source, destination, flow), failures)


def _hashed_paths(fattree: FatTree, source: int, destination: int, flow: int) -> Iterator[Path]:
    """Return every path, starting with the path that the flow's hash selects."""
    count = fattree.half ** turn(fattree.half, fattree.levels, source, destination)
    return hashed_paths(EQUAL_COST, fattree, count, source, destination, flow)


NETWORK = Network(
    algorithms={
        "two-level": Algorithm(
            "two-level tables: upward ports by destination suffix (Al-Fares 2008, Algorithm 1)",
            two_level_path,
            router=Direct,
        ),
        "hashed": Algorithm(
            "equal-cost multi-path: upward ports by a hash, the next path if that one has failed",
            hashed_path,
            around=hashed_around,
            router=Direct,
        ),
    },
    rules=RULES,
)
