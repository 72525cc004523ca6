"""TOR as TAR's fallback: forwarding of packets whose flow has no path yet (Li 2009, III.B).

A packet of such a flow gets a DCN header, and every relay forwards it by TOR. TOR keeps no state,
so the packet need not wait for a path to be set up. Packets without a DCN header follow the routing
entries of their flow. A relay never mixes both: a packet with a DCN header is forwarded by TOR all
the path to its destination, whatever entries the relays have. So no packet can loop: TOR has no
loops, and a packet changes from entries to TOR at most once, at a relay without an entry.

The destination has to know which end of a flow sends probes: the end whose packets came first. The
source sets the destination as the proxy of the flow's first packet (the DCN header with a proxy);
that form is handled by the destination's router, the form without a proxy by its data plane.

A relay whose next hop is down returns the packet to its source. The source then sends no packets by
TOR to that destination for `failed_link_timeout_s`: its packets are queued until a probe is
answered.
"""

from __future__ import annotations

from typing import Any

from pillarbox.hosts.base.actions import Action, Deliver, Drop, Pushed, Relayed, Send
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.ficonn.paths import tor_step
from pillarbox.hosts.wire.dcn import DCN, PROXIED, DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.ipv4 import LAYOUT, FlowKey, flow_key
from pillarbox.topos.ficonn import BACKUP, SWITCH

# Capacity of the cache of TOR's next hops, and of the table of failed destinations.
REMEMBERED = 4096
# Maximum number of servers for which TOR's next hops are installed in advance.
MOST_FORESEEN = 256
NEXT_HOP_DOWN = "next hop is down"
NO_SERVER = "destination is no server of this network"

_TTL = LAYOUT.byte("ttl")


class Fallback(Router):
    """Part of TAR's router: forwards packets by TOR (traffic-oblivious routing)."""

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        self._next_hops: dict[int, Step] = {}
        self.tor_failed: Bounded[int, None] = Bounded(REMEMBERED, self.timers.failed_link_timeout_s)

    @classmethod
    def header_bytes(cls) -> int:
        """Return the size of a DCN header with a proxy."""
        return PROXIED.size

    # -- for a subclass to implement --------------------------------------------------------------

    def first_packet_came(self, flow: FlowKey, source: int, now: float) -> list[Action]:
        """Handle the first packet of a flow to this server; the flow's source sends the probes."""
        raise NotImplementedError

    def process_tor_failure(self, destination: int) -> None:
        """Handle the detection of a failure on TOR's path to a destination."""
        raise NotImplementedError

    def is_own_flow(self, flow: FlowKey) -> bool:
        """Return True if an application on this server sends the flow."""
        raise NotImplementedError

    # -- decisions in advance of packets -----------------------------------------------------------

    def foreseen(self) -> list[Action]:
        """Return TOR's actions for all destinations, which the data plane caches in advance.

        In networks with more than MOST_FORESEEN servers, the data plane asks for decisions instead.
        """
        plain, proxied = DCN.forms
        ports = [port for port, peers in enumerate(self.neighbours.peers) if peers]
        answers: list[Action] = [Deliver(b"", plain.by(port, self.uid)) for port in ports]
        servers = self.topology.servers
        if len(ports) < 2 or servers > MOST_FORESEEN:
            return answers
        for destination in range(servers):
            if destination != self.server:
                uid, step = self.topology.uid(destination), self.tor_step(destination)
                came_by = SWITCH if step.port == BACKUP else BACKUP
                keys = plain.by(came_by, uid), proxied.by(came_by, uid, uid)
                frame = Frame(ETH_DCN, b"")
                answers += [Send(step.port, step.peer, frame, Relayed(key)) for key in keys]
        return answers

    # -- for a subclass to use -------------------------------------------------------------------

    def by_tor(
        self, packet: bytes, flow: FlowKey, destination: int, now: float, *, first: bool
    ) -> Send | None:
        """Return the action that sends a packet by TOR, None if TOR's path has a known failure."""
        self.tor_failed.expire(now)
        if destination in self.tor_failed:
            return None
        header = self._header(self.server, destination, packet[_TTL])
        repeat = None
        # more than TOR's maximum number of hops: the TTL cannot expire
        if packet[_TTL] > 2 ** (self.topology.k + 1):
            repeat = Pushed(flow, header.pack(b""))
        if first:
            header = header._replace(proxy=header.destination)
        return self._tor_action(destination, header, packet, repeat)

    def rerouted(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Forward another server's packet by TOR: only a flow's source probes for paths."""
        header = self._header(self.server, destination, packet[_TTL])
        sent = self._tor_action(destination, header, packet, None)
        return [sent or Drop(NEXT_HOP_DOWN, packet)]

    def forward_by_tor(
        self, packet: bytes, source: int, destination: int, now: float
    ) -> list[Action]:
        """Forward a packet without a routing entry by TOR, or return the packet to its source."""
        header = self._header(source, destination, packet[_TTL] - 1)
        sent = self._tor_action(destination, header, packet, None)
        return [sent] if sent else self._return_packet(header.source, packet, now)

    def process_tor_packet(
        self, port: int, header: DcnHeader, packet: bytes, now: float
    ) -> list[Action]:
        """Deliver a packet received by TOR, forward it, or return it to its source."""
        if header.destination == self.uid:
            if header.proxy is None:
                return self.delivered(packet, header.relay_key(port))
            flow = flow_key(packet)
            source = self.server_of(flow.source)
            begun = [] if source is None else self.first_packet_came(flow, source, now)
            return [*begun, *self.delivered(packet)]
        destination = self.topology.server_of_uid(header.destination)
        if not 0 <= destination < self.topology.servers:
            return [Drop(NO_SERVER, packet)]
        if header.ttl <= 1:
            return self.expired(packet, now)
        repeat = Relayed(header.relay_key(port))
        onward = header._replace(ttl=header.ttl - 1)
        sent = self._tor_action(destination, onward, packet, repeat)
        return [sent] if sent else self._return_packet(header.source, packet, now)

    def process_returned_packet(self, header: DcnHeader, packet: bytes, now: float) -> list[Action]:
        """Process a packet that a relay returned: at its source send it again, else forward it."""
        if header.destination == self.uid:
            flow = flow_key(packet)
            destination = self.server_of(flow.destination)
            if destination is None or not self.is_own_flow(flow):
                return [Drop("returned packet of no flow", packet)]
            if destination not in self.tor_failed:
                self.tor_failed.put(destination, None, now)
                self.process_tor_failure(destination)
            return self.send_again(packet, now)
        source = self.topology.server_of_uid(header.destination)
        if not 0 <= source < self.topology.servers or header.ttl <= 1:
            return [Drop("TTL expired" if header.ttl <= 1 else NO_SERVER, packet)]
        sent = self._tor_action(source, header._replace(ttl=header.ttl - 1), packet, None)
        return [sent or Drop(NEXT_HOP_DOWN, packet)]

    def tor_step(self, destination: int) -> Step:
        """Return TOR's next hop to a destination, cached."""
        step = self._next_hops.get(destination)
        if step is None:
            if len(self._next_hops) >= REMEMBERED:
                self._next_hops.clear()
            step = self._next_hops[destination] = tor_step(self.topology, self.server, destination)
        return step

    # -- packets ---------------------------------------------------------------------------------

    def _header(self, source: int, destination: int, ttl: int) -> DcnHeader:
        uid = self.topology.uid
        return DcnHeader(uid(source), uid(destination), Protocol.IPV4, self.identify(), ttl=ttl)

    def _tor_action(
        self, destination: int, header: DcnHeader, packet: bytes, repeat: Pushed | Relayed | None
    ) -> Send | None:
        step = self.tor_step(destination)
        if not self.neighbours.works(step):
            return None
        return Send(step.port, step.peer, Frame(ETH_DCN, header.pack(packet)), repeat)

    # Departs from the paper: TOR would drop the packet, and the source would not know of the
    # failure.
    def _return_packet(self, uid: int, packet: bytes, now: float) -> list[Action]:
        """Return a packet to its source, along TOR's path in reverse."""
        source = self.topology.server_of_uid(uid)
        if 0 <= source < self.topology.servers and source != self.server:
            header = DcnHeader(self.uid, uid, Protocol.RETURNED, self.identify())
            sent = self._tor_action(source, header, packet, None)
            if sent and self.may_return(packet, now):
                return [sent]
        return [Drop(NEXT_HOP_DOWN, packet, unreached=source == self.server)]
