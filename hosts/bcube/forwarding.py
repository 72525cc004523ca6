"""Forwarding in a BCube server (Guo 2009, Fig. 7 and section 7.2), for packets of other servers.

A packet carries its whole path, so a relay forwards it with one look-up in its neighbour table
(`pillarbox.hosts.bcube.neighbour_table`) and advances the header's next-hop index; relays keep no
state per flow. Five types of message use the same forwarding, each along a path that its sender
specifies::

    source --probe--> relay --probe--> destination    min(available in, available out) at each relay
    source <-------- probe response -- destination    over the reversed path
    source <-- path failure -- relay  x               names the down link; over the reversed path
    source <-- returned packet -- relay  x            a packet that met the link, to be sent again
    neighbour <-- cable cut -- server x               its cable to their switch; over another switch

These messages maintain the failed-link database (section 4.2): every server that forwards a
path-failure message adds the link to its database. A link is removed after a timeout, or when a
probe response is forwarded that came over the link. The links of this server itself are in its
neighbour table, not in the database.

Data packets are forwarded in the kernel, so a relay could report a link that has gone down only
when the next packet arrives, and TCP would recover only with its second retransmission. Therefore
the relay remembers which sources sent probes over which link, and notifies them immediately. A
switch does not report that one of its cables is cut: the neighbours on that switch would keep
sending to the cut cable, TCP acknowledgements included, until heartbeats time out. Therefore the
server at the end of the cut cable notifies them.

Invariants: hops, servers and links named in a received frame are used only if this network has
them; a lost message never triggers another message. A path has at most 8 hops, so packets need no
TTL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pillarbox.hosts.base.actions import Action, Deliver, Drop, OtherPath, Pushed, Relayed, Send
from pillarbox.hosts.base.bandwidth import Direction
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.failures import Failures, Pair
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.bcube.broadcast import BCubeBroadcasts
from pillarbox.hosts.bcube.neighbour_table import NeighbourTable
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.hosts.bcube.rules import corrected
from pillarbox.hosts.bcube.source_routes import hops_of, path_of, reverse
from pillarbox.hosts.wire.bcube import MOST_LEVEL, MOST_VALUE, SIZE, BCubeHeader, Hop, advance
from pillarbox.hosts.wire.dcn import Protocol, is_multicast
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.ipv4 import FlowKey, flow_key
from pillarbox.hosts.wire.messages import CableCut, PathFailure, Probe, ProbeResponse
from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.base.errors import require

MOST_FAILED_LINKS = 1024
MOST_PASSING = 256  # capacity of the table of forwarded probes, by source and next hop
NEXT_HOP_DOWN = "next hop is down"
# Minimum time between path-failure messages to a source about one link, in seconds.
TELL_AGAIN_S = 0.01


class Forwarding(Router):
    """BCube forwarding engine of a server: relays packets, answers probes, stores failed links."""

    # Packets follow their source routes: link changes do not invalidate all cached actions.
    answers_outlive_links: ClassVar[bool] = True

    def __init__(self, topology: DigitNetwork, server: int, **common: Any) -> None:
        require(
            topology.k <= MOST_LEVEL and max(topology.sizes) <= MOST_VALUE + 1,
            f"{topology.spec} is too large for BCube's header, which names digits up to "
            f"{MOST_LEVEL} and their values up to {MOST_VALUE}: choose at most {MOST_LEVEL + 1} "
            f"levels (k <= {MOST_LEVEL}) of at most {MOST_VALUE + 1} servers (Guo 2009, section "
            "7.1)",
        )
        super().__init__(topology, server, **common)
        self.table = NeighbourTable(topology, server)
        self.broadcasts = BCubeBroadcasts(self, self._send_to_neighbour)
        self.failed_links: Bounded[Pair, None] = Bounded(
            MOST_FAILED_LINKS, self.timers.failed_link_timeout_s
        )

        # Paths of recently forwarded probes, by the probe's source and next hop.
        self.passing: Bounded[tuple[int, Step], tuple[Hop, ...]] = Bounded(
            MOST_PASSING, 2 * self.timers.longest_probe_interval_s
        )
        # Path-failure messages sent recently, by notified source and failed hop.
        self.notified: Bounded[tuple[int, Step], None] = Bounded(MOST_PASSING, TELL_AGAIN_S)

    @classmethod
    def header_bytes(cls) -> int:
        """Return the size of a BCube header, which holds a whole path."""
        return SIZE

    # -- for the source's part to implement -------------------------------------------------------

    def arrived(self, packet: bytes) -> list[Action]:
        """Handle an IPv4 packet that has arrived at the end of its source route."""
        raise NotImplementedError

    def answered(self, response: ProbeResponse, path: Path, now: float) -> list[Action]:
        """Handle a probe response; `path` is the probed path."""
        raise NotImplementedError

    def lost(self, link: Pair, now: float) -> None:
        """Handle a newly failed link anywhere in the network."""
        raise NotImplementedError

    def is_own_flow(self, flow: FlowKey) -> bool:
        """Return True if an application on this server sends the flow."""
        raise NotImplementedError

    # -- for the source's part to use ------------------------------------------------------------

    def send_along(
        self,
        path: Path,
        protocol: Protocol,
        payload: bytes,
        flow: FlowKey | None = None,
        others: Sequence[Path] = (),
    ) -> list[Action]:
        """Send a message or a flow's packet from this server along a path.

        The data plane sends the flow's next packets along `others` and this path, in turn.
        """
        hops = hops_of(self.topology, path)
        neighbour = self.table.look_up(hops[0])
        if neighbour is None or not neighbour.up:
            return [Drop(NEXT_HOP_DOWN, payload)]
        destination = self.topology.uid(path.destination)
        # This server takes the first hop, so the index on the wire is that of the peer's next hop.
        header = BCubeHeader(self.uid, destination, protocol, hops, 1, self.identify())
        data = header.pack(payload)
        pushed = None
        if flow is not None:
            other_paths = tuple(self._other_path(other, header, payload) for other in others)
            pushed = Pushed(flow, data[: -len(payload)], others=other_paths)
        return [_send_action(neighbour.step, data, pushed)]

    def _other_path(self, path: Path, header: BCubeHeader, payload: bytes) -> OtherPath:
        """Return another path of a sprayed flow, with its header."""
        data = header._replace(path=hops_of(self.topology, path)).pack(payload)
        return OtherPath(path.steps[0].port, path.steps[0].peer, data[: -len(payload)])

    def _send_to_neighbour(self, step: Step, data: bytes) -> Action:
        """Return the action that sends a single frame to a neighbour; no decision is cached."""
        return _send_action(step, data) if self.table.is_up(step) else Drop(NEXT_HOP_DOWN, data)

    def failures(self, now: float) -> Failures:
        """Return all links that this server knows to have failed."""
        self.failed_links.expire(now)
        return Failures(links=self.table.failed_links.union(self.failed_links))

    def fresh_failures(self, now: float) -> Failures:
        """Return the failed links, without those that other servers reported long ago."""
        fresh = (link for link in self.failed_links if self._is_fresh(link, now))
        return Failures(links=self.table.failed_links.union(fresh))

    def _is_fresh(self, link: Pair, now: float) -> bool:
        """Return True if the path-failure message about a link has arrived within the hold time."""
        return self.failed_links.idle_for(link, now) < self.timers.unreachable_hold_s

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Update the neighbour table; notify sources and the neighbour if the link went down."""
        self.table.set_status(step, up)
        link = frozenset((self.server, step.peer))
        if up:
            self.failed_links.pop(link)
            return []
        self.lost(link, now)
        return [*self._notify_sources(step, now), *self._notify_neighbour(step, now)]

    def resized(self, now: float) -> list[Action]:
        """Build the neighbour table again after a resize of the network."""
        self.table = NeighbourTable(self.topology, self.server)
        for step in self.neighbours.links:
            self.table.set_status(step, self.neighbours.works(step))
        return []

    def state(self) -> dict[str, Any]:
        """Return the router's state with the number of neighbours and the failed links."""
        address = self.topology.address
        own = self.table.failed_links
        return {
            **super().state(),
            "neighbours": {"known": len(self.table), "down": len(own)},
            "failed_links": [
                [address(server) for server in sorted(link)]
                for link in [*own, *(link for link in self.failed_links if link not in own)]
            ],
        }

    # -- frames ----------------------------------------------------------------------------------

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Forward a packet along its path, or process it if the path ends here."""
        if frame.ethertype != ETH_DCN:
            return [Drop("unknown protocol", frame.data)]
        header, body = BCubeHeader.parse(frame.data)
        if header.next_hop < len(header.path):
            return self._relay(port, frame.data, header, body, now)
        if is_multicast(header.destination):
            return self.broadcasts.heard(header, body, now)
        if header.destination != self.uid:
            return [Drop("path ends at another server", body)]
        match header.protocol:
            case Protocol.IPV4:
                delivered = self.arrived(body)
                key = header.relay_key()
                return [a._replace(key=key) if isinstance(a, Deliver) else a for a in delivered]
            case Protocol.PROBE:
                return self._answer_probe(port, header, Probe.parse(body))
            case Protocol.PROBE_RESPONSE:
                return self._process_response(header, ProbeResponse.parse(body), now)
            case Protocol.PATH_FAILURE:
                return self._add_failure(PathFailure.parse(body), now)
            case Protocol.CABLE_CUT:
                return self._process_cable_cut(header, CableCut.parse(body), now)
            case Protocol.RETURNED:
                return self._resend_returned(body, now)
        return [Drop("unknown protocol", body)]

    def _relay(
        self, port: int, data: bytes, header: BCubeHeader, body: bytes, now: float
    ) -> list[Action]:
        neighbour = self.table.look_up(header.path[header.next_hop])
        if neighbour is None:
            return [Drop("hop leads nowhere", body)]
        onward = neighbour.step
        if not neighbour.up:
            return self._report_down_hop(header, body, onward, now)
        repeat = None
        match header.protocol:
            case Protocol.IPV4:
                repeat = Relayed(header.relay_key())
            case Protocol.PROBE:
                probe = self._limited_probe(Probe.parse(body), port, onward.port)
                self.passing.put((header.source, onward), header.path[: header.next_hop], now)
                return [_send_action(onward, header.advanced().pack(probe.pack()))]
            case Protocol.PATH_FAILURE:
                self._add_failure(PathFailure.parse(body), now)
            case Protocol.PROBE_RESPONSE:
                self._clear_failures(self._path_of(header))
        return [_send_action(onward, advance(data), repeat)]

    # -- probes ----------------------------------------------------------------------------------

    def _limited_probe(self, probe: Probe, port_in: int, port_out: int | None = None) -> Probe:
        """Return the probe with its available bandwidth limited to that of this server's ports."""
        free_bps = self.bandwidth.available_bps(port_in, Direction.IN)
        if port_out is not None:
            free_bps = min(free_bps, self.bandwidth.available_bps(port_out, Direction.OUT))
        return probe._replace(available_bps=min(probe.available_bps, int(free_bps)))

    def _answer_probe(self, port: int, header: BCubeHeader, probe: Probe) -> list[Action]:
        path = self._path_of(header)
        if path is None or path.destination != self.server:
            return [Drop("no such path")]
        response = ProbeResponse(*self._limited_probe(probe, port))
        return self.send_along(
            reverse(self.topology, path), Protocol.PROBE_RESPONSE, response.pack()
        )

    def _process_response(
        self, header: BCubeHeader, response: ProbeResponse, now: float
    ) -> list[Action]:
        path = self._path_of(header)
        if path is None or path.destination != self.server:
            return [Drop("no such path")]
        self._clear_failures(path)
        return self.answered(response, reverse(self.topology, path), now)

    # -- failures --------------------------------------------------------------------------------

    def _report_down_hop(
        self, header: BCubeHeader, body: bytes, step: Step, now: float
    ) -> list[Action]:
        """Send a path-failure message to the source of a packet or probe whose next hop is down.

        # Departs from the paper: the relay also returns the packet, and the source sends it again.
        """
        path = self._path_of(header)
        asked = header.protocol in (Protocol.IPV4, Protocol.PROBE)
        if not asked or path is None or path.destination != self.server:
            return [Drop(NEXT_HOP_DOWN, body)]
        messages = self._notify_source(path, step, now)
        if header.protocol == Protocol.PROBE or not self.may_return(body, now):
            return [Drop(NEXT_HOP_DOWN, body), *messages]
        return [*messages, *self.send_along(reverse(self.topology, path), Protocol.RETURNED, body)]

    def _resend_returned(self, packet: bytes, now: float) -> list[Action]:
        """Send a packet again that a relay has returned after its path-failure message."""
        if not self.is_own_flow(flow_key(packet)):
            return [Drop("returned packet of no flow", packet)]
        return self.send_again(packet, now)

    # Departs from the paper: there, a source is notified when its packet meets the failed link
    # (4.2).
    def _notify_sources(self, step: Step, now: float) -> list[Action]:
        """Notify sources whose recent probes were forwarded over a link that went down."""
        self.passing.expire(now)
        actions: list[Action] = []
        for (uid, taken), hops in self.passing.items():
            if taken == step:
                self.passing.pop((uid, taken))
                actions += self._notify_source(self._checked_path(uid, hops), step, now)
        return actions

    def _notify_source(self, path: Path | None, step: Step, now: float) -> list[Action]:
        """Notify the source of a path ending at this server that a link is down."""
        if path is None or path.destination != self.server:
            return []
        self.notified.expire(now)
        if (path.source, step) in self.notified:
            return []
        self.notified.put((path.source, step), None, now)
        # No flow is named: all flows of the source that use the failed link have to leave the link.
        message = PathFailure(step.port, self.uid, self.topology.uid(step.peer), flow=None)
        return self.send_along(reverse(self.topology, path), Protocol.PATH_FAILURE, message.pack())

    # Departs from the paper: there, neighbours detect the cut cable by missed heartbeats.
    def _notify_neighbour(self, step: Step, now: float) -> list[Action]:
        """Notify a neighbour on a switch that this server's cable to the switch is cut."""
        if self.neighbours.carrier(step.port):
            return []  # the port has carrier: a silent neighbour, but no cable cut here
        if self.topology.server_plug(self.server, step.port).node == step.peer:
            return []  # a direct cable: the neighbour's port has lost its carrier, too
        failures = self.failures(now)
        for path in path_set(self.topology, self.server, step.peer):
            if failures.first_on(self.topology, path) is None:
                self.counters["cut cables told"] += 1
                return self.send_along(path, Protocol.CABLE_CUT, CableCut(step.port).pack())
        return []

    def _process_cable_cut(
        self, header: BCubeHeader, message: CableCut, now: float
    ) -> list[Action]:
        path = self._path_of(header)
        if path is None:
            return [Drop("no such path")]
        return self.cable_cut(path.source, message.port, now)

    def _add_failure(self, message: PathFailure, now: float) -> list[Action]:
        """Add the link in a path-failure message, received or forwarded, to the failed links."""
        link = self._link_of(message)
        if link is None:
            return [Drop("no such link")]
        self.failed_links.expire(now)
        known = link in self.failed_links and self._is_fresh(link, now)
        self.failed_links.put(link, None, now)
        if not known:
            self.lost(link, now)
        return []

    def _clear_failures(self, path: Path | None) -> None:
        """Remove a path's links from the failed links, since a probe over the path was answered."""
        for link in path.links if path else ():
            self.failed_links.pop(link)

    # -- validation of received frames ------------------------------------------------------------

    def _path_of(self, header: BCubeHeader) -> Path | None:
        """Return the path by which a packet came, None if its header's path is empty or invalid."""
        return self._checked_path(header.source, header.path[: header.next_hop])

    def _checked_path(self, uid: int, hops: tuple[Hop, ...]) -> Path | None:
        path = path_of(self.topology, self.topology.server_of_uid(uid), hops)
        return path if path and path.steps else None

    def _link_of(self, message: PathFailure) -> Pair | None:
        """Return the link in a path-failure message, None if the network has no such link."""
        bcube = self.topology
        server, peer = bcube.server_of_uid(message.server), bcube.server_of_uid(message.peer)
        servers = range(bcube.servers)
        if not (server in servers and peer in servers and message.port < bcube.ports):
            return None
        level = bcube.level_of_port(message.port)
        if server == peer or corrected(bcube.weights, server, peer, level) != peer:
            return None
        return frozenset((server, peer))


def _send_action(step: Step, data: bytes, repeat: Pushed | Relayed | None = None) -> Send:
    return Send(step.port, step.peer, Frame(ETH_DCN, data), repeat)
