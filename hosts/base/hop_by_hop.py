"""Routing that needs nothing but the destination: every server knows its next hop alone."""

from __future__ import annotations

from typing import ClassVar

from hosts.base.actions import Action, Deliver, Drop, Pushed, Relayed, Send
from hosts.base.path import Step
from hosts.base.router import Router
from hosts.wire.dcn import PLAIN, DcnHeader, Protocol
from hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from hosts.wire.ipv4 import FlowKey, Ipv4Header, decrement_ttl
from hosts.wire.relayed import ByDestination


class HopByHop(Router):
    """A router of one method, `next_step`.

    Packets travel under a DCN header (Guo 2008, Fig. 10), or as they are where `plain_ip` is set
    and a server's IPv4 address says all that a relay needs.
    """

    plain_ip: ClassVar[bool] = False

    def next_step(self, destination: int, came_by: int | None) -> Step | None:
        """Return the next hop to a server, None where there is no way.

        Parameters
        ----------
        destination : int
            Another server than this one.
        came_by : int or None
            The port by which the packet came; None where it is this server's own.
        """
        raise NotImplementedError

    @classmethod
    def header_bytes(cls) -> int:
        """Return the size of a DCN header, if there is one."""
        return 0 if cls.plain_ip else PLAIN.size

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send the packet to its next hop."""
        if self.plain_ip:
            return self._forward(packet, destination, None, Frame(ETH_IP, packet), Pushed(flow))
        to = self.topology.uid(destination)
        header = DcnHeader(self.uid, to, Protocol.IPV4, self.identify())
        data = header.pack(packet)
        pushed = Pushed(flow, data[: -len(packet)])
        return self._forward(packet, destination, None, Frame(ETH_DCN, data), pushed)

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Deliver what is for this server, send all else on."""
        if self.plain_ip:
            return self._incoming_ip(port, frame, now)
        return self._incoming_dcn(port, frame)

    def _incoming_ip(self, port: int, frame: Frame, now: float) -> list[Action]:
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
        step = self.next_step(destination, came_by)
        if step is None:
            return [Drop("no way to the destination", packet)]
        if fault := self.neighbours.fault(step):
            return [Drop(fault, packet)]
        return [Send(step.port, step.peer, frame, repeat)]
