"""BCubeRouting as a router: each hop corrects the highest wrong digit (Guo 2009, section 3.2)."""

from __future__ import annotations

from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.bcube.rules import BCUBE_ROUTING


class BCubeRouting(HopByHop):
    """Router for BCubeRouting's single path, which ignores failures (see `bsr`)."""

    def next_step(self, destination: int, came_by: int | None) -> Step | None:
        """Return the hop that corrects the highest digit in which the destination differs."""
        return BCUBE_ROUTING.first_step(self.topology, self.server, destination)
