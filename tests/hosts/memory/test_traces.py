"""What every server sends, protocol by protocol, written down and reviewed like code.

Each file in traces/ is one routing of one network through the same scenario: a packet, the cable of
its first hop cut, packets while the routing gets over it, the cable healed, and packets again. A
change of behaviour shows as a diff of these files; `pytest tests/hosts/memory/test_traces.py
--snapshot-update` writes them anew.

Beside them stand the tests that say why: a trace says only what.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.frame_devices import FrameHop
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.bcube import BCubeHeader
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.header_layout import WireError
from pillarbox.hosts.wire.ipv4 import IP_IN_IP, FlowKey, Ipv4Header
from pillarbox.hosts.wire.marks import serial_of
from pillarbox.hosts.wire.messages import Heartbeat, LinkState, parse_message
from pillarbox.topos.base.topology import Topology

TRACES = Path(__file__).parent / "traces"
SPECS = (
    *("dpillar,4,2", "dcell,2,1", "bcube,2,1", "ficonn,4,1", "tree,2,2", "fattree,4"),
    *("rail,3,2", "mesh,3,2", "torus,4,2", "bccc,2,1"),
    *("domains,2,2", "vl2,2,4,tor=2"),
)
CASES = [
    (spec, routing)
    for spec in SPECS
    for routing, algorithm in algorithms(topos.parse(spec)).items()
    if algorithm.router
]
BEFORE_S, AFTER_S = 0.5, 0.5  # until all servers know their neighbours; for what a fault changes
PACKET_S = 0.1
# Sent all the time, so that they are only counted.
STEADY = (Heartbeat, LinkState)
SERVERS = ("source", "destination", "proxy", "server", "peer", "previous")


class Tap:
    """A device that lets everything by and writes it down."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.lines: list[str] = []
        self.counts: Counter[tuple[int, str]] = Counter()

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame as it is."""
        headers = list(headers_of(hop.frame))
        kind = type(headers[-1]).__name__ if serial_of(hop.frame.data) is None else "packet"
        self.counts[hop.server, kind] += 1
        if not isinstance(headers[-1], STEADY):
            at, to = map(self.topology.address, (hop.server, hop.peer))
            self.lines.append(f"{now:.5f}  {at}:{hop.port} > {to}  {self.told(hop, headers)}")
        yield 0.0, hop.frame

    def told(self, hop: FrameHop, headers: list[Any]) -> str:
        """Return what a frame says, header by header."""
        serial = serial_of(hop.frame.data)
        what = [] if serial is None else [f"packet {serial}"]
        return "; ".join([*map(self.shown, headers), *what])

    def shown(self, header: Any) -> str:
        """Return the fields of a header or message that say something."""
        known = {"protocol", "identification", "tos", "flags", "fragment"}
        default = type(header)._field_defaults
        values = {
            name: self.named(header, name, value)
            for name, value in header._asdict().items()
            if name not in known and (name not in default or value != default[name])
        }
        words = [f"{name} {value}" for name, value in values.items()]
        return " ".join([type(header).__name__.removesuffix("Header"), *words])

    def named(self, header: Any, name: str, value: Any) -> Any:
        """Return a value as people write it."""
        if isinstance(value, FlowKey):
            return f"{ip(value.source)}:{value.source_port}"
        if name == "path" and isinstance(header, BCubeHeader):
            return " ".join(f"{level}:{digit}" for level, digit in value)
        if name == "entries":  # two of FiConn's marks are negative
            return " ".join(str(mark - 2**32 if mark >= 2**31 else mark) for mark in value)
        if name in SERVERS and isinstance(header, Ipv4Header):
            return ip(value)
        if name in SERVERS and value < self.topology.servers:
            return self.topology.address(value)
        return f"{value / 1e6:.0f} Mbit/s" if name == "available_bps" else value


def ip(address: int) -> str:
    return socket.inet_ntoa(address.to_bytes(4, "big"))


def headers_of(frame: Frame) -> Iterator[Any]:
    """Yield the headers of a frame, and the message in it if it has one."""
    if frame.ethertype == ETH_DCN:
        try:
            header, rest = DcnHeader.parse(frame.data)
        except WireError:
            header, rest = BCubeHeader.parse(frame.data)
    else:
        header, rest = Ipv4Header.parse(frame.data)
        if header.protocol == IP_IN_IP:
            yield header
            header, rest = Ipv4Header.parse(rest)
    yield header
    if header.protocol in set(Protocol) - {Protocol.IPV4}:
        yield parse_message(header.protocol, rest)


def network_of(topology: Topology, router: Callable[..., Router], tap: Tap) -> MemoryNetwork:
    def make(network: Topology, server: int) -> Router:
        return router(network, server, timers=FAST, seed=1)

    network = MemoryNetwork(topology, make, devices=[tap])
    network.run(BEFORE_S)
    return network


def trace(spec: str, routing: str) -> str:
    """Return what the servers of a network sent in the scenario, and how much of it."""
    topology = topos.parse(spec)
    router = algorithms(topology)[routing].router
    assert router is not None
    tap = Tap(topology)
    network = network_of(topology, router, tap)
    ends = 0, topology.servers - 1

    def send() -> None:
        network.send_udp(*ends)
        network.run(PACKET_S)

    send()
    hop = network.trips[0].steps[0][1]
    cable = ends[0], topology.server_plug(ends[0], hop.port).node
    for done, change in (("cut", network.cut), ("healed", network.heal)):
        tap.lines.append(
            f"{network.now:.5f}  -- the cable of {topology.address(0)}:{hop.port} {done}"
        )
        change(*cable)
        send()
        network.run(AFTER_S)
        send()
    fates = [f"packet {i}: {fate(trip)}" for i, trip in enumerate(network.trips)]
    return "\n".join([f"{spec} {routing}", "", *tap.lines, "", *fates, "", *table(tap), ""])


def fate(trip: Any) -> str:
    return f"arrived after {len(trip.steps)} hops" if trip.arrived_s else trip.lost or "on its way"


def table(tap: Tap) -> Iterator[str]:
    """Yield how many frames of each kind every server sent."""
    kinds = sorted({kind for _, kind in tap.counts})
    yield "".join(["server".ljust(8), *(kind.rjust(max(10, len(kind) + 2)) for kind in kinds)])
    for server in range(tap.topology.servers):
        counts = [str(tap.counts[server, kind]).rjust(max(10, len(kind) + 2)) for kind in kinds]
        yield tap.topology.address(server).ljust(8) + "".join(counts)


@pytest.mark.parametrize(("spec", "routing"), CASES)
def test_servers_send_what_is_written_down(spec: str, routing: str, snapshot: Any) -> None:
    snapshot(TRACES / f"{spec.replace(',', '-')}-{routing}.txt", trace(spec, routing))


def test_every_trace_is_of_a_routing() -> None:
    found = {file.stem for file in TRACES.glob("*.txt")}
    assert found == {f"{spec.replace(',', '-')}-{routing}" for spec, routing in CASES}
