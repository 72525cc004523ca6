"""Hashed choice among the equal-cost paths of a switched network (ECMP, Valiant load balancing)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

from pillarbox.hosts.base.algorithms import Routed
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.rules import SwitchPath
from pillarbox.topos.base.topology import Topology


def hashed_paths(
    rule: SwitchPath, topology: Topology, count: int, source: int, destination: int, flow: int
) -> Iterator[Path]:
    """Yield the `count` paths of a pair, starting with the path that the flow's hash selects.

    Parameters
    ----------
    flow : int
        Number that distinguishes flows between the same two servers.
    """
    # CRC-32, since Python's hash() of an int is the int, and hash() of bytes differs per process.
    first = crc32(b"%d %d %d" % (source, destination, flow))
    for number in range(first, first + count):
        yield rule.path(topology, source, destination, number)


def first_working(topology: Topology, paths: Iterable[Path], failures: Failures) -> Routed:
    """Return the first path without a failed node or link, or the drop reason if there is none."""
    count = 0
    for path in paths:
        if not failures.first_on(topology, path):
            return Routed([path])
        count += 1
    return Routed([], f"all {count} paths through the switches have failed")
