"""DPillarSP as a router of plain IP packets, computed from address bits (Liao 2012, 5.1)."""

from __future__ import annotations

from typing import ClassVar

from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.dpillar.paths import sp_step
from pillarbox.hosts.dpillar.rules import nearest, numbers
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE


class Clockwise(HopByHop):
    """Router for DPillarSP, clockwise from the source.

    A packet keeps its direction: it leaves a relay by the port by which it did not arrive.
    """

    plain_ip = True
    direction: ClassVar[int] = CLOCKWISE

    def next_step(self, destination: int, came_by: int | None) -> Step:
        """Return the next hop of DPillarSP's path (Algorithm 1)."""
        port = self.direction if came_by is None else 1 - came_by
        return sp_step(self.topology, self.server, destination, port)


class CounterClockwise(Clockwise):
    """Router for DPillarSP, counter-clockwise from the source."""

    direction = COUNTER_CLOCKWISE


class Minimal(HopByHop):
    """Router for shortest paths, computed at each hop from the two addresses."""

    plain_ip = True

    def next_step(self, destination: int, came_by: int | None) -> Step:
        """Return the next hop of a shortest path: the remaining distance shrinks by one."""
        return Step(*nearest(*numbers(self.topology), self.server, destination))
