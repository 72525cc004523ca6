"""TOR as a router of plain IP packets: servers compute next hops (Li 2009, section III.B)."""

from __future__ import annotations

from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.ficonn.paths import tor_step


class Tor(HopByHop):
    """Router for FiConn's traffic-oblivious routing (TOR)."""

    plain_ip = True

    def next_step(self, destination: int, came_by: int | None) -> Step:
        """Return the next hop of TOR (Algorithm 2)."""
        return tor_step(self.topology, self.server, destination)
