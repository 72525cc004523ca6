"""Forwarding in tunnels (Liao 2012, section 4.4, Algorithm 3), shared by all DPillarMP routers.

A packet follows the path s -> s' ... d' -> d in an outer IPv4 header (IP in IP, hosts/wire/ipv4):

     s                  s'       ...        d'                  d
     | s'->d' [s->d ..] | s'->d' [s->d ..]  |      [s->d ..]    |

The outer header names the proxy source s', the proxy destination d' and the direction. A relay
computes the next hop from d', the direction and d alone, so one decision in a data plane serves all
sources (`ByTunnel`), and decrements the outer TTL. The outer TTL starts as the packet's own,
usually 64, so that traceroute shows the relays; a path has at most 2k + 1 <= 63 hops. The proxy
destination removes the outer header and sends the packet to the destination. If the path is
shortened because it passes the destination before d' (see `mp_tunnels`), the packet arrives in its
tunnel: Algorithm 3, line 1.

Control messages are IPv4 packets whose protocol is the message's number
(pillarbox.hosts.wire.dcn.Protocol):

- A probe goes from s to d in the same tunnel, forwarded by the same code, as the data packets of
  the path it tests. It stays in the tunnel up to d, which learns from it by which path it came:
  with other pairings (`pairing_tunnels`), several paths have the same last hop. Every relay on the
  path limits the probe's available bandwidth to that of the port by which it arrived and of the
  port by which it leaves.
- The probe response, and the path-failure message of a relay whose next hop is down (sent for
  probes and all other packets), return to s over the links by which the probe or packet came. So a
  path answers if and only if all of its links work, and a response cannot be lost to a failure
  elsewhere. These messages use the tunnel of the forward path, up to s; a relay computes the
  previous hop by following Algorithm 3 from s (`step_back`): at most 2k + 1 steps of arithmetic per
  control message, without stored state.

In the paper a source learns of a failed link with its next packet; here a relay notifies sources
immediately: when a link goes down, the relay sends path failures to the sources whose packets it
recently sent over the link. A server that detects that its cable to a switch is cut notifies the
other servers on that switch (CABLE_CUT, by its other port, as a packet in a tunnel): their own
cables are up, so they would only detect missing heartbeats.

A relay whose next hop is down also returns the packet itself (RETURNED), after the path failure:
the source has left the failed path when the packet arrives, and sends the packet again.

State: the next hops of the last PASSING tunnels of pairs of servers; and the links that relays have
reported to this server as failed, at most FAILED_LINKS, for `failed_link_timeout_s`. A subclass
chooses the tunnel of a packet (`tunnel_for`) and handles probe responses and failures. Every server
relays packets and answers probes of all subclasses.

Invariants: a plain packet goes no further than the server it is addressed to; a control message
that cannot be forwarded is dropped without a message; a packet that returns to its source is
dropped. (A data plane does not check the source. A packet with a forged source is relayed until
its TTL expires.)

Left out: applications' own IP in IP, which a destination could not distinguish from a tunnel, and
applications' use of the control messages' protocol numbers. Both are dropped, with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from pillarbox.hosts.base.actions import (
    Action,
    Deliver,
    Drop,
    OtherPath,
    Pushed,
    Relayed,
    Send,
    Unwrapped,
)
from pillarbox.hosts.base.bandwidth import Direction
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.dpillar.paths import Proxies, mp_step
from pillarbox.hosts.dpillar.tunnel_choices import Link, links, step_back, tunnels
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_IP, Frame
from pillarbox.hosts.wire.ipv4 import (
    IP_IN_IP,
    LAYOUT,
    FlowKey,
    Ipv4Header,
    Tunnel,
    decapsulate,
    decrement_ttl,
    encapsulate,
    flow_key,
)
from pillarbox.hosts.wire.messages import CableCut, PathFailure, Probe, ProbeResponse
from pillarbox.hosts.wire.relay_keys import ByDestination, ByTunnel
from pillarbox.topos.dpillar import CLOCKWISE

BACKWARD = (Protocol.PROBE_RESPONSE, Protocol.PATH_FAILURE, Protocol.RETURNED)
NEVER_ANSWERED = (*BACKWARD, Protocol.CABLE_CUT)
RESERVED = frozenset([IP_IN_IP, Protocol.PROBE, *NEVER_ANSWERED])
PASSING = 256
FAILED_LINKS = 1024

NO_PATH = "all disjoint paths have failed"
NEXT_HOP_DOWN = "next hop is down"
NO_SERVER = "destination is no server of this network"
OFF_PATH = "not on the path of its tunnel"

_PROTOCOL, _TTL = LAYOUT.byte("protocol"), LAYOUT.byte("ttl")
_IN_TUNNEL = bytes([IP_IN_IP])


class RelayedPair(NamedTuple):
    """A tunnel in which this relay has forwarded packets between a pair of servers."""

    source: int
    destination: int
    proxies: Proxies


class TunnelledPacket(NamedTuple):
    """A parsed DPillarMP packet: outer and inner IP header with addresses of servers."""

    source: int
    destination: int
    proxies: Proxies
    header: Ipv4Header
    packet: bytes


class Tunnelling(Router):
    """Base class of all DPillarMP routers: forwards packets and messages in tunnels."""

    directions: ClassVar[tuple[int, ...]] = (CLOCKWISE,)  # directions of the paths from this server
    # True if reserve paths exist, used only while no other path works
    has_reserves: ClassVar[bool] = False

    def __init__(self, *network: Any, **options: Any) -> None:
        super().__init__(*network, **options)
        self.passing: Bounded[RelayedPair, Step] = Bounded(PASSING)
        self.failed_links: Bounded[Link, None] = Bounded(
            FAILED_LINKS, self.timers.failed_link_timeout_s
        )

    @classmethod
    def header_bytes(cls) -> int:
        """Return the size of a DPillarMP tunnel's outer IP header, in bytes."""
        return LAYOUT.size

    # -- for a subclass to implement --------------------------------------------------------------

    def tunnel_for(
        self, packet: bytes, flow: FlowKey, destination: int, now: float
    ) -> Proxies | None:
        """Return the tunnel (proxies) for a packet from this server, None if no path works."""
        raise NotImplementedError

    def tunnels_for(
        self, packet: bytes, flow: FlowKey, destination: int, now: float
    ) -> list[Proxies]:
        """Return the tunnels of a flow's packets from this packet on, in turn; one if not sprayed.

        The list is empty if no path works.
        """
        chosen = self.tunnel_for(packet, flow, destination, now)
        return [] if chosen is None else [chosen]

    def answered(self, destination: int, answer: ProbeResponse, now: float) -> list[Action]:
        """Handle a probe response from a destination."""
        return [Drop("answer to no probe")]

    def failed(self, destination: int, flow: FlowKey, link: Link, now: float) -> list[Action]:
        """Handle a path-failure message: a packet or probe of a flow has met a failed link."""
        return [Drop("failure of no path in use")]

    def is_own_flow(self, flow: FlowKey) -> bool:
        """Return True if this server has sent packets of a flow recently."""
        return False

    # -- for a subclass to use -------------------------------------------------------------------

    def tunnels_to(self, destination: int) -> dict[Path, Proxies]:
        """Return the paths to a server, shortest first, each with its tunnel."""
        return tunnels(self.topology, self.server, destination, self.directions)

    def first_works(self, proxies: Proxies) -> bool:
        """Return True if the first hop of a tunnel works."""
        return self.neighbours.works(Step(proxies.port, proxies.source))

    def has_failed(self, path: Path) -> bool:
        """Return True if a relay's report on a failed link of a path has not expired."""
        return any(link in self.failed_links for link in links(path))

    def has_just_failed(self, path: Path, now: float) -> bool:
        """Return True if a relay has reported a failed link on a path within the hold time."""
        known, hold_s = self.failed_links, self.timers.unreachable_hold_s
        return any(link in known and known.idle_for(link, now) < hold_s for link in links(path))

    def probe(self, destination: int, proxies: Proxies, round_: int, path: int) -> Action:
        """Return the action that sends a probe for a path in the path's tunnel."""
        available = int(self.bandwidth.available_bps(proxies.port, Direction.OUT))
        body = Probe(round_, path, available).pack()
        self.counters["probes"] += 1
        return self._send_in_tunnel(
            self._control_packet(Protocol.PROBE, destination, body), proxies
        )

    def path_state(self, path: Path) -> dict[str, Any]:
        """Return a path as plain data for display: servers, the ports they send by, direction."""
        direction = "clockwise" if path.steps[0].port == CLOCKWISE else "counter-clockwise"
        servers = [self.topology.address(server) for server in path.servers]
        ports = [step.port for step in path.steps]
        return {"servers": servers, "ports": ports, "direction": direction}

    def flow_state(self, flow: FlowKey, path: Path | None) -> dict[str, Any]:
        """Return a local flow as plain data for display: addresses, ports and path."""
        destination = self.server_of(flow.destination)
        return {
            "server": None if destination is None else self.topology.address(destination),
            "protocol": flow.protocol,
            "ports": [flow.source_port, flow.destination_port],
            "path": None if path is None else self.path_state(path),
        }

    # -- the source ------------------------------------------------------------------------------

    def outgoing(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send an application's packet in the tunnel chosen for it."""
        if flow.protocol in RESERVED:
            return [Drop("protocol is reserved for routing", packet)]
        if self.server_of(flow.source) != self.server:
            return [Drop("source is not this server", packet)]
        return self.rerouted(packet, flow, destination, now)

    def rerouted(self, packet: bytes, flow: FlowKey, destination: int, now: float) -> list[Action]:
        """Send a packet from here in the tunnel chosen for it, also for another source."""
        chosen = self.tunnels_for(packet, flow, destination, now)
        if not chosen:
            return [Drop(NO_PATH, packet, unreached=True)]
        return [self._send_in_tunnel(packet, chosen[0], flow, chosen[1:])]

    def _send_in_tunnel(
        self,
        packet: bytes,
        proxies: Proxies,
        flow: FlowKey | None = None,
        others: Sequence[Proxies] = (),
    ) -> Action:
        """Send a packet in a tunnel, from this server to the proxy source (Algorithm 3, line 3)."""
        step = Step(proxies.port, proxies.source)
        if not self.neighbours.works(step):
            return Drop(NEXT_HOP_DOWN, packet, unreached=True)
        data = self._wrap(packet, proxies)
        pushed = None
        if flow is not None:
            other_paths = (
                OtherPath(one.port, one.source, self._wrap(packet, one)[: -len(packet)])
                for one in others
            )
            pushed = Pushed(flow, data[: -len(packet)], others=tuple(other_paths))
        return self._send_action(step, data, pushed)

    # -- the relays ------------------------------------------------------------------------------

    def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Relay a packet in its tunnel, or process a packet that is addressed to this server."""
        if frame.ethertype != ETH_IP:
            return [Drop("unknown protocol", frame.data)]
        if frame.data[_PROTOCOL : _PROTOCOL + 1] != _IN_TUNNEL:
            return self._process_arrival(port, peer, frame.data, now, None)
        tunnel, outer, packet = decapsulate(frame.data)
        inner, _ = Ipv4Header.parse(packet)
        numbers = (inner.source, inner.destination, tunnel.source, tunnel.destination)
        key = ByTunnel(tunnel.direction, outer.destination, inner.destination)
        servers = [server for ip in numbers if (server := self.server_of(ip)) is not None]
        if len(servers) < len(numbers):
            return [Drop(NO_SERVER, packet)]
        source, destination, near, far = servers
        proxies = Proxies(near, far, tunnel.direction)
        if destination == self.server:
            return self._process_arrival(port, peer, packet, now, key, proxies)
        if source == self.server:
            return [Drop("came back to its source", packet)]
        if outer.ttl <= 1:
            return self._drop_expired(inner, packet, now)
        inside = TunnelledPacket(source, destination, proxies, inner, packet)
        return self._relay(port, outer, inside, key, now)

    def _relay(
        self, port: int, outer: Ipv4Header, inside: TunnelledPacket, key: ByTunnel, now: float
    ) -> list[Action]:
        source, destination, proxies, inner, packet = inside
        backward = inner.protocol in BACKWARD
        if backward:
            step = step_back(self.topology, self.server, destination, source, proxies)
        else:
            step = mp_step(self.topology, self.server, source, destination, proxies)
        if step is None or step.peer not in self.neighbours.peers[step.port]:
            return [Drop(OFF_PATH, packet)]
        if not self.neighbours.works(step):
            return self._report_down_hop(inside, step, now)
        is_data = inner.protocol not in RESERVED
        if inner.protocol == Protocol.PROBE:
            packet = self._limited_probe(packet, port, step.port)
        elif is_data:
            self.passing.put(RelayedPair(source, destination, proxies), step, now)
        stays = backward or inner.protocol == Protocol.PROBE
        if stays or self.server != proxies.destination:
            onward = outer._replace(ttl=outer.ttl - 1).pack(packet)
            return [self._send_action(step, onward, Relayed(key) if is_data else None)]
        # A packet that leaves its tunnel is forwarded, and its TTL decremented (RFC 2003, 3.1).
        if inner.ttl <= 1:
            return self._drop_expired(inner, packet, now)
        return [self._send_action(step, decrement_ttl(packet), Unwrapped(key) if is_data else None)]

    def _drop_expired(self, inner: Ipv4Header, packet: bytes, now: float) -> list[Action]:
        if inner.protocol in RESERVED:  # control messages never cause an ICMP error
            return [Drop("TTL expired", packet)]
        return self.expired(packet, now)

    def _limited_probe(self, packet: bytes, came_by: int, leaves_by: int) -> bytes:
        """Return the probe with its available bandwidth limited to that of this server's ports."""
        header, body = Ipv4Header.parse(packet)
        probe = Probe.parse(body)
        available = min(
            probe.available_bps,
            int(self.bandwidth.available_bps(came_by, Direction.IN)),
            int(self.bandwidth.available_bps(leaves_by, Direction.OUT)),
        )
        return header.pack(probe._replace(available_bps=available).pack())

    def _report_down_hop(self, inside: TunnelledPacket, step: Step, now: float) -> list[Action]:
        """Send a path-failure message to the source of a packet or probe whose next hop is down.

        # Departs from the paper: the relay also returns the packet, and the source sends it again.
        """
        source, _, proxies, inner, packet = inside
        if inner.protocol in NEVER_ANSWERED:
            return [Drop(NEXT_HOP_DOWN, packet)]
        messages = self._path_failure(source, proxies, flow_key(packet), step)
        if inner.protocol == Protocol.PROBE or not messages or not self.may_return(packet, now):
            return [Drop(NEXT_HOP_DOWN, packet), *messages]
        return [*messages, *self._send_back(Protocol.RETURNED, source, packet, proxies)]

    def _path_failure(
        self, source: int, proxies: Proxies, flow: FlowKey, failed: Step
    ) -> list[Action]:
        """Send a flow's source a path-failure message about a failed link (section 4.5.1)."""
        uid, peer = self.uid, self.topology.uid(failed.peer)
        body = PathFailure(failed.port, uid, peer, flow).pack()
        messages = self._send_back(Protocol.PATH_FAILURE, source, body, proxies)
        self.counters["path failures sent"] += len(messages)
        return messages

    def _send_back(
        self, protocol: Protocol, source: int, body: bytes, proxies: Proxies
    ) -> list[Action]:
        """Send a message to a source, over the links by which its packets come to this relay."""
        back = step_back(self.topology, self.server, source, self.server, proxies)
        if back is None or not self.neighbours.works(back):
            return []
        return [
            self._send_action(
                back, self._wrap(self._control_packet(protocol, source, body), proxies)
            )
        ]

    # -- notifications without a packet that meets the failure -------------------------------------

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Notify the sources of relayed flows, and the neighbour, when a link goes down."""
        if up:
            return []
        actions = self._notify_neighbour(step)
        for passed, taken in self.passing.items():
            if taken == step:
                self.passing.pop(passed)
                actions += self._path_failure(
                    passed.source, passed.proxies, self._pair_key(passed), step
                )
        return actions

    def _pair_key(self, passed: RelayedPair) -> FlowKey:
        """Return the flow key, with zero ports, that means all flows between a pair of servers."""
        ipv4 = self.topology.ipv4
        return FlowKey(ipv4(passed.source), ipv4(passed.destination), 0, 0, 0)

    def _notify_neighbour(self, step: Step) -> list[Action]:
        """Notify a neighbour on a switch, by the other port, that this server's cable is cut."""
        if self.neighbours.carrier(step.port):
            return []  # the port has carrier: a silent neighbour, but no cable cut here
        around = tunnels(self.topology, self.server, step.peer, [1 - step.port]).values()
        proxies = next(filter(self.first_works, around), None)
        if proxies is None:
            return []
        packet = self._control_packet(Protocol.CABLE_CUT, step.peer, CableCut(step.port).pack())
        self.counters["cut cables told"] += 1
        return [self._send_in_tunnel(packet, proxies)]

    # -- the destination --------------------------------------------------------------------------

    def _process_arrival(
        self,
        port: int,
        peer: int,
        packet: bytes,
        now: float,
        key: ByTunnel | None,
        proxies: Proxies | None = None,
    ) -> list[Action]:
        header, body = Ipv4Header.parse(packet)
        if self.server_of(header.destination) != self.server:
            return [Drop("not for this server", packet)]
        source = self.server_of(header.source)
        if header.protocol not in RESERVED:
            return [Deliver(packet, key or ByDestination(header.destination, port))]
        if source is None:
            return [Drop(NO_SERVER, packet)]
        if header.protocol == Protocol.PROBE:
            back = Step(port, peer)
            return self._answer_probe(back, source, proxies, Probe.parse(body), packet)
        if header.protocol == Protocol.PROBE_RESPONSE:
            return self.answered(source, ProbeResponse.parse(body), now)
        if header.protocol == Protocol.PATH_FAILURE:
            return self._process_failure(PathFailure.parse(body), packet, now)
        if header.protocol == Protocol.RETURNED:
            return self._resend_returned(body, now)
        if header.protocol == Protocol.CABLE_CUT:
            return self.cable_cut(source, CableCut.parse(body).port, now)
        return [Drop("IP in IP in a tunnel", packet)]

    def _answer_probe(
        self, back: Step, source: int, proxies: Proxies | None, probe: Probe, packet: bytes
    ) -> list[Action]:
        """Send the answer to a received probe back over the links by which the probe came."""
        if proxies is None:
            return [Drop(OFF_PATH, packet)]
        if step_back(self.topology, self.server, source, self.server, proxies) != back:
            return [Drop(OFF_PATH, packet)]
        if not self.neighbours.works(back):
            return [Drop(NEXT_HOP_DOWN, packet)]
        free = int(self.bandwidth.available_bps(back.port, Direction.IN))
        answer = ProbeResponse(probe.round, probe.path, min(probe.available_bps, free))
        response = self._control_packet(Protocol.PROBE_RESPONSE, source, answer.pack())
        return [self._send_action(back, self._wrap(response, proxies))]

    def _process_failure(self, failure: PathFailure, packet: bytes, now: float) -> list[Action]:
        destination = None if failure.flow is None else self.server_of(failure.flow.destination)
        if failure.flow is None or destination is None:
            return [Drop("failure of no path in use", packet)]
        server, peer = map(self.topology.server_of_uid, (failure.server, failure.peer))
        link = server, Step(failure.port, peer)
        self.failed_links.put(link, None, now)
        return self.failed(destination, failure.flow, link, now)

    def _resend_returned(self, packet: bytes, now: float) -> list[Action]:
        """Send a packet again that a relay has returned after its path-failure message."""
        flow = flow_key(packet)
        if flow.protocol in RESERVED or not self.is_own_flow(flow):
            return [Drop("returned packet of no flow", packet)]
        return self.send_again(packet, now)

    # -- bytes -----------------------------------------------------------------------------------

    def _control_packet(self, protocol: Protocol, to: int, body: bytes) -> bytes:
        ipv4 = self.topology.ipv4
        return Ipv4Header(ipv4(self.server), ipv4(to), protocol).pack(body)

    def _wrap(self, packet: bytes, proxies: Proxies) -> bytes:
        ipv4 = self.topology.ipv4
        tunnel = Tunnel(ipv4(proxies.source), ipv4(proxies.destination), proxies.port)
        return encapsulate(packet, tunnel, packet[_TTL], self.identify() & 0xFFFF)

    @staticmethod
    def _send_action(
        step: Step, data: bytes, repeat: Pushed | Relayed | Unwrapped | None = None
    ) -> Send:
        return Send(step.port, step.peer, Frame(ETH_IP, data), repeat)
