"""Which way through the switches a fat-tree takes (Al-Fares 2008, sections 3.3 to 3.5).

A server has one port, and every other server is one hop away: the choice is with the switches. A
packet goes up until a switch has both ends below it, then down. The way down is fixed by the
destination's prefix. On the way up, a switch of level l has n/2 ports to choose from; the choices
u_1, u_2, ... name every switch on the way (`topos.fattree` numbers them so).

- *Two-level* routing tables choose by the suffix, the destination's last digit, and by the
  switch's place z: port (digit + z) mod n/2 (Algorithm 1). Packets to one server always come the
  same way from there on, and to other servers other ways.
- *Hashed* (equal-cost multi-path) chooses by a hash of the flow's ends. Where that way has failed,
  the switches, which are told, use the next one that works.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from hosts.base.algorithms import Algorithm, Routed
from hosts.base.direct import PORT, Direct
from hosts.base.failures import Failures
from hosts.base.network import Network
from hosts.base.path import Path
from hosts.base.rules import Fabric
from topos.fattree import FatTree

# -- rules on plain numbers (hosts/base/rules.py); `half` is n/2 -----------------------------------

Links = Iterator[tuple[int, int]]


def numbers(fattree: FatTree) -> tuple[int, int, int]:
    """Return n/2, the levels and the servers."""
    return fattree.half, fattree.levels, fattree.servers


def turn(half: int, levels: int, source: int, destination: int) -> int:
    """Return the level of the switch where the way turns from up to down."""
    level, near, far = 0, source // half, destination // half
    while level < levels - 1 and near != far:
        level, near, far = level + 1, near // half, far // half
    return level


def equal_cost(
    half: int, levels: int, servers: int, source: int, destination: int, choice: int
) -> Links:
    """Yield the links of the path of these choices; in `choice`, u_1 is the last digit.

    A switch of level l is known by what is left of a server below it without its last l + 1 digits
    (nothing at the top, which is above all servers), and by the l choices that lead to it.
    """
    yield source, PORT
    width, first = 2 * half ** (levels - 1), servers  # of a level
    top = turn(half, levels, source, destination)
    ups, choices = 1, 0  # how many choices there are for what was chosen so far
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
    """Return the choices of the suffix tables on the way up."""
    choice, up, weight = 0, 0, 1
    for level in range(turn(half, levels, source, destination)):
        # z of Algorithm 1 numbers the switches of a pod: an edge switch by its digit d_1, an
        # aggregation switch by its u_1. With more levels there are switches that have both.
        inside_pod = level + 1 < levels - 1
        place = up + (source // (weight * half) % half if inside_pod else 0)
        up = (destination + place) % half
        choice += up * weight
        weight *= half
    return choice


def two_level(
    half: int, levels: int, servers: int, source: int, destination: int, _choice: int
) -> Links:
    """Return the links of the two-level tables' path."""
    choice = suffix(half, levels, source, destination)
    return equal_cost(half, levels, servers, source, destination, choice)


TWO_LEVEL = Fabric(two_level, numbers, lambda fattree: 2 * fattree.levels)
EQUAL_COST = Fabric(
    equal_cost,
    numbers,
    lambda fattree: 2 * fattree.levels,
    lambda fattree: fattree.half ** (fattree.levels - 1),
)

RULES = {"two-level": TWO_LEVEL, "any": EQUAL_COST}


# -- paths ----------------------------------------------------------------------------------------


def two_level_path(fattree: FatTree, source: int, destination: int) -> Path:
    """Return the way of the two-level tables, which know nothing of failures.

    From 10.0.1.2 to 10.2.0.3, section 3.4's example: out of port 2 of the edge switch, then out of
    port 3 (the aggregation switch's second port upwards).

    >>> fattree = FatTree(4)
    >>> step = two_level_path(fattree, fattree.server("0.1.0"), fattree.server("2.0.1")).steps[0]
    >>> print(*(fattree.switch_label(node - fattree.servers) for node in step.via), sep=", ")
    edge 0.1, aggregation 0.0, core 1, aggregation 2.0, edge 2.0
    """
    return TWO_LEVEL.path(fattree, source, destination)


def hashed_path(fattree: FatTree, source: int, destination: int, flow: int = 0) -> Path:
    """Return the way that the hash of a flow picks, all switches working.

    Parameters
    ----------
    flow : int
        Tells several flows between the same two servers apart.
    """
    return next(_hashed(fattree, source, destination, flow))


def hashed_around(
    fattree: FatTree,
    source: int,
    destination: int,
    failures: Failures,
    _several: bool = False,
    flow: int = 0,
) -> Routed:
    """Return the first way that works, beginning at that of the flow's hash."""
    ways = list(_hashed(fattree, source, destination, flow))
    for path in ways:
        if not failures.first_on(fattree, path):
            return Routed([path])
    return Routed([], f"all {len(ways)} ways through the switches have failed")


def _hashed(fattree: FatTree, source: int, destination: int, flow: int) -> Iterator[Path]:
    """Yield every way, beginning at the one of the flow's hash."""
    ways = fattree.half ** turn(fattree.half, fattree.levels, source, destination)
    # Python's own hash of numbers is no hash, and that of bytes is another in every process.
    first = crc32(b"%d %d %d" % (source, destination, flow))
    for number in range(first, first + ways):
        yield EQUAL_COST.path(fattree, source, destination, number)


NETWORK = Network(
    algorithms={
        "two-level": Algorithm(
            "two-level tables: the way up by the destination's suffix (Al-Fares 2008, Algorithm 1)",
            two_level_path,
            router=Direct,
        ),
        "hashed": Algorithm(
            "equal-cost multi-path: the way up by a hash, another where it has failed",
            hashed_path,
            around=hashed_around,
            router=Direct,
        ),
    },
    rules=RULES,
)
