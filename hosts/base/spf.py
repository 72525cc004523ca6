"""Shortest-path routing for any network whose servers relay: link state of the whole network.

What the papers compare with: every server knows every link, and takes a path of fewest hops. The
price is that each change of any link is told to everybody (`hosts.base.flood`): it suits networks
of some hundreds of servers.
"""

from __future__ import annotations

from typing import Any

from hosts.base.actions import Action
from hosts.base.direct import Direct
from hosts.base.flood import Flooding
from hosts.base.hop_by_hop import HopByHop
from hosts.base.path import Step
from hosts.base.router import Router
from hosts.wire.dcn import DcnHeader, Protocol, broadcast
from hosts.wire.frame import ETH_DCN, Frame
from topos.base.topology import Topology

EVERYBODY = broadcast(7)  # the widest scope there is
_LINK_STATE = bytes([Protocol.LINK_STATE])


class ShortestPath(HopByHop):
    """Fewest hops to each server, around every failure that is known."""

    def __init__(self, *network: Any, now: float = 0.0, **options: Any) -> None:
        super().__init__(*network, now=now, **options)
        everyone = range(self.topology.servers)
        ports = range(self.topology.ports)
        self.flooding = Flooding(self, everyone, ports, EVERYBODY, now)

    def next_step(self, destination: int, came_by: int | None) -> Step | None:
        """Return the first hop of the shortest path."""
        return self.flooding.states.next_steps.get(destination)

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Take in link states; everything else is routed."""
        if frame.ethertype == ETH_DCN and frame.data[1:2] == _LINK_STATE:
            header, body = DcnHeader.parse(frame.data)
            return self.flooding.heard(port, peer, header, body, now)
        return super().incoming(port, peer, frame, now)

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Tell everybody."""
        return self.flooding.changed(now)

    def resized(self, now: float) -> list[Action]:
        """Everybody is a member."""
        self.flooding.resize(range(self.topology.servers), now)
        return []

    def down(self) -> list[tuple[int, Step]]:
        """Add what the others say."""
        return list(dict.fromkeys([*super().down(), *self.flooding.states.down()]))

    def state(self) -> dict[str, Any]:
        """Add the link states."""
        return {**super().state(), "link states": self.flooding.state()}


def shortest_router(topology: Topology) -> type[Router]:
    """Return the router of shortest paths: behind one port there is only one way."""
    return ShortestPath if topology.ports > 1 else Direct
