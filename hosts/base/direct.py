"""Router of trees and fat-trees, in which the switches do all routing."""

from __future__ import annotations

from typing import ClassVar

from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step

PORT = 0  # the only port of a server


class Direct(HopByHop):
    """Router that sends plain IP out of the only port: every other server is one hop away.

    It sends no heartbeats: a server cannot detect failures among the switches, and the carrier
    reports the state of its own cable.
    """

    plain_ip = True
    watches_neighbours: ClassVar[bool] = False

    def next_step(self, destination: int, came_by: int | None) -> Step:
        """Return the hop to the destination server, which switches connect directly."""
        return Step(PORT, destination)
