"""Paths of packets, assembled from a capture of many ports and compared with the routing.

A packet is identified by the fields that relays do not change: its IP packet without TTL and
checksum, whatever headers carry it. MAC addresses are computed from nodes and ports, so each frame
shows its sending and receiving server. The hops of a packet in order of time are its path.

Super-packets of TCP may be segmented on their path when they pass through Python: such a packet is
seen in part only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pillarbox.experiments.lab.observe.pcapng import CapturedFrame, Reader
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.failures import Failures, parse_failures
from pillarbox.hosts.base.network import header_of
from pillarbox.hosts.base.pinned_paths import pinned_path
from pillarbox.hosts.wire.dcn import DCN, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.hosts.wire.header_layout import WireError
from pillarbox.hosts.wire.ipv4 import IP_IN_IP, Ipv4Header
from pillarbox.topos.base.addressing import NO_PORTS, End, EndPorts
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

ETHERNET_BYTES = 14
PORT_SHIFT = 32  # position of the port number in a MAC address; lower bits hold the node
COMPUTED, PARALLEL = "as computed", "another of the disjoint paths"
DIFFERS, PARTLY, LOST = "differs", "seen in part", "not seen to arrive"

Hop = tuple[int, int]


class Packet(NamedTuple):
    """IPv4 packet of an application, as found in a captured frame."""

    identity: bytes
    source: int  # IPv4 addresses as numbers
    destination: int


@dataclass
class PacketSightings:
    """Hops of one IP packet between servers, observed in a capture."""

    packet: Packet
    # Hops in order of their first observation. Each port shows a hop once, so a capture at both
    # ends shows the hop twice.
    sent: list[Hop] = field(default_factory=list)
    arrived: list[Hop] = field(default_factory=list)

    @property
    def hops(self) -> list[Hop]:
        """The packet's hops; a hop seen at both ends is ordered by the sender's observation."""
        extra = Counter(self.arrived) - Counter(self.sent)
        found = list(self.sent)
        for hop in self.arrived:  # hops captured only at the receiver's port
            if extra[hop]:
                extra[hop] -= 1
                found.append(hop)
        return _connected(found)

    @property
    def servers(self) -> list[int]:
        """The servers on the packet's path, as far as hops are connected."""
        hops = self.hops
        return [hops[0][0], *(peer for _, peer in hops)] if hops else []

    @property
    def whole(self) -> bool:
        """Whether the packet's path has no gap: each hop begins where the hop before it ended."""
        return all(a[1] == b[0] for a, b in zip(self.hops, self.hops[1:], strict=False))


class PathRow(NamedTuple):
    """Captured packets between two servers that took the same path, with a verdict on the path."""

    source: int
    destination: int
    servers: tuple[int, ...]
    verdict: str
    packets: int
    # Ports whose addresses the packets have, in labs with port addresses
    ports: EndPorts = NO_PORTS


def packet_sightings(
    topology: Topology, frames: Iterable[CapturedFrame]
) -> tuple[list[PacketSightings], Counter[str]]:
    """Return the hops of each IP packet in a capture, and counts of other frames by kind."""
    found: dict[bytes, PacketSightings] = {}
    others: Counter[str] = Counter()
    for frame in sorted(frames, key=lambda one: one.at_ns):
        hop = _hop_of_frame(topology, frame.data)
        try:
            packet = _ipv4_packet_or_kind(frame.data)
        except WireError as error:
            others[f"refused: {error.reason}"] += 1
            continue
        if hop is None or isinstance(packet, str):
            others[packet if isinstance(packet, str) else "of no server"] += 1
            continue
        one = found.setdefault(packet.identity, PacketSightings(packet))
        (one.sent if frame.outgoing else one.arrived).append(hop)
    return list(found.values()), others


def paths_with_verdicts(
    topology: Topology, found: Iterable[PacketSightings], routing: str, failures: Failures
) -> list[PathRow]:
    """Return the paths of captured packets, each compared with the routing's paths."""

    @cache
    def known(
        source: int, destination: int, ports: EndPorts
    ) -> tuple[list[list[int]], list[list[int]]]:
        pinned = pinned_path(topology, source, ports[0], destination, ports[1])
        if pinned and not failures.first_on(topology, pinned):
            return [list(pinned.servers)], []
        both = (
            route(topology, routing, source, destination, failures, several=several).paths
            for several in (False, True)
        )
        usual, all_ = ([list(path.servers) for path in paths] for paths in both)
        return usual, all_

    counts: Counter[tuple[int, int, tuple[int, ...], str, EndPorts]] = Counter()
    for one in found:
        begin = _end_with_ipv4(topology, one.packet.source)
        end = _end_with_ipv4(topology, one.packet.destination)
        servers = one.servers
        if not servers or begin is None or end is None:
            continue
        (source, out_by), (destination, in_by) = begin, end
        ports = out_by, in_by
        if not one.whole or servers[0] != source:
            verdict = PARTLY
        elif servers[-1] != destination:
            verdict = LOST
        elif routing not in algorithms(topology):
            verdict = ""
        else:
            usual, every = known(source, destination, ports)
            verdict = COMPUTED if servers in usual else PARALLEL if servers in every else DIFFERS
        counts[source, destination, tuple(servers), verdict, ports] += 1
    rows = sorted(counts.items(), key=lambda row: (row[0][:4], str(row[0][4])))
    return [PathRow(*key[:4], packets, key[4]) for key, packets in rows]


def _connected(hops: list[Hop]) -> list[Hop]:
    """Return a packet's hops in path order: each begins where the last ended, if possible.

    Ports of different servers may show the receipt of a packet and its forwarding in either order.
    """
    left = list(hops)
    chained: list[Hop] = []
    while left:
        at = chained[-1][1] if chained else _origin(left)
        following = next((hop for hop in left if hop[0] == at), left[0])
        left.remove(following)
        chained.append(following)
    return chained


def _origin(hops: list[Hop]) -> int:
    """Return a packet's source: the server that sent it more often than it received it."""
    receivers = Counter(peer for _, peer in hops)
    senders = Counter(server for server, _ in hops)
    origins = (server for server, _ in hops if senders[server] > receivers[server])
    return next(origins, hops[0][0])


def _hop_of_frame(topology: Topology, frame: bytes) -> Hop | None:
    """Return the servers that sent and received a captured frame, None if one is unknown."""
    ends = []
    for octets in (frame[6:12], frame[:6]):
        number = int.from_bytes(octets, "big")
        node, port = number % (1 << PORT_SHIFT), number >> PORT_SHIFT & 0xFF
        if node >= topology.servers or topology.mac_number(node, port) != number:
            return None
        ends.append(node)
    return ends[0], ends[1]


def _ipv4_packet_or_kind(frame: bytes) -> Packet | str:
    """Return the IPv4 packet in a captured frame, or the kind of a frame without one."""
    kind, data = int.from_bytes(frame[12:14], "big"), frame[ETHERNET_BYTES:]
    if kind == ETH_DCN:
        header, data = (header_of(data) or DCN).parse(data)
        if header.protocol != Protocol.IPV4:
            return _control_message_name(header.protocol)
    elif kind != ETH_IP:
        return f"ethertype 0x{kind:04x}"
    inner, body = Ipv4Header.parse(data)
    if inner.protocol == IP_IN_IP:
        data = body
        inner, body = Ipv4Header.parse(data)
    if inner.protocol in set(Protocol):
        return _control_message_name(inner.protocol)
    return Packet(inner._replace(ttl=0).pack(body), inner.source, inner.destination)


def _control_message_name(protocol: int) -> str:
    return next((one.name.lower().replace("_", " ") for one in Protocol if one == protocol), "?")


def _end_with_ipv4(topology: Topology, ipv4: int) -> End | None:
    """Return the server, and the port if it is a port's, with an IPv4 address; None for others."""
    server: int = topology.server_of_ipv4(ipv4)
    if 0 <= server < topology.servers and topology.ipv4(server) == ipv4:
        return End(server)
    of_port = topology.port_of_ipv4(ipv4)
    return End(*of_port) if of_port else None


def path_lines(topology: Topology, rows: Iterable[PathRow]) -> Iterator[str]:
    """Yield a line of text for each path that captured packets took."""
    for row in rows:
        path = " ".join(map(topology.address, row.servers))
        begin, end = End(row.source, row.ports[0]), End(row.destination, row.ports[1])
        ends = f"{topology.end_name(begin)} -> {topology.end_name(end)}"
        yield f"{row.packets:>8}  {ends:<20} {path:<40} {row.verdict}".rstrip()


class CapturedPaths(NamedTuple):
    """Packets of a capture file, grouped by their path through the network."""

    topology: Topology
    routing: str
    packets: int
    rows: list[PathRow]
    others: Counter[str]


def paths_in_capture(
    capture: Path, network: str | None, routing: str | None, fail: Sequence[str]
) -> CapturedPaths:
    """Return the packets' paths in a capture file; its comment names the network by default."""
    try:
        file = capture.open("rb")
    except OSError as error:
        raise PillarboxError(f"{capture} cannot be read: {error.strerror}") from None
    with file:
        reader = Reader(file)
        known = _described_lab(reader.comment)
        network = network or known.network
        require(bool(network), f"{capture} does not name its network: add --network SPEC")
        topology = parse(network)
        found, others = packet_sightings(topology, reader)
    failures = parse_failures(topology, fail or known.failures)
    routing = routing or known.routing
    return CapturedPaths(
        topology,
        routing,
        len(found),
        paths_with_verdicts(topology, found, routing, failures),
        others,
    )


class _CapturedLab(NamedTuple):
    """Lab description in a capture's comment; fields are empty if absent."""

    network: str
    routing: str
    failures: list[str]


def _described_lab(comment: str) -> _CapturedLab:
    try:
        found = json.loads(comment or "{}")
    except (ValueError, RecursionError):
        found = {}
    found = found if isinstance(found, dict) else {}
    network, routing = (str(found.get(name) or "") for name in ("network", "routing"))
    failures = found.get("failures")
    return _CapturedLab(
        network, routing, list(map(str, failures if isinstance(failures, list) else []))
    )
