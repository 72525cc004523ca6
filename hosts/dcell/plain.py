"""DCellRouting as a router: next hops without any knowledge of failures (Guo 2008, 4.1)."""

from __future__ import annotations

from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.dcell.paths import next_step


class DCellRouting(HopByHop):
    """Router that computes each next hop of DCellRouting in O(k)."""

    def next_step(self, destination: int, came_by: int | None) -> Step:
        """Return DCellRouting's next hop."""
        return next_step(self.topology, self.server, destination)
