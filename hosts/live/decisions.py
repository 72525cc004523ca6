"""What a data plane may repeat: decisions read off the router's answers.

The first packet of a flow, or to a destination, goes through the router like every packet. What
went in and what came out show what it decided: which header was put in front or how it was changed,
and where the packet went. That is installed in a table, the kernel's or the forwarder's own, under
the part of the header on which such decisions depend, and packets like it are forwarded from there.

The router is not asked which of its answers may be repeated. Whatever it says holds until its
`generation` changes; then all of it is taken back (where only its `own_generation` changes: what
it said of packets of its own applications; where a flow is among its `changed_flows`: what it said
of that flow). Answers about anything but applications' packets are never repeated.
"""

from __future__ import annotations

from collections.abc import Callable

from hosts.base.actions import EVERYONE, Action, Send
from hosts.base.actions import Deliver as Delivered
from hosts.base.path import Step
from hosts.base.router import Router
from hosts.live.table import Action as Repeated
from hosts.live.table import (
    ByDcn,
    ByDestination,
    ByEnd,
    ByFlow,
    ByHop,
    ByTunnel,
    Deliver,
    Proxy,
    Push,
    Relay,
    RelayKey,
    Table,
    Unwrap,
    Used,
)
from hosts.wire.bcube import BCubeHeader
from hosts.wire.dcn import DcnHeader, Protocol
from hosts.wire.frame import ETH_DCN, Frame
from hosts.wire.ipv4 import FlowKey, Ipv4Header, flow_key
from hosts.wire.layout import WireError

MacOf = Callable[[Step], bytes]

# To count what one decision was used for costs some 3 microseconds. Where there are hundreds, that
# is done less often: so it takes each of many servers less than a thousandth of a processor.
COUNTING_S = 5e-3

IP_IN_IP = 4
BCUBE_VERSION = 2


class Decisions:
    """Installs what one router decides.

    Parameters
    ----------
    router : Router
        Whose answers are read.
    table : Table
        Where they are installed.
    mac : callable of Step to bytes
        The MAC address at the other end of a hop.
    """

    def __init__(self, router: Router, table: Table, mac: MacOf) -> None:
        self.router, self.table, self._mac = router, table, mac
        self._count_flows_s = self._count_relays_s = 0.0  # when it is time for that
        self._generations = router.generation, router.own_generation

    def sent(self, packet: bytes, actions: list[Action]) -> None:
        """Learn from what became of a packet of this server's applications."""
        self.keep_up()
        for action in actions:
            if isinstance(action, Send) and action.frame.data.endswith(packet):
                header = action.frame.data[: -len(packet)]
                push = Push(action.port, self._mac(Step(action.port, action.peer)), header)
                self.table.install_flow(flow_key(packet), push)
                return

    def received(self, port: int, frame: Frame, actions: list[Action]) -> None:
        """Learn from what became of a frame that came in by a port."""
        self.keep_up()
        try:
            key = relay_key(frame, port, by_flow=self.router.by_flow)
        except WireError:
            return
        if key is None:
            return
        for action in actions:
            found = self._repeatable(frame, action)
            if found is not None:
                self.table.install_relay(key, found)
                return

    def keep_up(self) -> None:
        """Take back what does not hold any more."""
        generations = self.router.generation, self.router.own_generation
        if generations != self._generations:
            only_own = self.router.generation == self._generations[0]
            self._generations = generations
            self.table.flush(relays=not only_own)
        changed = self.router.changed_flows
        while changed:
            self.table.forget(changed.pop())

    def tell_used(self, now: float) -> list[Action]:
        """Tell the router which flows live although it does not see their packets."""
        found: list[tuple[FlowKey, Used]] = []
        if now >= self._count_flows_s:
            found += self.table.flows_used().items()
            self._count_flows_s = now + COUNTING_S * len(found)
        if self.router.by_flow and now >= self._count_relays_s:
            relays = self.table.relays_used()
            found += [(key.flow, used) for key, used in relays.items() if isinstance(key, ByFlow)]
            self._count_relays_s = now + COUNTING_S * len(relays)
        return [
            action for flow, used in found for action in self.router.used(flow, used.bytes, now)
        ]

    def _repeatable(self, frame: Frame, action: Action) -> Repeated | None:
        """Return the action as it is repeated, None if it is not about the frame's packet."""
        if isinstance(action, Delivered):
            return Deliver() if frame.data.endswith(action.packet) else None
        if not isinstance(action, Send) or action.peer == EVERYONE:
            return None
        mac = self._mac(Step(action.port, action.peer))
        if frame.ethertype == ETH_DCN:
            return _dcn_relay(frame.data, action, mac)
        if action.frame.ethertype == ETH_DCN:
            return None
        if frame.data[9] == IP_IN_IP and len(action.frame.data) < len(frame.data):
            return Unwrap(action.port, mac)
        same = action.frame.data[12:] == frame.data[12:]
        return Relay(action.port, mac) if same else None


def _dcn_relay(data: bytes, send: Send, mac: bytes) -> Relay | None:
    """Return how a DCN or BCube frame was sent on, None if something else was sent."""
    if send.frame.ethertype != ETH_DCN or send.frame.data[1] != data[1]:
        return None
    if data[0] >> 4 == BCUBE_VERSION:
        return Relay(send.port, mac) if send.frame.data[12:20] == data[12:20] else None
    before, payload = DcnHeader.parse(data)
    after, sent = DcnHeader.parse(send.frame.data)
    if sent != payload or after.source != before.source:
        return None
    rerouted = before.retry - after.retry
    if rerouted not in (0, 1):
        return None
    proxy: Proxy | int = Proxy.KEEP
    if after.proxy != before.proxy:
        proxy = Proxy.CLEAR if after.proxy is None else after.proxy
    return Relay(send.port, mac, proxy, bool(rerouted))


def relay_key(frame: Frame, port: int, *, by_flow: bool) -> RelayKey | None:
    """Return by which part of its header a frame of an application is looked up, None if it is not.

    It may also raise WireError.
    """
    data = frame.data
    if frame.ethertype == ETH_DCN:
        if data[1:2] != bytes([Protocol.IPV4]):
            return None
        if data[0] >> 4 == BCUBE_VERSION:
            header, _ = BCubeHeader.parse(data)
            if header.next_hop == len(header.path):
                return ByEnd(header.destination)
            return ByHop(header.path[header.next_hop].nha)
        plain, _ = DcnHeader.parse(data)
        return ByDcn(plain.destination, plain.proxy, port)
    outer, inside = Ipv4Header.parse(data)
    if outer.protocol == IP_IN_IP:
        inner, _ = Ipv4Header.parse(inside)
        return ByTunnel(outer.source, outer.destination, inner.source, inner.destination)
    if by_flow:
        return ByFlow(flow_key(data), port)
    return ByDestination(outer.destination, port)
