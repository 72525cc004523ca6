"""Shortest-path router for networks whose servers relay, with link states of the whole network.

It is the baseline of the papers: every server knows every link and uses a shortest path. The cost
is that each link change is flooded to all servers (`pillarbox.hosts.base.flood`), which limits it
to networks of some hundreds of servers.
"""

from __future__ import annotations

from typing import Any

from pillarbox.hosts.base.actions import Action
from pillarbox.hosts.base.direct import Direct
from pillarbox.hosts.base.flood import Flooding
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol, broadcast
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.topos.base.topology import Topology

EVERYBODY = broadcast(7)  # DCN multicast address of all servers (the widest scope)
_LINK_STATE = bytes([Protocol.LINK_STATE])


class ShortestPath(HopByHop):
    """Router that uses a shortest path around all known failures."""

    def __init__(self, *network: Any, now: float = 0.0, **options: Any) -> None:
        super().__init__(*network, now=now, **options)
        everyone = range(self.topology.servers)
        ports = range(self.topology.ports)
        self.flooding = Flooding(self, everyone, ports, EVERYBODY, now)

    def next_step(self, destination: int, came_by: int | None) -> Step | None:
        """Return the first hop of the shortest path to the destination."""
        return self.flooding.states.next_steps.get(destination)

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Process link states here, and route all other frames hop by hop."""
        if frame.ethertype == ETH_DCN and frame.data[1:2] == _LINK_STATE:
            header, body = DcnHeader.parse(frame.data)
            return self.flooding.heard(port, peer, header, body, now)
        return super().incoming(port, peer, frame, now)

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Flood this server's link state to all servers after a link change."""
        return self.flooding.changed(now)

    def resized(self, now: float) -> list[Action]:
        """Make all servers of the resized network exchange link states."""
        self.flooding.resize(range(self.topology.servers), now)
        return []

    def down(self) -> list[tuple[int, Step]]:
        """Return the links known to be down, including those in link states of other servers."""
        return list(dict.fromkeys([*super().down(), *self.flooding.states.down()]))

    def state(self) -> dict[str, Any]:
        """Return the router's state for display to users, with all servers' link states."""
        return {**super().state(), "link states": self.flooding.state()}


def shortest_router(topology: Topology) -> type[Router]:
    """Return the shortest-path router class; `Direct` if servers have only one port."""
    return ShortestPath if topology.ports > 1 else Direct
