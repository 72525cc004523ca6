"""The contract of a router: what one server of a network does with packets.

A router is sans-I/O. It is told what happens (a packet from its own applications, a frame from a
port, a cable that came or went, the time) and answers with actions: send this frame out of that
port to that peer, deliver this packet, or drop with a reason. It never reads a clock, sleeps,
opens a socket or draws from a global random source, so the same object runs in a unit test, over
a network in memory with virtual time, and on a live server.

The base class does what all routers share: heart-beats and the state of links, timers, counters,
and one place where whatever is malformed is dropped and counted. What is left for a network's own
router are the four methods under "for a router to say". `HopByHop` reduces them to one, for
routing that needs nothing but the destination (see docs/writing-a-router.md).
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar

from hosts.base.actions import EVERYONE, Action, Deliver, Drop, Send
from hosts.base.agenda import Agenda
from hosts.base.allowance import Allowance
from hosts.base.bandwidth import Bandwidth
from hosts.base.neighbours import Neighbours
from hosts.base.path import Step
from hosts.base.ports import arrival_port
from hosts.base.timers import Timers, timers_for
from hosts.wire.dcn import DcnHeader, Protocol
from hosts.wire.frame import ETH_DCN, Frame
from hosts.wire.icmp import time_exceeded, unreachable
from hosts.wire.ipv4 import FlowKey, Ipv4Header, decrement_ttl, flow_key
from hosts.wire.layout import WireError
from hosts.wire.messages import HeartBeat
from hosts.wire.relayed import RelayKey
from topos.base.topology import Topology

GIGABIT_BPS = 1e9
IPV4_VERSION, IPV4_BYTES = 4, 20  # at least
MOST_REMEMBERED = 4096  # addresses whose server was computed
MOST_NEWS = 256  # of links that went down or up
MOST_CHANGED = 1024  # flows whose answers a data plane has not taken back yet
# Upper bound for ICMP errors about packets whose hops are used up (RFC 1812, 4.3.2.8).
EXPIRED_PER_S, EXPIRED_BURST = 20.0, 64
# Upper bound for packets that a relay sends back to their sources, and for the size of each: with
# another IP header it fits into a frame. Larger packets belong to flows that have begun.
RETURNED_PER_S, RETURNED_BURST, RETURNED_BYTES = 500.0, 512, 1480


class Router:
    """One server's routing: see the module's text."""

    # False where a server has no neighbours to watch: behind switches that do the routing.
    watches_neighbours: ClassVar[bool] = True
    # Whether a relay's answer to a plain IP packet depends on its flow, or on its destination only.
    by_flow: ClassVar[bool] = False
    # Whether an answer holds until its ground is gone, whatever happens to other links.
    answers_outlive_links: ClassVar[bool] = False
    # Whether it must see every packet that opens a TCP connection, and not only the first.
    sees_connections: ClassVar[bool] = False

    def __init__(
        self,
        topology: Topology,
        server: int,
        *,
        timers: Timers | None = None,
        seed: int = 0,
        rate_bps: float = GIGABIT_BPS,
        now: float = 0.0,
    ) -> None:
        self.topology: Any = topology  # a subclass knows which network it is for
        self.server = server
        self.uid: int = topology.uid(server)
        self.timers = timers or timers_for(topology)
        self.random = random.Random((seed << 32) + server)
        self.neighbours = Neighbours(
            topology, server, self.timers, now, watched=self.watches_neighbours
        )
        self.bandwidth = Bandwidth(topology.ports, rate_bps)
        self.agenda = Agenda()
        self.counters: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()  # by reason
        self.news: deque[tuple[float, Step, bool]] = deque(maxlen=MOST_NEWS)  # when, which, up
        # A data plane may repeat an answer by itself as long as this number stays the same; one
        # about a packet of this server's own only while the second does, too.
        self.generation = self.own_generation = 0
        # Of these flows it may not; it clears this when it has taken their answers back.
        self.changed_flows: set[FlowKey] = set()
        # What answers followed from that is another now. Where a router names nothing else (see
        # actions.py), that is a hop, and its link is down.
        self.gone: set[Hashable] = set()
        self._paced = False  # whether a data plane sends the heart-beats
        self._informed = False  # whether it tells who is heard and who is silent
        self._servers: dict[int, int | None] = {}  # by IPv4 address, as asked before
        self._identification = self.random.getrandbits(32)
        self._errors = Allowance(EXPIRED_PER_S, EXPIRED_BURST, now)
        self._returns = Allowance(RETURNED_PER_S, RETURNED_BURST, now)
        if self.watches_neighbours:
            # At a random moment of the first interval: servers that start together must not beat
            # together.
            first = now + self.random.random() * self.timers.heart_beat_s
            self.agenda.set("heart-beat", first, self._beat)
            self.agenda.set("neighbours", self.neighbours.next_timeout, self._watch)

    # -- for a data plane to call ----------------------------------------------------------------

    def send(self, packet: bytes, now: float) -> list[Action]:
        """Take an IPv4 packet from this server's own applications."""
        try:
            actions = self._sent(packet, now)
        except WireError as error:
            actions = [Drop(error.reason, packet)]
        return self._counted(actions)

    def receive(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Take a frame that came in by a port, from the neighbour with that MAC address."""
        try:
            actions = self._received(port, peer, frame, now)
        except WireError as error:
            actions = [Drop(error.reason, frame.data)]
        return self._counted(actions)

    def carrier(self, port: int, up: bool, now: float) -> list[Action]:
        """Take the news that a port's cable is live, or is not any more."""
        changed = self.neighbours.set_carrier(port, up, now)
        if up and self.watches_neighbours:
            self.agenda.set("heart-beat", now, self._beat)
        return self._counted(self._links_changed(changed, now))

    def resize(self, topology: Topology, now: float) -> list[Action]:
        """Take the news that the network has become larger or smaller (see `Topology.resized`).

        Servers that join are told first, so that all others can use them at once.
        """
        self.topology = topology
        self.neighbours.resize(topology, now)
        self._servers.clear()
        if self.watches_neighbours:  # the next one of a data plane, whose ports change, can be late
            self.agenda.set("heart-beat", now, self._beat)
        actions = self.resized(now)
        self.answers_change()
        return self._counted(actions)

    def poll(self, now: float) -> list[Action]:
        """Do what is due by now."""
        return self._counted([action for deed in self.agenda.due(now) for action in deed(now)])

    @property
    def next_poll(self) -> float:
        """When `poll` is to be called next."""
        return self.agenda.next_at

    # -- for one that keeps time better ----------------------------------------------------------

    def leave_heart_beats_to_others(self) -> None:
        """Send none but those that cannot wait: `heart_beats` are sent at each interval for it."""
        self._paced = True
        self.agenda.cancel("heart-beat")

    def leave_silence_to_others(self) -> None:
        """Notice no silence: it will be told by `silence`, and of heart-beats only what is news."""
        self._informed = True
        self.neighbours.leave_silence_to_others()
        self.agenda.cancel("neighbours")

    def heart_beats(self) -> list[Send]:
        """Return what is sent at each interval; it changes with `neighbours.revision`."""
        said = ((port, self.neighbours.heart_beat(port)) for port in range(self.topology.ports))
        return [
            self.message(Step(port, EVERYONE), Protocol.HEART_BEAT, message.pack(), self.uid)
            for port, message in said
            if message and self.watches_neighbours
        ]

    def heard(self, step: Step, hears_me: bool, now: float) -> list[Action]:
        """Take the news that a neighbour is heard, and whether it hears this server."""
        return self._counted(self._heard_of(step, hears_me, now))

    def silence(self, step: Step, now: float) -> list[Action]:
        """Take the news that a neighbour was not heard for a timeout."""
        changed = self.neighbours.silence(step, now)
        return self._counted(self._links_changed([changed], now) if changed else [])

    def down(self) -> list[tuple[int, Step]]:
        """Return the links that are down, as far as is known: the server at one end, and the step.

        A router that learns of others' links adds those.
        """
        own = self.neighbours
        steps = (Step(port, peer) for port, peers in enumerate(own.peers) for peer in peers)
        return [(self.server, step) for step in steps if not own.works(step)]

    def down_by_name(self) -> list[dict[str, Any]]:
        """Return the same with names for servers."""
        address = self.topology.address
        return [
            {"server": address(server), "port": step.port, "peer": address(step.peer)}
            for server, step in self.down()
        ]

    def state(self) -> dict[str, Any]:
        """Return what a user may want to see, as plain data."""
        address = self.topology.address
        return {
            "server": address(self.server),
            "links": [
                {"port": port, "peer": address(peer), "up": self.neighbours.works(Step(port, peer))}
                for port, peers in enumerate(self.neighbours.peers)
                for peer in peers
            ],
            "down": self.down_by_name(),
            "news": [
                {"at_s": at_s, "port": step.port, "peer": address(step.peer), "up": up}
                for at_s, step, up in self.news
            ],
            "counters": dict(self.counters),
            "drops": dict(self.drops),
        }

    # -- for a router to say ---------------------------------------------------------------------

    @classmethod
    def header_bytes(cls) -> int:
        """Return what it puts, at most, between the Ethernet header and an application's packet."""
        return 0

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Answer for a packet of this server's own to another server."""
        raise NotImplementedError

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Answer for a frame that is no heart-beat."""
        raise NotImplementedError

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Answer for a link of this server that went up or down."""
        return []

    def resized(self, now: float) -> list[Action]:
        """Answer to another size of the network: what was made from the topology is made anew."""
        return []

    def external(self, packet: bytes, flow: FlowKey, now: float) -> list[Action]:
        """Answer for a packet to an address that is no server's: its sender is told so by ICMP."""
        answer = unreachable(packet)
        dropped = Drop("destination is no server of this network", packet)
        return [dropped, Deliver(answer)] if answer else [dropped]

    def foreseen(self) -> list[Action]:
        """Return answers to packets that have not come yet, for a data plane to repeat.

        Their frames are empty. A data plane asks once, before the first packet.
        """
        return []

    def keep_up(self) -> None:
        """Find out which answers do not hold any more, where that was put off."""

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Answer to the news that a data plane has sent that much of a flow by itself."""
        return []

    # -- for a router to use ---------------------------------------------------------------------

    def cable_cut(self, peer: int, port: int, now: float) -> list[Action]:
        """Take in a neighbour's word that its own cable, from that port, is cut."""
        if port >= self.topology.ports or self.server not in self.topology.peers(peer, port):
            return [Drop("news of no neighbour's cable")]
        mine = arrival_port(self.topology, peer, Step(port, self.server))
        changed = self.neighbours.lose(Step(mine, peer), now)
        return self._links_changed([changed], now) if changed else []

    def expired(self, packet: bytes, now: float) -> list[Action]:
        """Drop a packet that has used up its hops here, and tell its sender by ICMP."""
        dropped = Drop("TTL expired", packet)
        answer = time_exceeded(packet, self.topology.ipv4(self.server))
        if answer is None or not self._errors.take(now):
            return [dropped]
        return [dropped, *self._sent(answer, now)]

    def may_return(self, packet: bytes, now: float) -> bool:
        """Tell whether a packet whose next hop is down may go back to its source, and count it.

        A source that is told of a failed link uses another path for the packets that follow. The
        packet that met the link comes back to be sent again: so a failure that is known to the
        servers beside it costs no packet.
        """
        if len(packet) > RETURNED_BYTES or not self._returns.take(now):
            return False
        self.counters["packets returned"] += 1
        return True

    def send_again(self, packet: bytes, now: float) -> list[Action]:
        """Send a packet of this server's own that a relay has returned.

        Its TTL goes down by one each time, so that it cannot come back for ever.
        """
        header, _ = Ipv4Header.parse(packet)
        if header.ttl <= 1:
            return [Drop("TTL expired", packet)]
        self.counters["packets sent again"] += 1
        return self._sent(decrement_ttl(packet), now)

    def identify(self) -> int:
        """Return the next packet's identification."""
        self._identification = (self._identification + 1) & 0xFFFFFFFF
        return self._identification

    def answers_change(self) -> None:
        """Tell the data plane that answers given before may not hold any more."""
        self.generation += 1

    def link_states_change(self) -> None:
        """Take note that other servers' links are not as they were."""
        self.answers_change()

    def own_answers_change(self) -> None:
        """Tell it that those may not that were given for packets of this server's own."""
        self.own_generation += 1

    def flow_answers_change(self, flow: FlowKey) -> None:
        """Tell it that those may not that were given for packets of a flow, own or relayed."""
        self.changed_flows.add(flow)
        if len(self.changed_flows) > MOST_CHANGED:
            self.changed_flows.clear()
            self.answers_change()

    def message(self, step: Step, protocol: Protocol, body: bytes, destination: int) -> Send:
        """Return a control message of one hop or more, under a DCN header."""
        header = DcnHeader(self.uid, destination, protocol, self.identify())
        return Send(step.port, step.peer, Frame(ETH_DCN, header.pack(body)))

    def delivered(self, packet: bytes, key: RelayKey | None = None) -> list[Action]:
        """Return the packet for this server's applications, if it is one."""
        if len(packet) < IPV4_BYTES or packet[0] >> 4 != IPV4_VERSION:
            return [Drop("payload is no IP packet", packet)]
        return [Deliver(packet, key)]

    def server_of(self, ipv4: int) -> int | None:
        """Return the server with that IPv4 address, None if it is no server's."""
        if ipv4 not in self._servers:
            if len(self._servers) >= MOST_REMEMBERED:
                self._servers.clear()
            server: int = self.topology.server_of_ipv4(ipv4)
            known = 0 <= server < self.topology.servers and self.topology.ipv4(server) == ipv4
            self._servers[ipv4] = server if known else None
        return self._servers[ipv4]

    # -- what is the same for all ----------------------------------------------------------------

    def _sent(self, packet: bytes, now: float) -> list[Action]:
        flow = flow_key(packet)
        destination = self.server_of(flow.destination)
        self.counters["sent"] += 1
        if destination is None:
            return self.external(packet, flow, now)
        if destination == self.server:
            return [Deliver(packet)]
        return self.outgoing(packet, flow, destination, now)

    def _received(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        if frame.ethertype == ETH_DCN and frame.data[1:2] == _HEART_BEAT:
            header, body = DcnHeader.parse(frame.data)
            return self._heard(port, header, HeartBeat.parse(body), now)
        return self.incoming(port, peer, frame, now)

    def _heard(self, port: int, header: DcnHeader, message: HeartBeat, now: float) -> list[Action]:
        if not self.watches_neighbours:
            return []
        if self._informed:  # what is right of them is not seen here: see `heard`
            return [Drop("heart-beat of no neighbour")]
        step = Step(port, self.topology.server_of_uid(header.source))
        return self._heard_of(step, self.uid in message.heard, now)

    def _heard_of(self, step: Step, hears_me: bool, now: float) -> list[Action]:
        revision = self.neighbours.revision
        changed = self.neighbours.hear(step, hears_me, now)
        if revision != self.neighbours.revision or (changed and self.neighbours.works(changed)):
            # So that the other end learns at once that it is heard.
            self.agenda.set("heart-beat", now, self._beat)
        return self._links_changed([changed], now) if changed else []

    def _beat(self, now: float) -> list[Action]:
        if not self._paced:
            self.agenda.set("heart-beat", now + self.timers.heart_beat_s, self._beat)
        return [*self.heart_beats()]

    def _watch(self, now: float) -> list[Action]:
        actions = self._links_changed(self.neighbours.time_out(now), now)
        # With no neighbour heard there is nothing to time out: heart-beats go on and will tell.
        again = min(self.neighbours.next_timeout, now + self.timers.neighbour_timeout_s)
        self.agenda.set("neighbours", again, self._watch)
        return actions

    def _links_changed(self, steps: Iterable[Step], now: float) -> list[Action]:
        actions: list[Action] = []
        for step in steps:
            up = self.neighbours.works(step)
            if not self.answers_outlive_links:
                self.answers_change()
            elif not up:
                self.gone.add(step)
            self.counters["link up" if up else "link down"] += 1
            self.news.append((now, step, up))
            actions += self.link_changed(step, up, now)
        return actions

    def _counted(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(action, Drop):
                self.drops[action.reason] += 1
            else:
                self.counters["delivered" if isinstance(action, Deliver) else "frames out"] += 1
        return actions


_HEART_BEAT = bytes([Protocol.HEART_BEAT])
