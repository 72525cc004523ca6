"""FiConn's traffic-oblivious routing, TOR (Li 2009, section III.B, Algorithm 2).

As in DCell, two FiConn_{l-1}s of one FiConn_l are joined by one cable: TOR's path leads to that
cable, over it, and on to the destination. A server computes its next hop without the whole path.
"""

from __future__ import annotations

from pillarbox.hosts.base import recursive
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.ficonn.rules import nested
from pillarbox.topos.ficonn import FiConn


def tor_step(ficonn: FiConn, server: int, destination: int) -> Step:
    """Return the next hop of TOR (Algorithm 2)."""
    return Step(*recursive.next_hop(nested(ficonn.sizes), server, destination))


def tor_path(ficonn: FiConn, source: int, destination: int) -> Path:
    """Return the path of TOR, at most 2^(k+1) - 1 hops long (Theorem 4).

    >>> ficonn = FiConn(4, 2)  # the path of Fig. 3
    >>> found = tor_path(ficonn, ficonn.server("0.2.1"), ficonn.server("1.2.1"))
    >>> print(*map(ficonn.address, found.servers))
    0.2.1 0.2.0 0.0.2 0.0.1 1.0.1 1.0.2 1.2.0 1.2.1
    """
    hops = recursive.hops_between(nested(ficonn.sizes), source, destination)
    return Path(source, tuple(Step(port, peer) for port, peer in hops))
