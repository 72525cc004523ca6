"""Forwarding of packets along the entries that probes have set up (Li 2009, section IV.A).

A packet whose entry is missing, or leads over a link that is down, is forwarded by TOR
(`pillarbox.hosts.ficonn.fallback`), and a path-failure message notifies the source of its flow.
"""

from __future__ import annotations

from typing import Any

from pillarbox.hosts.base.actions import Action, Deliver, Drop, Pushed, Relayed, Send
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.ficonn.fallback import Fallback
from pillarbox.hosts.ficonn.flow_table import MOST_ENTRIES, FlowTable, Tag
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import FlowKey, Ipv4Header, decrement_ttl, flow_key
from pillarbox.hosts.wire.messages import UNKNOWN_PORT, PathFailure
from pillarbox.hosts.wire.relay_keys import ByFlow

ETHERNET_BYTES = 14  # size of the Ethernet header, which port counters include


class TarRelay(Fallback):
    """Part of TAR's router: forwards packets by routing entries and reports broken paths."""

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        # Timeout of a probe; a newly set up path replaces the old one only after this time.
        self.settle_s = 2 * self.timers.search_timeout_s
        self.flow_table = FlowTable(self.settle_s, self.timers.flow_idle_s, self.neighbours.works)
        self.notified: Bounded[FlowKey, None] = Bounded(MOST_ENTRIES, self.timers.search_timeout_s)

    def process_ip_packet(self, came: Step, packet: bytes, now: float) -> list[Action]:
        """Deliver a plain IP packet, or forward it by the routing entry of its flow."""
        header, _ = Ipv4Header.parse(packet)
        flow = flow_key(packet)
        destination = self.server_of(header.destination)
        if destination == self.server:
            return [Deliver(packet, ByFlow(flow, came.port))]
        if destination is None:
            return [Drop("destination is no server of this network", packet)]
        if header.ttl <= 1:
            return self.expired(packet, now)
        sent = self.send_by_routing_entry(
            flow, decrement_ttl(packet), Relayed(ByFlow(flow, came.port)), now
        )
        if sent:
            return [sent]
        entry = self.flow_table.get(flow)
        broken = entry.route_entries[-1][1].next if entry and entry.route_entries else None
        self.counters["packets without a path"] += 1
        told, source = self.notify_source(flow, came, broken, now), self.server_of(header.source)
        if source is None:
            return [*told, Drop("no entry for the flow", packet)]
        # Departs from the paper: there, a packet without a usable routing entry is dropped.
        return [*told, *self.forward_by_tor(packet, source, destination, now)]

    def send_by_routing_entry(
        self, flow: FlowKey, packet: bytes, repeat: Pushed | Relayed, now: float
    ) -> Send | None:
        """Return the action that sends a packet by its flow's routing entry, None without one."""
        entry = self.flow_table.use(flow, now)
        route_entry = entry.current(self.neighbours.works, now) if entry else None
        if entry is None or route_entry is None:
            return None
        entry.bytes += ETHERNET_BYTES + len(packet)
        return Send(route_entry.next.port, route_entry.next.peer, Frame(ETH_IP, packet), repeat)

    def notify_source(
        self, flow: FlowKey, previous: Step, broken: Step | None, now: float
    ) -> list[Action]:
        """Notify the source of a flow that its path is broken here, once per search timeout.

        The message goes to the previous hop, whose entry leads to this server.
        """
        self.notified.expire(now)
        source = self.server_of(flow.source)
        if source is None or source == self.server or flow in self.notified:
            return []
        self.notified.put(flow, None, now)
        uid = self.topology.uid
        port, peer = (broken.port, broken.peer) if broken else (UNKNOWN_PORT, self.server)
        body = PathFailure(port, self.uid, uid(peer), flow).pack()
        header = DcnHeader(self.uid, uid(source), Protocol.PATH_FAILURE, self.identify())
        return self.send_back_to(source, [previous], header, body)

    def send_back_to(
        self, source: int, previous: list[Step], header: DcnHeader, body: bytes
    ) -> list[Action]:
        """Send a message to a flow's source by a previous hop that works, else by TOR."""
        for step in [*previous, self.tor_step(source)]:
            if self.neighbours.works(step):
                return [Send(step.port, step.peer, Frame(ETH_DCN, header.pack(body)))]
        return [Drop("next hop is down")]

    def remove_hops(self, flow: FlowKey, tag: Tag, now: float) -> None:
        """Remove the hops that a probe has set up, and the flow's actions in the data plane."""
        if self.flow_table.of(flow, tag):
            self.flow_table.remove_probe_hops(flow, tag, now)
            self.flow_answers_change(flow)

    def tidy(self, flow: FlowKey) -> None:
        """Remove a flow's routing entry without hops, and its cached actions in the data plane."""
        self.flow_table.tidy(flow)
        self.flow_answers_change(flow)
