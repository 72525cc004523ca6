"""A whole network in memory: routers connected by perfect cables, in virtual time.

Frames cross a hop in `hop_delay_s`, pass the devices (loss, delay, corruption: see
frame_devices.py) and are lost at failed nodes and links. Only the devices and the routers' seeded
sources are random: the same calls give the same run.

Packets made by `send_udp` carry a number, and the network records the trip of each: its hops, and
its arrival time or the reason for its loss. Every packet ends in one of these two ways.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count, pairwise

from pillarbox.hosts.base.actions import EVERYONE, Action, Deliver, Drop, Send
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.path import Path, Step, switches_between
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.memory.frame_devices import Device, FrameHop, pass_devices
from pillarbox.hosts.wire.marks import serial_of, udp_packet
from pillarbox.topos.base.addressing import NO_PORTS, EndPorts
from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.base.topology import Topology

HOP_DELAY_S = 20e-6
OBSERVE_S = 0.05  # interval at which routers get their ports' byte counters, in seconds
ETHERNET_BYTES = 14
FAILED = "lost where something has failed"

MakeRouter = Callable[[Topology, int], Router]


@dataclass
class Trip:
    """The recorded path of one packet through a network in memory."""

    source: int
    destination: int
    sent_s: float
    # Hops of the packet: (server, egress port and next server).
    steps: list[tuple[int, Step]] = field(default_factory=list)
    arrived_s: list[float] = field(default_factory=list)
    lost: str = ""  # reason why the packet was dropped, "" if it was not

    @property
    def path(self) -> Path:
        """Path that the packet took until it was delivered or lost."""
        return Path(self.source, tuple(step for _, step in self.steps))


class MemoryNetwork:
    """Simulated network in memory: runs the routers of a topology's servers in virtual time."""

    def __init__(
        self,
        topology: Topology,
        make_router: MakeRouter,
        devices: Iterable[Device] = (),
        hop_delay_s: float = HOP_DELAY_S,
    ) -> None:
        self.topology = topology
        self.make_router = make_router
        self.devices = tuple(devices)
        self.hop_delay_s = hop_delay_s
        self.now = 0.0
        self.routers = [make_router(topology, server) for server in range(topology.servers)]
        self.failures = Failures()
        self.trips: list[Trip] = []
        self.losses: Counter[str] = Counter()  # frames lost between servers, by reason
        # Simulated background load in bit/s (received, sent), by (server, port).
        self.load_bps: dict[tuple[int, int], tuple[float, float]] = {}
        # Byte counters of received and of sent frames, by (server, port).
        self._received: dict[tuple[int, int], float] = defaultdict(float)
        self._sent: dict[tuple[int, int], float] = defaultdict(float)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._polls = [math.inf] * topology.servers
        # Cables that lose frames in one direction, as (from, to) nodes.
        self._one_way: set[tuple[int, int]] = set()
        self._loss_reasons: dict[tuple[int, Step], str] = {}
        self._cache_topology(topology)
        for server in range(topology.servers):
            self._schedule_poll(server)
        self.at(0.0, self._report_byte_counters)

    def _cache_topology(self, topology: Topology) -> None:
        """Cache servers' ports and peers, which the topology would recompute for every frame."""
        self._peers = cache(topology.peers)
        self._arrival_port = cache(partial(arrival_port, topology))
        self._cabled = [
            (server, port)
            for server in range(topology.servers)
            for port in range(topology.ports)
            if topology.server_plug(server, port).node != NOTHING
        ]

    def resize(self, topology: Topology) -> None:
        """Add or remove servers of the running network; no switch may have failed."""
        before, self.topology = self.topology.servers, topology
        self._cache_topology(topology)
        self._loss_reasons.clear()
        self._polls = [*self._polls, *[math.inf] * topology.servers][: topology.servers]
        for server in range(before, topology.servers):
            self.routers.append(self.make_router(topology, server))
            self._schedule_poll(server)
        del self.routers[topology.servers :]
        for server in range(min(before, topology.servers)):
            self._execute_actions(server, self.routers[server].resize(topology, self.now))

    # -- time ------------------------------------------------------------------------------------

    def at(self, when: float, function: Callable[[], None]) -> None:
        """Schedule the call of a function at a virtual time in seconds."""
        heapq.heappush(self._events, (when, next(self._order), function))

    def run(self, seconds: float) -> None:
        """Run the simulated network for `seconds` of virtual time."""
        self.run_until(self.now + seconds)

    def run_until(self, end: float, done: Callable[[], bool] | None = None) -> bool:
        """Run until virtual time `end`, or until `done()` is true; return True in that case."""
        while self._events and self._events[0][0] <= end:
            when, _, deed = heapq.heappop(self._events)
            self.now = max(self.now, when)
            deed()
            if done and done():
                return True
        self.now = end
        return bool(done and done())

    # -- packets ---------------------------------------------------------------------------------

    def send_udp(
        self,
        source: int,
        destination: int,
        *,
        source_port: int = 4000,
        size: int = 0,
        ports: EndPorts = NO_PORTS,
    ) -> Trip:
        """Send a UDP packet from a server's application; return its trip, filled in later."""
        serial = len(self.trips)
        trip = Trip(source, destination, self.now)
        self.trips.append(trip)
        packet = udp_packet(
            *(self.topology, source, destination),
            serial=serial,
            source_port=source_port,
            size=size,
            ports=ports,
        )
        self.send(source, packet)
        return trip

    def send(self, source: int, packet: bytes) -> None:
        """Send an IPv4 packet from a server's application."""
        if source in self.failures.nodes:
            self._record_loss(packet, "source server is dead")
        else:
            self._execute_actions(source, self.routers[source].send(packet, self.now))

    def stream(
        self, source: int, destination: int, every_s: float, seconds: float, *, source_port: int
    ) -> list[Trip]:
        """Send a UDP packet per interval from now on; return the list to which trips are added."""
        trips: list[Trip] = []

        def send() -> None:
            trips.append(self.send_udp(source, destination, source_port=source_port))

        for i in range(round(seconds / every_s)):
            self.at(self.now + i * every_s, send)
        return trips

    # -- faults ----------------------------------------------------------------------------------

    def fail(self, more: Failures) -> None:
        """Let nodes and links fail without changing the carrier of any port."""
        self.failures = self.failures.union(more)
        self._loss_reasons.clear()

    def known_failures(self) -> Failures:
        """Return the failures that routing may find: links that fail in one direction as well."""
        return self.failures.union(Failures(links=frozenset(map(frozenset, self._one_way))))

    def cut(self, a: int, b: int, *, silent: bool = False) -> None:
        """Cut the cable between two nodes, or the link between two servers over a switch.

        The ports at the cable's ends lose their carrier, unless the cut is silent.
        """
        self.fail(Failures(links=frozenset([frozenset((a, b))])))
        if not silent:
            self._notify_carrier(a, b, up=False)

    def cut_one_way(self, a: int, b: int) -> None:
        """Lose all frames from node `a` to node `b` over their cable; ports keep their carrier."""
        self._one_way.add((a, b))
        self._loss_reasons.clear()

    def heal(self, a: int, b: int) -> None:
        """Repair a cable or link that was cut, between two nodes."""
        if {(a, b), (b, a)} & self._one_way:
            self._one_way -= {(a, b), (b, a)}
            self._loss_reasons.clear()
            return
        self._remove_failures(Failures(links=frozenset([frozenset((a, b))])))
        self._notify_carrier(a, b, up=True)

    def kill(self, server: int) -> None:
        """Kill a server's router; its ports keep carrier, so neighbours only miss heartbeats."""
        self.fail(Failures(frozenset([server])))

    def revive(self, server: int) -> None:
        """Restart a killed server with a new router, without its former state."""
        self._remove_failures(Failures(frozenset([server])))
        self.routers[server] = self.make_router(self.topology, server)
        self._schedule_poll(server)

    def stop_switch(self, switch: int, *, silent: bool = False) -> None:
        """Stop a switch; the ports of its cables lose their carrier, unless `silent`."""
        node = self.topology.servers + switch
        self.fail(Failures(frozenset([node])))
        if not silent:
            for _, plug in self.topology.neighbours(node):
                self._notify_carrier(node, plug.node, up=False)

    def start_switch(self, switch: int) -> None:
        """Start a stopped switch; the ports of its cables get carrier again."""
        node = self.topology.servers + switch
        self._remove_failures(Failures(frozenset([node])))
        for _, plug in self.topology.neighbours(node):
            self._notify_carrier(node, plug.node, up=True)

    # -- events ------------------------------------------------------------------------------------

    def _remove_failures(self, less: Failures) -> None:
        self.failures = Failures(self.failures.nodes - less.nodes, self.failures.links - less.links)
        self._loss_reasons.clear()

    def _notify_carrier(self, a: int, b: int, *, up: bool) -> None:
        for node, far in ((a, b), (b, a)):
            if node >= self.topology.servers or node in self.failures.nodes:
                continue
            for port, plug in self.topology.neighbours(node):
                if plug.node == far:
                    self._execute_actions(node, self.routers[node].carrier(port, up, self.now))

    def _schedule_poll(self, server: int) -> None:
        when = max(self.now, self.routers[server].next_poll)
        if when < self._polls[server]:
            self._polls[server] = when
            self.at(when, lambda: self._poll_router(server, when))

    def _poll_router(self, server: int, when: float) -> None:
        if server >= len(self.routers) or self._polls[server] != when:
            return  # the server was removed, or its router was polled earlier
        self._polls[server] = math.inf
        if server not in self.failures.nodes:
            self._execute_actions(server, self.routers[server].poll(self.now))

    def _execute_actions(self, server: int, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._transmit_frame(server, action)
            elif isinstance(action, Deliver):
                trip = self._trip_of_packet(action.packet)
                if trip:
                    trip.arrived_s.append(self.now)
                    if server != trip.destination:
                        raise RuntimeError(f"{trip} was delivered to server {server}")
            elif isinstance(action, Drop):
                trip = self._trip_of_packet(action.packet)
                if trip:
                    trip.lost = action.reason
        self._schedule_poll(server)

    def _transmit_frame(self, server: int, send: Send) -> None:
        peers = self._peers(server, send.port) if send.peer == EVERYONE else [send.peer]
        data = send.frame.data
        self._sent[server, send.port] += ETHERNET_BYTES + len(data)
        trip = self._trip_of_packet(data)
        for peer in peers:
            step = Step(send.port, peer)
            if trip:
                trip.steps.append((server, step))
            reason = self._loss_reason(server, step)
            if reason:
                self._record_loss(data, reason)
                continue
            hop = FrameHop(server, send.port, peer, send.frame)
            if not self.devices:
                self._schedule_arrival(hop, self.hop_delay_s)
                continue
            copies = list(pass_devices(self.devices, hop, self.now))
            if not copies:
                self._record_loss(data, "lost by a device")
            for delay, frame in copies:
                self._schedule_arrival(hop._replace(frame=frame), delay + self.hop_delay_s)

    def _schedule_arrival(self, hop: FrameHop, delay: float) -> None:
        self.at(self.now + delay, lambda: self._receive_frame(hop))

    def _receive_frame(self, hop: FrameHop) -> None:
        if hop.peer in self.failures.nodes or hop.peer >= len(self.routers):
            self._record_loss(hop.frame.data, FAILED)
            return
        port = self._arrival_port(hop.server, hop.step)
        self._received[hop.peer, port] += ETHERNET_BYTES + len(hop.frame.data)
        actions = self.routers[hop.peer].receive(port, hop.server, hop.frame, self.now)
        self._execute_actions(hop.peer, actions)

    def _loss_reason(self, server: int, step: Step) -> str:
        """Return the loss reason to count if a frame is lost on a hop, "" if the hop works."""
        key = server, step
        if key not in self._loss_reasons:
            broken = self.failures.of_hop(self.topology, server, step) is not None
            reason = FAILED if broken or self._loses_one_way(server, step) else ""
            if step.peer not in self._peers(server, step.port):
                reason = "no such neighbour on that port"
            self._loss_reasons[key] = reason
        return self._loss_reasons[key]

    def _loses_one_way(self, server: int, step: Step) -> bool:
        """Return True if a hop crosses a cable in the direction in which it loses frames."""
        if not self._one_way or step.peer not in self._peers(server, step.port):
            return False
        nodes = [server, *switches_between(self.topology, server, step), step.peer]
        return not self._one_way.isdisjoint(pairwise(nodes))

    def _record_loss(self, data: bytes, reason: str) -> None:
        self.losses[reason] += 1
        trip = self._trip_of_packet(data)
        if trip:
            trip.lost = reason

    def _trip_of_packet(self, data: bytes) -> Trip | None:
        serial = serial_of(data)
        return self.trips[serial] if serial is not None and serial < len(self.trips) else None

    def _report_byte_counters(self) -> None:
        """Pass the byte counters of all ports to the routers, including the load of `load_bps`."""
        self.at(self.now + OBSERVE_S, self._report_byte_counters)
        for plug in self._cabled:
            if plug in self.load_bps:
                in_bps, out_bps = self.load_bps[plug]
                self._received[plug] += in_bps * OBSERVE_S / 8
                self._sent[plug] += out_bps * OBSERVE_S / 8
            server, port = plug
            received, sent = int(self._received[plug]), int(self._sent[plug])
            self.routers[server].bandwidth.observe(port, received, sent, self.now)
