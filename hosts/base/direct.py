"""Servers behind switches that do all the routing: the host's side of trees and fat-trees."""

from __future__ import annotations

from typing import ClassVar

from hosts.base.hop_by_hop import HopByHop
from hosts.base.path import Step

PORT = 0  # the only one


class Direct(HopByHop):
    """Plain IP out of the only port: every other server is one hop away.

    There are no heart-beats. What goes on among the switches a server cannot tell; of its own
    cable its port does.
    """

    plain_ip = True
    watches_neighbours: ClassVar[bool] = False

    def next_step(self, destination: int, came_by: int | None) -> Step:
        """Return the hop to the destination itself."""
        return Step(PORT, destination)
