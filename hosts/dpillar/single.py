"""DPillarSP as a router: plain IP packets, the address's bits are all it needs (Liao 2012, 5.1)."""

from __future__ import annotations

from typing import ClassVar

from hosts.base.hop_by_hop import HopByHop
from hosts.base.path import Step
from hosts.dpillar.paths import sp_step
from topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE


class Clockwise(HopByHop):
    """DPillarSP, clockwise from the source.

    A packet keeps its direction: it leaves a relay by the port that it did not come in by.
    """

    plain_ip = True
    direction: ClassVar[int] = CLOCKWISE

    def next_step(self, destination: int, came_by: int | None) -> Step:
        """Return Algorithm 1's next hop."""
        port = self.direction if came_by is None else 1 - came_by
        return sp_step(self.topology, self.server, destination, port)


class CounterClockwise(Clockwise):
    """DPillarSP, the other way round."""

    direction = COUNTER_CLOCKWISE
