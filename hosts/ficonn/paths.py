"""FiConn's traffic-oblivious routing (Li 2009, section III.B, Algorithm 2).

As in DCell, two FiConn_{l-1}s of one FiConn_l have one cable between them: TOR goes to it, over
it, and on. A server computes its next hop alone.
"""

from __future__ import annotations

from hosts.base import recursive
from hosts.base.path import Path, Step, walked
from topos.ficonn import BACKUP, SWITCH, FiConn


def link_between(ficonn: FiConn, a: int, b: int, level: int) -> tuple[int, int]:
    """Return the ends of the level's cable between the FiConns of two servers (getLink)."""
    size, whole = ficonn.sizes[level - 1], ficonn.sizes[level]
    base = a // whole * whole
    cell_a, cell_b = a % whole // size, b % whole // size
    step, start = 2**level, 2 ** (level - 1) - 1
    end_a = base + cell_a * size + (cell_b - (cell_b > cell_a)) * step + start
    end_b = base + cell_b * size + (cell_a - (cell_a > cell_b)) * step + start
    return end_a, end_b


def tor_step(ficonn: FiConn, server: int, destination: int) -> Step:
    """Return TOR's next hop (Algorithm 2)."""

    def link(a: int, b: int, level: int) -> tuple[int, int]:
        return link_between(ficonn, a, b, level)

    level, peer = recursive.next_step(ficonn.sizes, link, server, destination)
    return Step(BACKUP if level else SWITCH, peer)


def tor_path(ficonn: FiConn, source: int, destination: int) -> Path:
    """Return the path of TOR: at most 2^(k+1) - 1 hops (Theorem 4).

    >>> ficonn = FiConn(4, 2)  # the path of Fig. 3
    >>> found = tor_path(ficonn, ficonn.server("0.2.1"), ficonn.server("1.2.1"))
    >>> print(*map(ficonn.address, found.servers))
    0.2.1 0.2.0 0.0.2 0.0.1 1.0.1 1.0.2 1.2.0 1.2.1
    """

    def step(at: int, to: int) -> Step:
        return tor_step(ficonn, at, to)

    return walked(source, destination, step, limit=2 ** (ficonn.k + 1) - 1)
