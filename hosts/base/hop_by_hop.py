"""Base class of hop-by-hop routing, in which the destination determines the next hop."""

from __future__ import annotations

from typing import ClassVar

from pillarbox.hosts.base.actions import Action, Deliver, Drop, Pushed, Relayed, Send
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.wire.dcn import PLAIN, DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import FlowKey, Ipv4Header, decrement_ttl
from pillarbox.hosts.wire.relay_keys import ByDestination


class HopByHop(Router):
    """Base class of routers that are defined by one method, `next_step` (the next hop).

    Packets carry a DCN header (Guo 2008, Fig. 10), or no added header if `plain_ip` is set: then
    relays route by the IPv4 destination address.
    """

    plain_ip: ClassVar[bool] = False

    def next_step(self, destination: int, came_by: int | None) -> Step | None:
        """Return the next hop to a destination server, None if it is unreachable.

        Parameters
        ----------
        destination : int
            Destination server, never this server.
        came_by : int or None
            Input port of the packet; None for a packet from this server.
        """
        raise NotImplementedError

    @classmethod
    def header_bytes(cls) -> int:
        """Return the bytes of the header before IP packets: a DCN header, or 0 for plain IP."""
        return 0 if cls.plain_ip else PLAIN.size

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send a packet from this server to its next hop."""
        if self.plain_ip:
            return self._forward(packet, destination, None, Frame(ETH_IP, packet), Pushed(flow))
        to = self.topology.uid(destination)
        header = DcnHeader(self.uid, to, Protocol.IPV4, self.identify())
        data = header.pack(packet)
        pushed = Pushed(flow, data[: -len(packet)])
        return self._forward(packet, destination, None, Frame(ETH_DCN, data), pushed)

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Deliver packets for this server and forward all others."""
        if self.plain_ip:
            return self._incoming_ip(port, frame, now)
        return self._incoming_dcn(port, frame)

    def _incoming_ip(self, port: int, frame: Frame, now: float) -> list[Action]:
        """Deliver or forward a plain IP packet."""
        if frame.ethertype != ETH_IP:
            return [Drop("unknown protocol", frame.data)]
        header, _ = Ipv4Header.parse(frame.data)
        destination = self.server_of(header.destination)
        key = ByDestination(header.destination, port)
        if destination == self.server:
            return [Deliver(frame.data, key)]
        if destination is None:
            return [Drop("destination is no server of this network", frame.data)]
        if header.ttl <= 1:
            return self.expired(frame.data, now)
        onward = Frame(ETH_IP, decrement_ttl(frame.data))
        return self._forward(frame.data, destination, port, onward, Relayed(key))

    def _incoming_dcn(self, port: int, frame: Frame) -> list[Action]:
        """Deliver or forward a packet under a DCN header."""
        if frame.ethertype != ETH_DCN:
            return [Drop("unknown protocol", frame.data)]
        header, packet = DcnHeader.parse(frame.data)
        if header.protocol != Protocol.IPV4:
            return [Drop("unknown protocol", packet)]
        key = header.relay_key(port)
        if header.destination == self.uid:
            return self.delivered(packet, key)
        destination = self.topology.server_of_uid(header.destination)
        if not 0 <= destination < self.topology.servers:
            return [Drop("destination is no server of this network", packet)]
        if header.ttl <= 1:
            return [Drop("TTL expired", packet)]
        onward = Frame(ETH_DCN, header._replace(ttl=header.ttl - 1).pack(packet))
        return self._forward(packet, destination, port, onward, Relayed(key))

    def _forward(
        self,
        packet: bytes,
        destination: int,
        came_by: int | None,
        frame: Frame,
        repeat: Pushed | Relayed,
    ) -> list[Action]:
        """Send a packet's frame to the next hop towards its destination, or drop the packet."""
        step = self.next_step(destination, came_by)
        if step is None:
            return [Drop("no path to the destination", packet, unreached=True)]
        if fault := self.neighbours.fault(step):
            return [Drop(fault, packet, unreached=True)]
        return [Send(step.port, step.peer, frame, repeat)]
