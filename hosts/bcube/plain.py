"""BCubeRouting as a router: each server corrects the highest digit that differs (Guo 2009, 3.2)."""

from __future__ import annotations

from hosts.base.hop_by_hop import HopByHop
from hosts.base.path import Step
from hosts.bcube.rules import BCUBE_ROUTING


class BCubeRouting(HopByHop):
    """One shortest path, nothing known of failures; see `bsr` for what BCube's servers do."""

    def next_step(self, destination: int, came_by: int | None) -> Step | None:
        """Return the hop that corrects the highest digit."""
        return BCUBE_ROUTING.first_step(self.topology, self.server, destination)
