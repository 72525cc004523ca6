"""Spraying in a DPillar: each packet of a flow takes the next of DPillarMP's working paths.

The paths are those of both directions, over both ports of the source, each in its tunnel
(`pillarbox.hosts.dpillar.tunnel`). Their probes and failures are those of fault-tolerant DPillarMP
(`pillarbox.hosts.dpillar.multipath`). A path of one direction may cross a server of the other.

State: the turn of each flow, at most FLOWS. A new flow begins with a random path, and a flow
evicted from the full table as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.probing import Probing
from pillarbox.hosts.base.spraying import MOST_SPRAYED, SprayedPaths, in_turn
from pillarbox.hosts.dpillar.multipath import BothWays, Destination
from pillarbox.hosts.dpillar.paths import Proxies
from pillarbox.hosts.wire.ipv4 import FlowKey

FLOWS = 4096  # upper bound for flows whose turn is stored


class Spray(BothWays):
    """DPillarMP router that sprays the packets of a flow over the paths of both directions."""

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        self._turns: Bounded[FlowKey, int] = Bounded(FLOWS, self.timers.flow_idle_s)

    def new_probing(self, destination: int, paths: Iterable[Path]) -> Probing:
        """Return the probe rounds over the paths to a new destination."""
        return SprayedPaths(paths, partial(self._paths_changed, destination))

    def _paths_changed(self, destination: int) -> None:
        """Invalidate the cached actions for all flows to a destination."""
        known = self.destinations.get(destination)
        if known is not None:
            self.withdraw_flows(known)

    def path_for(self, packet: bytes, flow: FlowKey, known: Destination, now: float) -> Path | None:
        """Return a path in use to a destination, None if no path works."""
        return next(iter(_used_paths(known)), None)

    def tunnels_for(
        self, packet: bytes, flow: FlowKey, destination: int, now: float
    ) -> list[Proxies]:
        """Return the tunnels of a flow's packets from this packet on, in turn."""
        usable = self.tunnel_for(packet, flow, destination, now) is not None
        known = self.destinations.get(destination)
        if known is None or not usable:
            return []
        self._turns.expire(now)
        turn = self._turns.get(flow)
        if turn is None:  # single packets of many flows are divided as well
            turn = self.random.randrange(MOST_SPRAYED)
        self._turns.put(flow, turn + 1, now)
        return [known.tunnels[path] for path in in_turn(_used_paths(known), turn)]

    def in_use(self) -> set[tuple[int | None, int | None]]:
        """Return (destination, index of the candidate path) of each path in use."""
        return {
            (destination, index)
            for destination, known in self.destinations.items()
            for used in [set(_used_paths(known))]
            for index, candidate in enumerate(known.probing.candidates)
            if candidate.path in used
        }


def _used_paths(known: Destination) -> list[Path]:
    assert isinstance(known.probing, SprayedPaths)
    return known.probing.used_paths()
