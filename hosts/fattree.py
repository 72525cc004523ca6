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
from hosts.base.path import Path, Step
from hosts.base.recursive import common_level
from topos.fattree import FatTree


def two_level_path(fattree: FatTree, source: int, destination: int) -> Path:
    """Return the way of the two-level tables, which know nothing of failures.

    From 10.0.1.2 to 10.2.0.3, section 3.4's example: out of port 2 of the edge switch, then out of
    port 3 (the aggregation switch's second port upwards).

    >>> fattree = FatTree(4)
    >>> step = two_level_path(fattree, fattree.server("0.1.0"), fattree.server("2.0.1")).steps[0]
    >>> print(*(fattree.switch_label(node - fattree.servers) for node in step.via), sep=", ")
    edge 0.1, aggregation 0.0, core 1, aggregation 2.0, edge 2.0
    """
    return _path(fattree, source, destination, _two_level(fattree, source, destination))


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


def _two_level(fattree: FatTree, source: int, destination: int) -> list[int]:
    """Return the choices of the suffix tables on the way up, u_1 first."""
    digits = fattree.digits(source)[::-1]
    ups: list[int] = []
    for level in range(_turn(fattree, source, destination)):
        # z of Algorithm 1 numbers the switches of a pod: an edge switch by its digit d_1, an
        # aggregation switch by its u_1. With more levels there are switches that have both.
        inside_pod = level + 1 < fattree.levels - 1
        place = (digits[level + 1] if inside_pod else 0) + (ups[-1] if ups else 0)
        ups.append((destination + place) % fattree.half)
    return ups


def _hashed(fattree: FatTree, source: int, destination: int, flow: int) -> Iterator[Path]:
    """Yield every way, beginning at the one of the flow's hash."""
    turn = _turn(fattree, source, destination)
    ways = fattree.half**turn
    # Python's own hash of numbers is no hash, and that of bytes is another in every process.
    first = crc32(b"%d %d %d" % (source, destination, flow))
    for number in range(first, first + ways):
        ups = [number // fattree.half**level % fattree.half for level in range(turn)]
        yield _path(fattree, source, destination, ups)


def _turn(fattree: FatTree, source: int, destination: int) -> int:
    """Return the level of the switch where the way turns from up to down."""
    sizes = [fattree.half ** (level + 1) for level in range(fattree.levels - 1)]
    return common_level([*sizes, fattree.servers], source, destination)


def _path(fattree: FatTree, source: int, destination: int, ups: list[int]) -> Path:
    """Return the path of these choices: up from the source, down to the destination."""
    up = [_switch(fattree, source, ups[:level]) for level in range(len(ups) + 1)]
    down = [_switch(fattree, destination, ups[:level]) for level in range(len(ups))]
    return Path(source, (Step(PORT, destination, (*up, *reversed(down))),))


def _switch(fattree: FatTree, server: int, ups: list[int]) -> int:
    """Return the node that is reached from a server by these choices."""
    level = len(ups)
    # Every top switch is above all servers.
    prefix = server // fattree.half ** (level + 1) if level < fattree.levels - 1 else 0
    choices = 0
    for up in ups:
        choices = choices * fattree.half + up
    index = prefix * fattree.half**level + choices
    node: int = fattree.servers + level * fattree.width + index
    return node


ALGORITHMS = {
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
}
