"""DFR as a router: its headers, link states, forwarding cache and unreachable destinations.

IP packets travel under a DCN header, which carries DFR's fields (Guo 2008, sections 7.1 and 7.2;
the routing decision is in `pillarbox.hosts.dcell.dfr`). A server keeps these tables, all of bounded
size:

- the link states of its own DCell_b (`pillarbox.hosts.base.flood`);
- a forwarding cache of earlier decisions, keyed by everything a decision depends on. When a link
  changes, the decisions are computed again (the paper clears the cache, section 7.2) and those that
  differ are withdrawn from the data plane; a large cache is cleared;
- at a source, the destinations reported unreachable. Packets to them are dropped until the entry
  expires, or until a link of the own DCell_b changes, since a path may exist then;
- at a server that drops packets, the sources it has notified. A source gets one message per
  destination and hold time, and a lost message is never reported by another message.

Packets are neither queued nor retransmitted: that is left to the applications.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from pillarbox.hosts.base.actions import Action, Drop, Pushed, Relayed, Send
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.flood import Flooding
from pillarbox.hosts.base.linkstate import LinkStates
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.dcell.broadcast import DCellBroadcasts
from pillarbox.hosts.dcell.dfr import (
    LEVEL_B,
    RETRIES_SPENT,
    RETRY,
    TTL,
    TTL_EXPIRED,
    Choice,
    Heading,
    Lost,
    choose,
    inside,
    members,
    upper_first,
)
from pillarbox.hosts.dcell.rules import InnerRoutes
from pillarbox.hosts.wire.dcn import PLAIN, DcnHeader, Protocol, broadcast, is_multicast
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.ipv4 import BROADCASTS, FlowKey
from pillarbox.hosts.wire.messages import Unreachable, Unreached

CACHED = 8192  # capacity of the forwarding cache (next hops)
# Upper bound for cached next hops that are computed again after a link change, which takes about
# 10 ms; a larger cache is cleared.
DECIDED_ANEW = 512
REMEMBERED = 4096  # capacity of the tables of unreachable destinations and notified sources

# Key of a cached next hop: the uids of destination and proxy, and the port above level b by which
# the packet entered the DCell_b.
Ground: TypeAlias = tuple[int, int | None, int | None]

NO_SERVER = "destination is no server of this network"
# Code of the UNREACHABLE message for each drop reason; any other reason means NO_PATH.
TOLD = {
    RETRIES_SPENT: Unreached.RETRY_EXHAUSTED,
    TTL_EXPIRED: Unreached.TTL_EXPIRED,
    NO_SERVER: Unreached.NO_SERVER,
}


class Dfr(Router):
    """Router of DCell's fault-tolerant routing (DFR).

    Parameters
    ----------
    b : int
        Level of the DCell_b whose link states every server knows; limited to k.
    retry : int
        Retry count of a new packet: the packet may be rerouted `retry` - 1 times. At most 15.
    """

    answers_outlive_links: ClassVar[bool] = True

    def __init__(
        self,
        *network: Any,
        b: int = LEVEL_B,
        retry: int = RETRY,
        now: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(*network, now=now, **options)
        self.b = min(b, self.topology.k)
        self.retry = retry
        own = members(self.topology, self.b, self.server)
        ports = range(self.b + 1)
        self.flooding = Flooding(self, own, ports, broadcast(self.b), now, upper_first)
        self.view = LiveView(self.b, self.flooding.states)
        self.broadcasts = DCellBroadcasts(self)
        self.cache: Bounded[Ground, Choice] = Bounded(CACHED)
        self._is_outdated = False  # True if a link changed after the cached next hops were computed
        hold_s = self.timers.unreachable_hold_s
        self.unreachable: Bounded[int, None] = Bounded(REMEMBERED, hold_s)
        self.notified: Bounded[tuple[int, int], None] = Bounded(REMEMBERED, hold_s)

    # -- the Router interface ---------------------------------------------------------------------

    @classmethod
    def header_bytes(cls) -> int:
        """Return the size of a DCN header without a proxy, in bytes; a proxy adds 4 bytes."""
        return PLAIN.size

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send a packet to its next hop, unless its destination is known to be unreachable."""
        self.keep_up()
        self.unreachable.expire(now)
        if destination in self.unreachable:
            return [Drop("destination unreachable", packet, unreached=True)]
        return self._send_packet(self.topology.uid(destination), Protocol.IPV4, packet, now, flow)

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Handle a received frame: deliver its packet, process its message, or forward it."""
        if frame.ethertype != ETH_DCN:
            return [Drop("unknown protocol", frame.data)]
        header, body = DcnHeader.parse(frame.data)
        if header.protocol == Protocol.LINK_STATE:
            return self.flooding.heard(port, peer, header, body, now)
        if is_multicast(header.destination):
            return self.broadcasts.heard(port, header, body, now)
        if header.destination == self.uid:
            return self._process_arrival(port, header, body, now)
        if header.ttl <= 1:
            return self._report_loss(TTL_EXPIRED, header, body, now)
        return self._forward(header._replace(ttl=header.ttl - 1), body, port, now)

    def external(self, packet: bytes, flow: FlowKey, now: float) -> list[Action]:
        """Send an IP broadcast packet to all servers of the DCell."""
        if flow.destination in BROADCASTS:
            return self.broadcasts.send(packet, self.topology.k, now)
        return super().external(packet, flow, now)

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Flood this server's new link state in its DCell_b after a link change."""
        return self.flooding.changed(now)

    def resized(self, now: float) -> list[Action]:
        """Update the members of this server's DCell_b after servers were added or removed."""
        self.flooding.resize(members(self.topology, self.b, self.server), now)
        return []

    def answers_change(self) -> None:
        """Clear the forwarding cache and the unreachable destinations."""
        super().answers_change()
        self.cache.clear()
        self.unreachable.clear()

    def link_states_change(self) -> None:
        """Mark the forwarding cache as outdated; `keep_up` updates it before the next packet."""
        self._is_outdated = True

    def keep_up(self) -> None:
        """Update an outdated forwarding cache, once for all link changes since the last update."""
        if not self._is_outdated:
            return
        self._is_outdated = False
        if len(self.cache) > DECIDED_ANEW:
            self.answers_change()
            return
        self.unreachable.clear()
        for ground, choice in self.cache.items():
            if self._choice(*ground) != choice:
                self.cache.pop(ground)
                self.gone.add(ground)

    def down(self) -> list[tuple[int, Step]]:
        """Return this server's own down links and those in the link states of other servers."""
        return list(dict.fromkeys([*super().down(), *self.flooding.states.down()]))

    def state(self) -> dict[str, Any]:
        """Return the router's state with link states and table sizes."""
        address = self.topology.address
        return {
            **super().state(),
            "link states": self.flooding.state(),
            "forwarding cache": len(self.cache),
            "unreachable": [address(server) for server in self.unreachable],
        }

    # -- packets and messages ---------------------------------------------------------------------

    def _send_packet(
        self,
        uid: int,
        protocol: Protocol,
        body: bytes,
        now: float,
        flow: FlowKey | None = None,
    ) -> list[Action]:
        header = DcnHeader(self.uid, uid, protocol, self.identify(), self.retry, TTL)
        return self._forward(header, body, None, now, flow)

    def _forward(
        self,
        header: DcnHeader,
        body: bytes,
        came_by: int | None,
        now: float,
        flow: FlowKey | None = None,
    ) -> list[Action]:
        self.keep_up()
        # An ingress port inside the DCell_b (level b or below) does not influence the next hop.
        entered_by = came_by if came_by is not None and came_by > self.b else None
        ground = header.destination, header.proxy, entered_by
        choice = self.cache.use(ground, now)
        if choice is None:
            choice = self._choice(*ground)
            self.cache.put(ground, choice, now)
        if isinstance(choice, Lost):
            return self._report_loss(choice.reason, header, body, now)
        retry = header.retry - choice.rerouted
        if retry < 1:
            return self._report_loss(RETRIES_SPENT, header, body, now)
        proxy = None if choice.proxy is None else self.topology.uid(choice.proxy)
        if choice.rerouted:
            self.counters["rerouted"] += 1
        onward = header._replace(retry=retry, proxy=proxy)
        data = onward.pack(body)
        repeat: Pushed | Relayed | None = None
        if flow is not None:
            repeat = Pushed(flow, data[: -len(body)], ground)
        elif came_by is not None and header.protocol == Protocol.IPV4:
            repeat = Relayed(header.relay_key(came_by), header.change(onward), ground)
        return [Send(choice.step.port, choice.step.peer, Frame(ETH_DCN, data), repeat)]

    def _choice(self, destination: int, proxy: int | None, entered_by: int | None) -> Choice:
        """Compute a packet's next hop by DFR, without the forwarding cache; servers are uids."""
        target = self._server_of_uid(destination)
        if target is None:
            return Lost(NO_SERVER)
        proxy_server = None if proxy is None else self._server_of_uid(proxy)
        if proxy_server is None and proxy is not None:
            return Lost("proxy is no server of this network")
        heading = Heading(target, proxy_server, entered_by)
        return choose(self.topology, self.b, self.server, heading, self.view)

    def _server_of_uid(self, uid: int) -> int | None:
        server: int = self.topology.server_of_uid(uid)
        return server if 0 <= server < self.topology.servers else None

    def _process_arrival(
        self, port: int, header: DcnHeader, body: bytes, now: float
    ) -> list[Action]:
        if header.protocol == Protocol.IPV4:
            return self.delivered(body, header.relay_key(port))
        if header.protocol != Protocol.UNREACHABLE:
            return [Drop("unknown protocol", body)]
        destination = self._server_of_uid(Unreachable.parse(body).destination)
        if destination is not None and destination not in self.unreachable:
            self.own_answers_change()
            self.unreachable.put(destination, None, now)
        return []

    def _report_loss(self, reason: str, header: DcnHeader, body: bytes, now: float) -> list[Action]:
        """Drop a packet and send its source an UNREACHABLE message (section 4.3.3)."""
        self.notified.expire(now)
        ends = header.source, header.destination
        is_own = header.protocol == Protocol.IPV4 and header.source == self.uid
        dropped: list[Action] = [Drop(reason, body, unreached=is_own)]
        if header.protocol != Protocol.IPV4 or header.source == self.uid or ends in self.notified:
            return dropped
        self.notified.put(ends, None, now)
        message = Unreachable(header.destination, TOLD.get(reason, Unreached.NO_PATH)).pack()
        return dropped + self._send_packet(header.source, Protocol.UNREACHABLE, message, now)


class LiveView:
    """A live server's knowledge of its DCell_b (`View`): the link states that it has received."""

    def __init__(self, b: int, states: LinkStates) -> None:
        self.b, self.states = b, states

    def __getitem__(self, link: tuple[int, int]) -> bool:
        """Return True if a link of a server in this DCell_b works; `link` is (uid, level)."""
        uid, level = link
        dcell = self.states.topology
        server = dcell.server_of_uid(uid)
        if server not in self.states:
            return False
        peer = dcell.server_plug(server, level).node
        return self.states.works(server, Step(level, peer))

    @property
    def inside(self) -> InnerRoutes:
        """The shortest paths to the reachable servers of this DCell_b."""
        return inside(self.states.topology, self.b, self.states.next_steps)
