"""DFR as a router: its headers, link states, forwarding cache and unreachable destinations.

IP packets travel under a DCN header, which carries what DFR must know of them (Guo 2008, sections
7.1 and 7.2; the decision itself is `hosts.dcell.dfr`). Kept are

- the link states of the own DCell_b (`hosts.base.flood`);
- a forwarding table: the decisions made before, by all that they depend on. When a link changes,
  they are made anew (the paper forgets them, section 7.2), and those that are other ones now are
  taken back from the data plane; a large table is forgotten;
- at a source, the destinations that others found unreachable. For a while nothing is sent there;
  a change of a link in the own DCell_b ends that early, for there may be a way now;
- at a server that drops, whom it told so. It sends a source one message per destination and while,
  and never one about a message.

All these tables are bounded. Nothing is queued or retransmitted: that is for the applications.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from hosts.base.actions import Action, Drop, Pushed, Relayed, Send
from hosts.base.bounded import Bounded
from hosts.base.flood import Flooding
from hosts.base.linkstate import LinkStates
from hosts.base.path import Step
from hosts.base.router import Router
from hosts.dcell.broadcast import Broadcasts
from hosts.dcell.dfr import (
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
from hosts.dcell.rules import Inside
from hosts.wire.dcn import PLAIN, DcnHeader, Protocol, broadcast, is_multicast
from hosts.wire.frame import ETH_DCN, Frame
from hosts.wire.ipv4 import BROADCASTS, FlowKey
from hosts.wire.messages import Unreachable, Unreached

CACHED = 8192  # decisions
DECIDED_ANEW = 512  # of them, when a link changes; that takes some ten milliseconds
REMEMBERED = 4096  # destinations that cannot be reached, and sources that were told so

# What a decision depends on: destination and proxy by their uids, and the port above level b by
# which the packet entered the DCell_b.
Ground: TypeAlias = tuple[int, int | None, int | None]

NO_SERVER = "destination is no server of this network"
# What the source is told; any other reason means that there is no path.
TOLD = {
    RETRIES_SPENT: Unreached.RETRY_EXHAUSTED,
    TTL_EXPIRED: Unreached.TTL_EXPIRED,
    NO_SERVER: Unreached.NO_SERVER,
}


class Dfr(Router):
    """DCell's fault-tolerant routing.

    Parameters
    ----------
    b : int
        The level of the DCell_b whose links every server knows; at most k counts.
    retry : int
        How often a packet may be rerouted, and once more; at most 15.
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
        self.view = Known(self.b, self.flooding.states)
        self.broadcasts = Broadcasts(self)
        self.cache: Bounded[Ground, Choice] = Bounded(CACHED)
        self._is_outdated = False  # the cache
        hold_s = self.timers.unreachable_hold_s
        self.unreachable: Bounded[int, None] = Bounded(REMEMBERED, hold_s)
        self.notified: Bounded[tuple[int, int], None] = Bounded(REMEMBERED, hold_s)

    # -- what a router says ----------------------------------------------------------------------

    @classmethod
    def header_bytes(cls) -> int:
        """Return the size of a DCN header; one with a proxy has 4 bytes more."""
        return PLAIN.size

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send the packet on its way, unless its destination was found unreachable."""
        self.keep_up()
        self.unreachable.expire(now)
        if destination in self.unreachable:
            return [Drop("destination unreachable", packet)]
        return self._sent_to(self.topology.uid(destination), Protocol.IPV4, packet, now, flow)

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Take in what is for this server, send all else on."""
        if frame.ethertype != ETH_DCN:
            return [Drop("unknown protocol", frame.data)]
        header, body = DcnHeader.parse(frame.data)
        if header.protocol == Protocol.LINK_STATE:
            return self.flooding.heard(port, peer, header, body, now)
        if is_multicast(header.destination):
            return self.broadcasts.heard(port, header, body, now)
        if header.destination == self.uid:
            return self._arrived(port, header, body, now)
        if header.ttl <= 1:
            return self._lost(TTL_EXPIRED, header, body, now)
        return self._forwarded(header._replace(ttl=header.ttl - 1), body, port, now)

    def external(self, packet: bytes, flow: FlowKey, now: float) -> list[Action]:
        """Send IP broadcasts to every server."""
        if flow.destination in BROADCASTS:
            return self.broadcasts.send(packet, self.topology.k, now)
        return super().external(packet, flow, now)

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Tell the own DCell_b."""
        return self.flooding.changed(now)

    def resized(self, now: float) -> list[Action]:
        """See who has joined the own DCell_b, or left it."""
        self.flooding.resize(members(self.topology, self.b, self.server), now)
        return []

    def answers_change(self) -> None:
        """Forget what follows from the links."""
        super().answers_change()
        self.cache.clear()
        self.unreachable.clear()

    def link_states_change(self) -> None:
        """Put off what is to be done about it until something depends on it."""
        self._is_outdated = True

    def keep_up(self) -> None:
        """Decide anew what follows from the links; several changes at once are one."""
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
        """Add what the others say."""
        return list(dict.fromkeys([*super().down(), *self.flooding.states.down()]))

    def state(self) -> dict[str, Any]:
        """Add link states, and how much the tables hold."""
        address = self.topology.address
        return {
            **super().state(),
            "link states": self.flooding.state(),
            "forwarding cache": len(self.cache),
            "unreachable": [address(server) for server in self.unreachable],
        }

    # -- packets ---------------------------------------------------------------------------------

    def _sent_to(
        self,
        uid: int,
        protocol: Protocol,
        body: bytes,
        now: float,
        flow: FlowKey | None = None,
    ) -> list[Action]:
        header = DcnHeader(self.uid, uid, protocol, self.identify(), self.retry, TTL)
        return self._forwarded(header, body, None, now, flow)

    def _forwarded(
        self,
        header: DcnHeader,
        body: bytes,
        came_by: int | None,
        now: float,
        flow: FlowKey | None = None,
    ) -> list[Action]:
        self.keep_up()
        # Of a link inside the DCell_b it does not matter whether the packet came by it.
        entered_by = came_by if came_by is not None and came_by > self.b else None
        ground = header.destination, header.proxy, entered_by
        choice = self.cache.use(ground, now)
        if choice is None:
            choice = self._choice(*ground)
            self.cache.put(ground, choice, now)
        if isinstance(choice, Lost):
            return self._lost(choice.reason, header, body, now)
        retry = header.retry - choice.rerouted
        if retry < 1:
            return self._lost(RETRIES_SPENT, header, body, now)
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
        """Decide afresh; servers are their uids."""
        target = self._server(destination)
        if target is None:
            return Lost(NO_SERVER)
        over = None if proxy is None else self._server(proxy)
        if over is None and proxy is not None:
            return Lost("proxy is no server of this network")
        heading = Heading(target, over, entered_by)
        return choose(self.topology, self.b, self.server, heading, self.view)

    def _server(self, uid: int) -> int | None:
        server: int = self.topology.server_of_uid(uid)
        return server if 0 <= server < self.topology.servers else None

    def _arrived(self, port: int, header: DcnHeader, body: bytes, now: float) -> list[Action]:
        if header.protocol == Protocol.IPV4:
            return self.delivered(body, header.relay_key(port))
        if header.protocol != Protocol.UNREACHABLE:
            return [Drop("unknown protocol", body)]
        destination = self._server(Unreachable.parse(body).destination)
        if destination is not None and destination not in self.unreachable:
            self.own_answers_change()
            self.unreachable.put(destination, None, now)
        return []

    def _lost(self, reason: str, header: DcnHeader, body: bytes, now: float) -> list[Action]:
        """Drop a packet, and tell its source (section 4.3.3)."""
        self.notified.expire(now)
        whom = header.source, header.destination
        dropped: list[Action] = [Drop(reason, body)]
        if header.protocol != Protocol.IPV4 or header.source == self.uid or whom in self.notified:
            return dropped
        self.notified.put(whom, None, now)
        message = Unreachable(header.destination, TOLD.get(reason, Unreached.NO_PATH)).pack()
        return dropped + self._sent_to(header.source, Protocol.UNREACHABLE, message, now)


class Known:
    """The view of a live server: what its link states say."""

    def __init__(self, b: int, states: LinkStates) -> None:
        self.b, self.states = b, states

    def __getitem__(self, link: tuple[int, int]) -> bool:
        """Tell whether a server's link of a level works, of the servers of this DCell_b."""
        uid, level = link
        dcell = self.states.topology
        server = dcell.server_of_uid(uid)
        if server not in self.states:
            return False
        peer = dcell.server_plug(server, level).node
        return self.states.works(server, Step(level, peer))

    @property
    def inside(self) -> Inside:
        """The ways to the other servers of this DCell_b in reach."""
        return inside(self.states.topology, self.b, self.states.next_steps)
