"""TOR as a router: plain IP packets, each server computes its next hop (Li 2009, section III.B)."""

from __future__ import annotations

from hosts.base.hop_by_hop import HopByHop
from hosts.base.path import Step
from hosts.ficonn.paths import tor_step


class Tor(HopByHop):
    """Traffic-oblivious routing."""

    plain_ip = True

    def next_step(self, destination: int, came_by: int | None) -> Step:
        """Return Algorithm 2's next hop."""
        return tor_step(self.topology, self.server, destination)
