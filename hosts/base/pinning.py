"""Forwarding of packets along the pinned paths of port addresses
(`pillarbox.hosts.base.pinned_paths`).

A packet of an application is sent along a pinned path if its source is the address of one of this
server's ports, or its destination is the address of a port, or if it belongs to a Multipath TCP
connection between the servers' own addresses. Such a connection uses port 0 of its client, whose
further subflows use the addresses of its other ports. The client is the server with the higher TCP
port, so that both servers compute the same path: Linux gives clients ports from 32768 on, which
programs do not listen on. The packet carries the whole path in a source-route header
(`pillarbox.hosts.wire.source_route`), and relays keep no state.

If the next hop is down, the server that detects it passes the packet to the network's own routing
(`Router.rerouted`), which carries it from there on. A relay also notifies the source, as a relay of
BCube does::

    source --packet--> relay  x               next hop is down: the relay re-routes the packet
    source <-- path failure -- relay          names the down link; over the reversed path

The source then uses the network's own routing for all paths with this link, until a timeout: the
link may work again, which the next packet on the pinned path shows.

State: the reported links, at most MOST_FAILED, and the sources notified recently.

Invariants: a lost message never triggers another message; links named in a received message are
used only if the network has them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from typing import Protocol as Interface

from pillarbox.hosts.base.actions import Action, Drop, Pushed, Relayed, Send
from pillarbox.hosts.base.agenda import Agenda
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.neighbours import Neighbours
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.pinned_paths import hops_of, links_in_order, path_of, pinned_path, reverse
from pillarbox.hosts.base.timers import Timers
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.ipv4 import FlowKey, flow_key
from pillarbox.hosts.wire.messages import PathFailure
from pillarbox.hosts.wire.relay_keys import RelayKey
from pillarbox.hosts.wire.source_route import SourceRouteHeader, advance
from pillarbox.hosts.wire.tcp import is_mptcp
from pillarbox.topos.base.addressing import End
from pillarbox.topos.base.topology import Topology

NEXT_HOP_DOWN = "next hop is down"
MOST_FAILED = 1024  # capacity of the table of links that relays have reported as down
MOST_NOTIFIED = 256  # capacity of the table of sources notified recently
MOST_PATHS = 1024  # capacity of the table of this server's pinned paths
# Minimum time between path-failure messages to a source about one link, in seconds.
NOTIFY_AGAIN_S = 0.01
EXPIRY_S = 1e-3  # delay of the timer for reported links, so that rounding is never too early


class PinningRouter(Interface):
    """Attributes and methods of `pillarbox.hosts.base.router.Router` that pinned paths use."""

    topology: Any
    server: int
    uid: int
    timers: Timers
    neighbours: Neighbours
    agenda: Agenda
    counters: Counter[str]

    def server_of(self, ipv4: int) -> int | None:
        """Return the server with this IPv4 address, None for other addresses."""

    def identify(self) -> int:
        """Return the identification field of this server's next packet."""

    def delivered(self, packet: bytes, key: RelayKey | None = None) -> list[Action]:
        """Return the action that delivers an IP packet."""

    def rerouted(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Return the actions for another server's packet whose pinned path is down here."""

    def own_answers_change(self) -> None:
        """Invalidate a data plane's cached actions for packets from this server."""


class Pinning:
    """Pinned paths of one server: sends, relays and delivers packets under a source route."""

    def __init__(self, router: PinningRouter) -> None:
        self._router = router
        timeout_s = router.timers.failed_link_timeout_s
        self.failed_links: Bounded[tuple[int, Step], None] = Bounded(MOST_FAILED, timeout_s)
        self._notified: Bounded[tuple[int, Step], None] = Bounded(MOST_NOTIFIED, NOTIFY_AGAIN_S)
        self.resize(router.topology)

    def resize(self, topology: Topology) -> None:
        """Recompute the server's links; forget paths and failures of the former network."""
        self._topology = topology
        self._links = links_in_order(topology, self._router.server)
        # Paths and their encoded hops by far end and own port; None: no path, or one too long.
        self._paths: dict[tuple[End, int | None], tuple[Path, tuple[int, ...]] | None] = {}
        self.failed_links.clear()

    def server_of(self, ipv4: int) -> int | None:
        """Return the server that has this IPv4 address as that of a port, None for others."""
        found = self._topology.port_of_ipv4(ipv4)
        return found.server if found else None

    # -- the source ------------------------------------------------------------------------------

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int) -> list[Action]:
        """Send a packet of this server along its pinned path; return [] if it has none."""
        router = self._router
        found = self._path_for(packet, flow, destination)
        if found is None:
            return []
        path, hops = found
        step = path.steps[0]
        if not router.neighbours.works(step) or self._has_failed(path):
            router.counters["packets off their pinned path"] += 1
            return []
        # This server takes the first hop, so the index on the wire is that of the peer's next hop.
        uid = self._topology.uid(destination)
        header = SourceRouteHeader(router.uid, uid, Protocol.IPV4, hops, 1, router.identify())
        front = header.pack(packet)[: -len(packet)]
        return [_send_action(step, front + packet, Pushed(flow, front))]

    def _path_for(
        self, packet: bytes, flow: FlowKey, destination: int
    ) -> tuple[Path, tuple[int, ...]] | None:
        own = self._topology.port_of_ipv4(flow.source)
        far = self._topology.port_of_ipv4(flow.destination)
        port = own.port if own and own.server == self._router.server else None
        end = End(destination, far.port if far else None)
        if port is None and far is None:
            if not is_mptcp(packet):
                return None
            if self._is_client(flow, destination):
                port = 0
            else:
                end = End(destination, 0)
        if (end, port) not in self._paths:
            if len(self._paths) >= MOST_PATHS:
                self._paths.clear()
            path = pinned_path(self._topology, self._router.server, port, *end)
            hops = hops_of(self._topology, path) if path else None
            self._paths[end, port] = (path, hops) if path and hops else None
        return self._paths[end, port]

    def _is_client(self, flow: FlowKey, destination: int) -> bool:
        """Return True if this server, the source of a TCP flow, is the flow's client."""
        ports = flow.source_port, flow.destination_port
        return ports[0] > ports[1] or (ports[0] == ports[1] and self._router.server < destination)

    def _has_failed(self, path: Path) -> bool:
        """Return True if relays have reported a link of this path as down."""
        if not self.failed_links:
            return False
        hops = zip(path.servers, path.steps, strict=False)
        links = ((server, Step(step.port, step.peer)) for server, step in hops)
        return any(link in self.failed_links for link in links)

    # -- the relays ------------------------------------------------------------------------------

    def incoming(self, data: bytes, now: float) -> list[Action]:
        """Forward a received packet along its route, or process it if the route ends here."""
        header, body = SourceRouteHeader.parse(data)
        if header.next_hop == len(header.path):
            return self._process_arrival(header, body, now)
        hop = header.path[header.next_hop]
        if hop >= len(self._links):
            return [Drop("hop leads nowhere", body)]
        step = self._links[hop]
        if not self._router.neighbours.works(step):
            return self._reroute(header, body, step, now)
        repeat = Relayed(header.relay_key()) if header.protocol == Protocol.IPV4 else None
        return [_send_action(step, advance(data), repeat)]

    def _process_arrival(self, header: SourceRouteHeader, body: bytes, now: float) -> list[Action]:
        if header.destination != self._router.uid:
            return [Drop("path ends at another server", body)]
        if header.protocol == Protocol.IPV4:
            return self._router.delivered(body, header.relay_key())
        if header.protocol == Protocol.PATH_FAILURE:
            return self._add_failure(PathFailure.parse(body), now)
        return [Drop("unknown protocol", body)]

    def _reroute(
        self, header: SourceRouteHeader, body: bytes, step: Step, now: float
    ) -> list[Action]:
        """Pass a packet whose next hop is down to the network's routing; notify its source."""
        router = self._router
        if header.protocol != Protocol.IPV4:
            return [Drop(NEXT_HOP_DOWN, body)]
        flow = flow_key(body)
        destination = router.server_of(flow.destination)
        if destination in (None, router.server):
            return [Drop("packet is for another server", body)]
        router.counters["packets off their pinned path"] += 1
        return [
            *map(_once, router.rerouted(body, flow, destination, now)),
            *self._notify_source(header, flow, step, now),
        ]

    def _notify_source(
        self, header: SourceRouteHeader, flow: FlowKey, step: Step, now: float
    ) -> list[Action]:
        """Send the source of a packet a path-failure message, over the hops that it has taken."""
        router, uid = self._router, self._topology.uid
        source = self._topology.server_of_uid(header.source)
        self._notified.expire(now)
        if (source, step) in self._notified:
            return []
        taken = path_of(self._topology, source, header.path[: header.next_hop])
        if not taken or taken.destination != router.server:
            return []
        self._notified.put((source, step), None, now)
        back = reverse(self._topology, taken)
        hops = hops_of(self._topology, back) if back.steps else None
        if not hops or not router.neighbours.works(back.steps[0]):
            return []
        message = PathFailure(step.port, router.uid, uid(step.peer), flow).pack()
        answer = SourceRouteHeader(
            router.uid, header.source, Protocol.PATH_FAILURE, hops, 1, router.identify()
        )
        return [_send_action(back.steps[0], answer.pack(message))]

    # -- failures --------------------------------------------------------------------------------

    def _add_failure(self, failure: PathFailure, now: float) -> list[Action]:
        """Leave all pinned paths with a link that a relay reports as down, until the timeout."""
        server, peer = map(self._topology.server_of_uid, (failure.server, failure.peer))
        step = Step(failure.port, peer)
        if not 0 <= server < self._topology.servers or step not in links_in_order(
            self._topology, server
        ):
            return [Drop("failure of no link")]
        if (server, step) not in self.failed_links:
            self._router.own_answers_change()
        self.failed_links.put((server, step), None, now)
        self._set_expiry(now)
        return []

    def _expire_failures(self, now: float) -> list[Action]:
        """Return to the pinned paths whose failures were reported long ago."""
        if self.failed_links.expire(now):
            self._router.own_answers_change()
        self._set_expiry(now)
        return []

    def _set_expiry(self, now: float) -> None:
        """Set the timer for the expiry of the link that was reported first."""
        for link in self.failed_links:
            left_s = self.failed_links.idle_s - self.failed_links.idle_for(link, now)
            self._router.agenda.set("pinned paths", now + left_s + EXPIRY_S, self._expire_failures)
            return


def _send_action(step: Step, data: bytes, repeat: Pushed | Relayed | None = None) -> Send:
    return Send(step.port, step.peer, Frame(ETH_DCN, data), repeat)


def _once(action: Action) -> Action:
    """Return a relay's action on another server's packet, without the key of a local flow."""
    if isinstance(action, Send) and isinstance(action.repeat, Pushed):
        return action._replace(repeat=None)
    return action
