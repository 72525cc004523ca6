"""The Router contract: packet processing on one server of a network.

A router is sans-I/O. Its inputs are events (a packet from a local application, a frame from a port,
a carrier change, the time), its outputs are actions: send a frame out of a port to a peer, deliver
a packet, or drop it with a reason. A router never reads a clock, sleeps, opens a socket or uses a
global random source, so the same object runs in a unit test, over a network in memory with virtual
time, and on a live server.

The base class implements the common parts: heartbeats and link states, timers, counters, and the
place where all malformed packets are dropped and counted. A network's router implements the methods
under "methods that a network's router overrides". `HopByHop` reduces them to one method, for
routing by destination only (see docs/writing-a-router.md).
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar

from pillarbox.hosts.base.actions import EVERYONE, Action, Deliver, Drop, Send
from pillarbox.hosts.base.agenda import Agenda
from pillarbox.hosts.base.allowance import Allowance
from pillarbox.hosts.base.bandwidth import Bandwidth
from pillarbox.hosts.base.neighbours import Neighbours
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.pinning import Pinning
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.timers import Timers, timers_for
from pillarbox.hosts.base.unreached import UnreachedPairs
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.header_layout import WireError
from pillarbox.hosts.wire.icmp import time_exceeded, unreachable
from pillarbox.hosts.wire.ipv4 import FlowKey, Ipv4Header, decrement_ttl, flow_key
from pillarbox.hosts.wire.messages import Heartbeat
from pillarbox.hosts.wire.relay_keys import RelayKey
from pillarbox.hosts.wire.source_route import VERSION as SOURCE_ROUTE_VERSION
from pillarbox.topos.base.topology import Topology

GIGABIT_BPS = 1e9
IPV4_VERSION, IPV4_BYTES = 4, 20  # IPv4 version field; minimum IPv4 header size in bytes
MOST_REMEMBERED = 4096  # capacity of the cache from IPv4 addresses to servers
MOST_NEWS = 256  # maximum number of link changes kept in the log `news`
MOST_CHANGED = 1024  # maximum number of flows whose cached actions are to be invalidated one by one
# Rate limit of ICMP time-exceeded errors (RFC 1812, 4.3.2.8): errors per second, burst.
EXPIRED_PER_S, EXPIRED_BURST = 20.0, 64
# Limits of packets that a relay returns to their sources: rate per second, burst, size in bytes.
# A returned packet must fit into one frame with another IP header.
# Larger packets are not returned: their flows are already running.
RETURNED_PER_S, RETURNED_BURST, RETURNED_BYTES = 500.0, 512, 1480


class Router:
    """Base class of a server's router: it turns packets, frames and timers into actions."""

    # False if servers send no heartbeats, since the switches do the routing.
    watches_neighbours: ClassVar[bool] = True
    # True if relays forward plain IP packets by flow, False if by destination only.
    by_flow: ClassVar[bool] = False
    # True if link changes invalidate only cached actions whose `ground` is in `gone`, not all.
    answers_outlive_links: ClassVar[bool] = False
    # True if the router must see every TCP SYN packet, not only the first packet of a flow.
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
        self.topology: Any = topology  # type Any, since a subclass knows the class of its network
        self.server = server
        self.uid: int = topology.uid(server)
        self.timers = timers or timers_for(topology)
        self.random = random.Random((seed << 32) + server)
        self.neighbours = Neighbours(
            topology, server, self.timers, now, watched=self.watches_neighbours
        )
        equal = not topology.factors.rates
        ports = () if equal else range(topology.ports)
        factors = [topology.rate_of_port(server, port) for port in ports]
        self.bandwidth = Bandwidth(topology.ports, rate_bps, factors)
        self.agenda = Agenda()
        self.counters: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()  # dropped packets by reason
        # Latest changes of this server's links: time, link, and True if the link went up.
        self.news: deque[tuple[float, Step, bool]] = deque(maxlen=MOST_NEWS)
        # The data plane may repeat a cached action only while `generation` stays the same.
        # Cached actions for packets from this server also require an unchanged `own_generation`.
        self.generation = self.own_generation = 0
        # Flows whose cached actions are invalid: the data plane deletes them and clears this set.
        self.changed_flows: set[FlowKey] = set()
        # Changed states: the data plane deletes cached actions that name one of them as `ground`.
        # An action's default ground is its hop (see actions.py), added when the link goes down.
        self.gone: set[Hashable] = set()
        self._beats_offloaded = False  # True if a data plane sends the heartbeats
        self._timeouts_offloaded = False  # True if a data plane detects heard and silent neighbours
        self.pins: Pinning | None = None  # None without port addresses
        self._servers: dict[int, int | None] = {}  # cache of the server with each IPv4 address
        self._identification = self.random.getrandbits(32)
        self._unreached = UnreachedPairs()
        self._error_limit = Allowance(EXPIRED_PER_S, EXPIRED_BURST, now)
        self._return_limit = Allowance(RETURNED_PER_S, RETURNED_BURST, now)
        if self.watches_neighbours:
            # Random first delay: servers that start together send heartbeats at different times.
            first = now + self.random.random() * self.timers.heartbeat_s
            self.agenda.set("heartbeat", first, self._send_heartbeats)
            self.agenda.set("neighbours", self.neighbours.next_timeout, self._check_timeouts)

    # -- methods that a data plane calls ---------------------------------------------------------

    def use_port_addresses(self) -> None:
        """Route packets of port addresses on pinned paths; called before the first packet."""
        self.pins = Pinning(self)
        self._servers.clear()

    def send(self, packet: bytes, now: float) -> list[Action]:
        """Process an IPv4 packet from a local application."""
        try:
            actions = self._route_packet(packet, now)
        except WireError as error:
            actions = [Drop(error.reason, packet)]
        return self._counted(actions, now)

    def receive(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Process a frame that a port received from the neighbour `peer`."""
        try:
            actions = self._process_frame(port, peer, frame, now)
        except WireError as error:
            actions = [Drop(error.reason, frame.data)]
        return self._counted(actions, now)

    def carrier(self, port: int, up: bool, now: float) -> list[Action]:
        """Process a change of a port's carrier."""
        changed = self.neighbours.set_carrier(port, up, now)
        if up and self.watches_neighbours:
            self.agenda.set("heartbeat", now, self._send_heartbeats)
        return self._counted(self._links_changed(changed, now), now)

    def resize(self, topology: Topology, now: float) -> list[Action]:
        """Process a change of the network's size (see `Topology.resized`).

        Joining servers are notified first, so that the others can use them immediately.
        """
        self.topology = topology
        self.neighbours.resize(topology, now)
        self._servers.clear()
        if self.pins:
            self.pins.resize(topology)
        if self.watches_neighbours:  # reports of the data plane may be late while its ports change
            self.agenda.set("heartbeat", now, self._send_heartbeats)
        actions = self.resized(now)
        self.answers_change()
        return self._counted(actions, now)

    def poll(self, now: float) -> list[Action]:
        """Run the router's timers that have expired by `now`."""
        return self._counted(
            [action for callback in self.agenda.due(now) for action in callback(now)], now
        )

    @property
    def next_poll(self) -> float:
        """Time at which the router's next timer expires, for the next call of `poll`."""
        return self.agenda.next_at

    # -- offloading heartbeats to a data plane --------------------------------------------------

    def leave_heartbeats_to_others(self) -> None:
        """Let the data plane send periodic heartbeats, `heartbeats` at each interval."""
        self._beats_offloaded = True
        self.agenda.cancel("heartbeat")

    def leave_silence_to_others(self) -> None:
        """Leave neighbour timeouts to the data plane, which calls `heard` and `silence`."""
        self._timeouts_offloaded = True
        self.neighbours.leave_silence_to_others()
        self.agenda.cancel("neighbours")

    def heartbeats(self) -> list[Send]:
        """Return the heartbeats of all ports; they change with `neighbours.revision`."""
        beats = ((port, self.neighbours.heartbeat(port)) for port in range(self.topology.ports))
        return [
            self.message(Step(port, EVERYONE), Protocol.HEARTBEAT, message.pack(), self.uid)
            for port, message in beats
            if message and self.watches_neighbours
        ]

    def heard(self, step: Step, hears_me: bool, now: float) -> list[Action]:
        """Process the data plane's report that a neighbour's heartbeats arrive."""
        return self._counted(self._update_neighbour(step, hears_me, now), now)

    def silence(self, step: Step, now: float) -> list[Action]:
        """Process the data plane's report that a neighbour sent no heartbeat for the timeout."""
        changed = self.neighbours.silence(step, now)
        return self._counted(self._links_changed([changed], now) if changed else [], now)

    def down(self) -> list[tuple[int, Step]]:
        """Return the links known to be down, as (server, its hop: egress port and next server).

        Routers with link states add the links of other servers.
        """
        own = self.neighbours
        steps = (Step(port, peer) for port, peers in enumerate(own.peers) for peer in peers)
        return [(self.server, step) for step in steps if not own.works(step)]

    def down_by_name(self) -> list[dict[str, Any]]:
        """Return the links known to be down, with addresses in place of server numbers."""
        address = self.topology.address
        return [
            {"server": address(server), "port": step.port, "peer": address(step.peer)}
            for server, step in self.down()
        ]

    def state(self) -> dict[str, Any]:
        """Return the router's state for display to users, as plain data."""
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

    # -- methods that a network's router overrides -----------------------------------------------

    @classmethod
    def header_bytes(cls) -> int:
        """Return the maximum size in bytes of headers between Ethernet and IP."""
        return 0

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Return the actions for a packet from this server to another server."""
        raise NotImplementedError

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Return the actions for a received frame other than a heartbeat."""
        raise NotImplementedError

    def rerouted(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Return the actions for another server's packet whose pinned path is down here."""
        return self.outgoing(packet, flow, destination, now)

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Return the router's actions after a link of this server went up or down."""
        return []

    def resized(self, now: float) -> list[Action]:
        """Return the actions after a resize; recompute all state derived from the topology."""
        return []

    def external(self, packet: bytes, flow: FlowKey, now: float) -> list[Action]:
        """Return the actions for a packet to an unknown address: ICMP destination unreachable."""
        answer = unreachable(packet)
        dropped = Drop("destination is no server of this network", packet)
        return [dropped, Deliver(answer)] if answer else [dropped]

    def foreseen(self) -> list[Action]:
        """Return actions for future packets, which the data plane installs in advance.

        A data plane calls this method once, before the first packet.
        """
        return []

    def keep_up(self) -> None:
        """Update `gone` and `changed_flows` (invalid cached actions), if an update was deferred."""

    def used(self, flow: FlowKey, sent_bytes: int, now: float) -> list[Action]:
        """Process the data plane's report of bytes that it sent for a flow without the router."""
        return []

    # -- helper methods for a network's router ---------------------------------------------------

    def cable_cut(self, peer: int, port: int, now: float) -> list[Action]:
        """Process a neighbour's message that the cable of its own port is cut."""
        if port >= self.topology.ports or self.server not in self.topology.peers(peer, port):
            return [Drop("news of no neighbour's cable")]
        mine = arrival_port(self.topology, peer, Step(port, self.server))
        changed = self.neighbours.lose(Step(mine, peer), now)
        return self._links_changed([changed], now) if changed else []

    def expired(self, packet: bytes, now: float) -> list[Action]:
        """Drop a packet with expired TTL and send ICMP time exceeded to its source."""
        dropped = Drop("TTL expired", packet)
        answer = time_exceeded(packet, self.topology.ipv4(self.server))
        if answer is None or not self._error_limit.take(now):
            return [dropped]
        return [dropped, *self._route_packet(answer, now)]

    def may_return(self, packet: bytes, now: float) -> bool:
        """Return True if the rate and size limits allow to return a packet without a working hop.

        The packet is counted as returned to its source.

        A source that learns of a failed link uses another path for later packets. The packet that
        met the failed link is returned to be sent again, so a failure that the adjacent servers
        have detected causes no packet loss.
        """
        if len(packet) > RETURNED_BYTES or not self._return_limit.take(now):
            return False
        self.counters["packets returned"] += 1
        return True

    def send_again(self, packet: bytes, now: float) -> list[Action]:
        """Send a packet from this server again after a relay has returned it.

        The TTL is decremented each time, so that the number of returns is bounded.
        """
        header, _ = Ipv4Header.parse(packet)
        if header.ttl <= 1:
            return [Drop("TTL expired", packet)]
        self.counters["packets sent again"] += 1
        return self._route_packet(decrement_ttl(packet), now)

    def identify(self) -> int:
        """Return the identification field of this server's next packet."""
        self._identification = (self._identification + 1) & 0xFFFFFFFF
        return self._identification

    def answers_change(self) -> None:
        """Invalidate all actions of this router that the data plane has cached."""
        self.generation += 1

    def link_states_change(self) -> None:
        """Invalidate a data plane's cached actions after a change of other servers' links."""
        self.answers_change()

    def own_answers_change(self) -> None:
        """Invalidate a data plane's cached actions for packets from this server."""
        self.own_generation += 1

    def flow_answers_change(self, flow: FlowKey) -> None:
        """Invalidate a data plane's cached actions for packets of one flow, local or relayed."""
        self.changed_flows.add(flow)
        if len(self.changed_flows) > MOST_CHANGED:
            self.changed_flows.clear()
            self.answers_change()

    def message(self, step: Step, protocol: Protocol, body: bytes, destination: int) -> Send:
        """Return the action that sends a control message under a DCN header."""
        header = DcnHeader(self.uid, destination, protocol, self.identify())
        return Send(step.port, step.peer, Frame(ETH_DCN, header.pack(body)))

    def delivered(self, packet: bytes, key: RelayKey | None = None) -> list[Action]:
        """Return the action that delivers an IP packet, or drops a payload that is no IP packet."""
        if len(packet) < IPV4_BYTES or packet[0] >> 4 != IPV4_VERSION:
            return [Drop("payload is no IP packet", packet)]
        return [Deliver(packet, key)]

    def server_of(self, ipv4: int) -> int | None:
        """Return the server with this IPv4 address, None for other addresses."""
        if ipv4 not in self._servers:
            if len(self._servers) >= MOST_REMEMBERED:
                self._servers.clear()
            server: int = self.topology.server_of_ipv4(ipv4)
            known = 0 <= server < self.topology.servers and self.topology.ipv4(server) == ipv4
            of_port = self.pins.server_of(ipv4) if self.pins else None
            self._servers[ipv4] = server if known else of_port
        return self._servers[ipv4]

    # -- implementation common to all routers ----------------------------------------------------

    def _route_packet(self, packet: bytes, now: float) -> list[Action]:
        """Route a packet from this server by its destination address."""
        flow = flow_key(packet)
        destination = self.server_of(flow.destination)
        self.counters["sent"] += 1
        if destination is None:
            return self.external(packet, flow, now)
        if destination == self.server:
            return [Deliver(packet)]
        pinned = self.pins.outgoing(packet, flow, destination) if self.pins else []
        return pinned or self.outgoing(packet, flow, destination, now)

    def _process_frame(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Process a received frame: a heartbeat directly, any other frame by `incoming`."""
        if is_heartbeat(frame):
            header, body = DcnHeader.parse(frame.data)
            return self._receive_heartbeat(port, header, Heartbeat.parse(body), now)
        is_dcn = frame.ethertype == ETH_DCN and frame.data
        if self.pins and is_dcn and frame.data[0] >> 4 == SOURCE_ROUTE_VERSION:
            return self.pins.incoming(frame.data, now)
        return self.incoming(port, peer, frame, now)

    def _receive_heartbeat(
        self, port: int, header: DcnHeader, message: Heartbeat, now: float
    ) -> list[Action]:
        """Process a heartbeat received from a neighbour."""
        if not self.watches_neighbours:
            return []
        if self._timeouts_offloaded:  # the data plane handles valid heartbeats and calls `heard`
            return [Drop("heartbeat of no neighbour")]
        step = Step(port, self.topology.server_of_uid(header.source))
        return self._update_neighbour(step, self.uid in message.heard, now)

    def _update_neighbour(self, step: Step, hears_me: bool, now: float) -> list[Action]:
        """Update the link's state after a neighbour's heartbeat."""
        revision = self.neighbours.revision
        changed = self.neighbours.hear(step, hears_me, now)
        if revision != self.neighbours.revision or (changed and self.neighbours.works(changed)):
            # Send a heartbeat now: it tells the neighbour that its own heartbeats arrive.
            self.agenda.set("heartbeat", now, self._send_heartbeats)
        return self._links_changed([changed], now) if changed else []

    def _send_heartbeats(self, now: float) -> list[Action]:
        """Send heartbeats out of all ports and set the timer for the next interval."""
        if not self._beats_offloaded:
            self.agenda.set("heartbeat", now + self.timers.heartbeat_s, self._send_heartbeats)
        return [*self.heartbeats()]

    def _check_timeouts(self, now: float) -> list[Action]:
        """Mark links to silent neighbours as down; set the timer for the next timeout check."""
        actions = self._links_changed(self.neighbours.time_out(now), now)
        # If no neighbour is heard, no timeout is pending: check again after one timeout.
        again = min(self.neighbours.next_timeout, now + self.timers.neighbour_timeout_s)
        self.agenda.set("neighbours", again, self._check_timeouts)
        return actions

    def _links_changed(self, steps: Iterable[Step], now: float) -> list[Action]:
        """Log this server's link changes, invalidate cached actions, and call `link_changed`."""
        actions: list[Action] = []
        for step in steps:
            up = self.neighbours.works(step)
            if not self.answers_outlive_links:
                self.answers_change()
            elif not up:
                self.gone.add(step)
            if up:
                self._unreached.clear()
                if self.pins:  # flows return to their pinned paths
                    self.own_answers_change()
            self.counters["link up" if up else "link down"] += 1
            self.news.append((now, step, up))
            actions += self.link_changed(step, up, now)
        return actions

    def _counted(self, actions: list[Action], now: float) -> list[Action]:
        """Count packets sent, delivered and dropped by actions; return the actions.

        The senders of packets that find no path for some time get an ICMP error in addition.
        """
        told: list[Action] = []
        for action in actions:
            if isinstance(action, Drop):
                self.drops[action.reason] += 1
                if action.unreached and action.packet:
                    told += self._tell_sender(action.packet, now)
            else:
                self.counters["delivered" if isinstance(action, Deliver) else "frames out"] += 1
        return actions + self._counted(told, now) if told else actions

    def _tell_sender(self, packet: bytes, now: float) -> list[Action]:
        """Return an ICMP error to a packet's sender, if no path has been known for some time."""
        try:
            header, _ = Ipv4Header.parse(packet)
        except WireError:  # a relay drops the packets of others, whatever they contain
            return []
        if not self._unreached.lasts((header.source, header.destination), now):
            return []
        is_own = self.server_of(header.source) == self.server
        answer = unreachable(packet, None if is_own else self.topology.ipv4(self.server))
        if answer is None or not self._error_limit.take(now):
            return []
        self.counters["senders told of an unreachable destination"] += 1
        return [Deliver(answer)] if is_own else self._route_packet(answer, now)


def is_heartbeat(frame: Frame) -> bool:
    """Return True if a frame is a heartbeat of a neighbour."""
    return frame.ethertype == ETH_DCN and frame.data[1:2] == _HEARTBEAT


_HEARTBEAT = bytes([Protocol.HEARTBEAT])
