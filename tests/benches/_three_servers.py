"""Three servers in a row, A - relay - B, each in a separate network namespace.

A bridge connects each server to the next, like the mini-switches of the papers. The namespaces have
no names: descriptors of this process refer to them, so that they disappear with the process.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from pillarbox.experiments.lab.linux import cable_programs
from pillarbox.experiments.lab.linux.kernel_settings import KernelSettings
from pillarbox.hosts.linux import tcx
from pillarbox.hosts.linux.calls import in_new_namespace, inside
from pillarbox.hosts.live.devices import (
    APPLICATION_INTERFACE,
    Tun,
)
from pillarbox.hosts.live.kernel_table import KernelTable, TablePort
from pillarbox.hosts.live.lab_programs import FORWARD, ServerPrograms, SingleServerPrograms
from pillarbox.hosts.live.table import (
    Action,
    DeliverDecision,
    PushDecision,
    RelayDecision,
    UnwrapDecision,
)
from pillarbox.hosts.wire.bcube import BCUBE, BCubeHeader, Hop
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.header import ByHeader
from pillarbox.hosts.wire.ipv4 import IP_IN_IP, TCP, FlowKey, Ipv4Header
from pillarbox.hosts.wire.relay_keys import ByDestination, ByFlow, ByTunnel, HeaderChange, RelayKey
from pillarbox.topos.base.addressing import FIRST_HOST, dotted_quad

A, RELAY, B = range(3)
MTU = 1500
PORT_MTU = MTU + 100  # MTU of the relay's and servers' ports, including the largest header
CLIENT_PORT, SERVER_PORT = 40000, 5001
TIME_LIMIT_S = 30.0  # timeout of a TCP connection, in seconds
WARM_UP_S = 0.1
CHUNK = 1 << 20
ETH_ALL = 3


class BareNamespace:
    """A network namespace without a name."""

    def __init__(self) -> None:
        with in_new_namespace():
            self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.path = f"/proc/{os.getpid()}/fd/{self.fd}"
        self.ip("link set lo up")
        self.sysctl("ipv6/conf/all/disable_ipv6", 1)
        self.sysctl("ipv6/conf/default/disable_ipv6", 1)

    def entered(self) -> AbstractContextManager[None]:
        """Enter the network namespace for a `with` block; sockets created there stay in it."""
        return inside(self.fd)

    def ip(self, *commands: str) -> None:
        """Run commands of ip(8) in the network namespace."""
        with self.entered():
            text = "\n".join(commands)
            subprocess.run(["ip", "-batch", "-"], input=text, text=True, check=True)

    def sysctl(self, name: str, value: int) -> None:
        """Set a sysctl of the network namespace if this kernel has it."""
        with self.entered():
            at = Path("/proc/sys/net", name)
            if at.exists():
                at.write_text(f"{value}\n")


def ipv4(server: int) -> int:
    """Return a server's IPv4 address as a 32-bit integer (server A, B or the relay)."""
    return FIRST_HOST + server


def mac(server: int, port: int) -> bytes:
    """Return the MAC address of a server's port."""
    return bytes([2, port, 0, 0, 0, server])


class ThreeServers:
    """Network of server A, a relay and server B, in network namespaces joined by bridges.

    Parameters
    ----------
    straight_on
        True if frames bypass the bridges by eBPF programs, as in a lab. Machines without tcx, where
        traffic control filters would have to redirect the frames, keep the bridges.
    """

    def __init__(self, *, straight_on: bool = True) -> None:
        self.tuns: dict[int, Tun] = {}
        self._stack = ExitStack()
        self._stack.enter_context(
            KernelSettings()
        )  # apply the kernel settings of a live lab while the network exists
        self.servers = [BareNamespace() for _ in range(3)]
        self.fabric = BareNamespace()
        for namespace in [*self.servers, self.fabric]:
            self._stack.callback(os.close, namespace.fd)
        for name in ("iptables", "ip6tables", "arptables"):
            self.fabric.sysctl(f"bridge/bridge-nf-call-{name}", 0)
        self.fabric.ip(*(f"link add s{i} type bridge mcast_snooping 0" for i in (0, 1)))
        for server, port, switch in ((A, 0, 0), (RELAY, 0, 0), (RELAY, 1, 1), (B, 0, 1)):
            self._add_port(server, port, switch)
        self.fabric.ip(*(f"link set s{i} mtu {PORT_MTU} up" for i in (0, 1)))
        self._wait_for_switches()
        if straight_on and tcx.detaches_fast():
            for ends in (((A, 0), (RELAY, 0)), ((RELAY, 1), (B, 0))):
                self._bypass_bridge(ends)

    def __enter__(self) -> ThreeServers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _add_port(self, server: int, port: int, switch: int) -> None:
        namespace, address = self.servers[server], mac(server, port).hex(":")
        far = f"h{server}-{port}"
        self.fabric.ip(
            f"link add {far} mtu {PORT_MTU} type veth peer name eth{port} mtu {PORT_MTU} "
            f"address {address} netns {namespace.path}",
            f"link set {far} master s{switch} up",
        )
        namespace.ip(f"link set eth{port} up")

    def _bypass_bridge(self, ends: Iterable[tuple[int, int]]) -> None:
        """Redirect frames between a switch's ports by eBPF, so that they bypass the bridge."""
        with self.fabric.entered():
            ports = {
                mac(*end).hex(":"): socket.if_nametoindex("h{}-{}".format(*end)) for end in ends
            }
            program = cable_programs.load(cable_programs.straight_on(ports))
            for port in ports.values():
                tcx.attach(program, port, egress=False)
            os.close(program)

    def _wait_for_switches(self) -> None:
        """Wait until all ports of the switches' bridges forward frames."""
        deadline = time.monotonic() + TIME_LIMIT_S
        with self.fabric.entered():
            while True:
                asked = subprocess.run(
                    ["bridge", "-json", "link"], check=True, capture_output=True, text=True
                )
                if all(port["state"] == "forwarding" for port in json.loads(asked.stdout)):
                    return
                if time.monotonic() > deadline:
                    raise OSError(f"cables had no carrier after {TIME_LIMIT_S:.0f} s")
                time.sleep(0.001)

    # -- applications ----------------------------------------------------------------------------

    def add_applications(self, server: int) -> None:
        """Create a server's application interface, with its address and a route to all servers."""
        namespace = self.servers[server]
        with namespace.entered():
            self.tuns[server] = tun = Tun()
        self._stack.callback(os.close, tun.fd)
        namespace.ip(
            f"link set {APPLICATION_INTERFACE} mtu {MTU} up",
            f"addr add {dotted_quad(ipv4(server))}/8 dev {APPLICATION_INTERFACE}",
        )

    def add_table(
        self,
        server: int,
        *,
        by_flow: bool = False,
        links: int = 1,
        programs: ServerPrograms | None = None,
    ) -> KernelTable:
        """Install a server's eBPF forwarding table in the kernel."""
        with self.servers[server].entered():
            ports = {
                number: TablePort(socket.if_nametoindex(name), mac(server, number))
                for number, name in enumerate(("eth0", "eth1") if server == RELAY else ("eth0",))
            }
            # The relay has no applications: the loopback interface is a placeholder.
            interfaces = {name for _, name in socket.if_nameindex()}
            own = APPLICATION_INTERFACE if APPLICATION_INTERFACE in interfaces else "lo"
            table = KernelTable(
                ports,
                socket.if_nametoindex(own),
                by_flow=by_flow,
                programs=programs or SingleServerPrograms(FORWARD, links),
            )
        self._stack.callback(table.close)
        return table

    # -- traffic ---------------------------------------------------------------------------------

    def connect(self, seconds: float = TIME_LIMIT_S) -> tuple[socket.socket, socket.socket]:
        """Open a TCP connection from server A to server B; return its two sockets."""
        with self.servers[B].entered(), socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((dotted_quad(ipv4(B)), SERVER_PORT))
            listener.listen(1)
            listener.settimeout(seconds)
            with self.servers[A].entered():
                client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Fixed congestion control, as the machine's default may pace packets.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
            client.bind((dotted_quad(ipv4(A)), CLIENT_PORT))
            client.settimeout(seconds)
            client.connect((dotted_quad(ipv4(B)), SERVER_PORT))
            server, _ = listener.accept()
            server.settimeout(seconds)
            return client, server

    def goodput_bps(self, seconds: float) -> float:
        """Return the TCP goodput from server A to server B in bit/s.

        Each end runs on a separate processor if two are available: while both ends share a
        processor, the same relay is a third slower.
        """
        client, server = self.connect()
        data = bytes(CHUNK)
        processors = os.sched_getaffinity(0)

        def send() -> None:
            os.sched_setaffinity(0, {min(processors)})
            try:
                while True:
                    client.sendall(data)
            except OSError:
                return  # the receiver closed the TCP connection: end the sending thread

        sender = threading.Thread(target=send, daemon=True)
        with client, server, _on_processors({max(processors)}):
            sender.start()
            _receive(server, WARM_UP_S)
            rate = _receive(server, seconds)
            # Reset the connection on close: remaining TCP state could affect the next connection.
            linger = struct.pack("=ii", 1, 0)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            server.close()
            sender.join(TIME_LIMIT_S)
        return rate


@contextmanager
def _on_processors(processors: set[int]) -> Iterator[None]:
    """Restrict this thread to the given processors for a `with` block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _receive(server: socket.socket, seconds: float) -> float:
    buffer = bytearray(CHUNK)
    received, start = 0, time.monotonic()
    while time.monotonic() < start + seconds:
        received += server.recv_into(buffer)
    return received * 8 / (time.monotonic() - start)


# -- encapsulations from A to B --------------------------------------------------------------------


class Encapsulation(NamedTuple):
    """Encapsulation of packets between servers A and B: headers and lookup keys.

    `there` and `back` are the header of a direction, and the key at its last server; `relays` is
    the relay's whole forwarding table.
    """

    there: tuple[bytes, RelayKey]
    back: tuple[bytes, RelayKey]
    relays: dict[RelayKey, Action]
    by_flow: bool = False


THERE = FlowKey(ipv4(A), ipv4(B), TCP, CLIENT_PORT, SERVER_PORT)
_TO_B, _TO_A = RelayDecision(1, mac(B, 0)), RelayDecision(0, mac(A, 0))


def _dcn_header(source: int, destination: int, proxy: int | None = None) -> bytes:
    return DcnHeader(source, destination, Protocol.IPV4, proxy=proxy).pack(b"")


def _bcube_header(source: int, destination: int, *path: Hop) -> bytes:
    # The path's first hop leads to the relay, which reads the second hop.
    return BCubeHeader(source, destination, Protocol.IPV4, path, next_hop=1).pack(b"")


def _outer_ip_header(source: int, destination: int) -> bytes:
    return Ipv4Header(source, destination, IP_IN_IP).pack(b"")


def _tunnel_lookup_key(direction: int, outer_destination: int, destination: int) -> ByTunnel:
    return ByTunnel(direction, outer_destination, ipv4(destination))


def dcn_lookup_key(destination: int, proxy: int | None, port: int | None = None) -> ByHeader:
    """Return the forwarding table's key of packets with a DCN header."""
    return DcnHeader(0, destination, Protocol.IPV4, proxy=proxy).relay_key(port)


def bcube_hop_lookup_key(hop: Hop) -> ByHeader:
    """Return the forwarding table's key of packets whose BCube header has a next hop."""
    return BCUBE.forms[0].by_hop(hop.nha)


def bcube_end_lookup_key(destination: int) -> ByHeader:
    """Return the forwarding table's key of packets whose BCube path ends at this server."""
    return BCUBE.forms[0].by(None, destination)


def proxy_header_change(
    destination: int, proxy: int | None, *, rerouted: bool = False
) -> HeaderChange:
    """Return the header change that sets or removes the proxy in a DCN header."""
    return HeaderChange(dcn_lookup_key(destination, proxy), ("retry",) if rerouted else ())


def encapsulations(flows: Sequence[FlowKey] = (THERE,)) -> dict[str, Encapsulation]:
    """Return all packet encapsulations of the relay benchmark by name."""
    each_flow: dict[RelayKey, Action] = {ByFlow(flow, 0): _TO_B for flow in flows}
    each_flow |= {ByFlow(flow.reversed(), 1): _TO_A for flow in flows}
    to_b, to_a = ByDestination(ipv4(B), 0), ByDestination(ipv4(A), 0)
    level_1, level_0 = Hop(1, 2), Hop(0, 2)
    proxy = 77
    return {
        "plain IP": Encapsulation(
            (b"", to_b),
            (b"", to_a),
            {ByDestination(ipv4(B), 0): _TO_B, ByDestination(ipv4(A), 1): _TO_A},
        ),
        "plain IP by flow": Encapsulation(
            (b"", to_b),
            (b"", to_a),
            each_flow,
            by_flow=True,
        ),
        "DCN": Encapsulation(
            (_dcn_header(A, B), dcn_lookup_key(B, None, 0)),
            (_dcn_header(B, A), dcn_lookup_key(A, None, 0)),
            {dcn_lookup_key(B, None, 0): _TO_B, dcn_lookup_key(A, None, 1): _TO_A},
        ),
        "DCN, proxy set and cleared": Encapsulation(
            (_dcn_header(A, B), dcn_lookup_key(B, proxy, 0)),
            (_dcn_header(B, A, proxy), dcn_lookup_key(A, None, 0)),
            {
                dcn_lookup_key(B, None, 0): _TO_B._replace(
                    change=proxy_header_change(B, proxy, rerouted=True)
                ),
                dcn_lookup_key(A, proxy, 1): _TO_A._replace(change=proxy_header_change(A, None)),
            },
        ),
        "DCN, proxy cleared and replaced": Encapsulation(
            (_dcn_header(A, B, proxy), dcn_lookup_key(B, None, 0)),
            (_dcn_header(B, A, 0), dcn_lookup_key(A, proxy, 0)),
            {
                dcn_lookup_key(B, proxy, 0): _TO_B._replace(change=proxy_header_change(B, None)),
                dcn_lookup_key(A, 0, 1): _TO_A._replace(
                    change=proxy_header_change(A, proxy, rerouted=True)
                ),
            },
        ),
        "BCube": Encapsulation(
            (_bcube_header(A, B, level_1, level_0), bcube_end_lookup_key(B)),
            (_bcube_header(B, A, level_0, level_1), bcube_end_lookup_key(A)),
            {bcube_hop_lookup_key(level_0): _TO_B, bcube_hop_lookup_key(level_1): _TO_A},
        ),
        "IP in IP": Encapsulation(
            (_outer_ip_header(11, 12), _tunnel_lookup_key(1, 12, B)),
            (_outer_ip_header(12, 10), _tunnel_lookup_key(0, 10, A)),
            {_tunnel_lookup_key(1, 12, B): _TO_B, _tunnel_lookup_key(0, 10, A): _TO_A},
        ),
        "IP in IP, unwrapped": Encapsulation(
            (_outer_ip_header(11, 12), to_b),
            (_outer_ip_header(12, 10), to_a),
            {
                _tunnel_lookup_key(1, 12, B): UnwrapDecision(1, mac(B, 0)),
                _tunnel_lookup_key(0, 10, A): UnwrapDecision(0, mac(A, 0)),
            },
        ),
    }


def install_encapsulation(
    tables: Sequence[KernelTable], encapsulation: Encapsulation, flows: Sequence[FlowKey] = (THERE,)
) -> None:
    """Install an encapsulation in the forwarding tables of server A, the relay and server B."""
    for flow in flows:
        tables[A].install_flow(flow, PushDecision(0, mac(RELAY, 0), encapsulation.there[0]))
        tables[B].install_flow(
            flow.reversed(), PushDecision(0, mac(RELAY, 1), encapsulation.back[0])
        )
        last = (encapsulation.there[1], encapsulation.back[1])
        at_b, at_a = (
            (ByFlow(flow, 0), ByFlow(flow.reversed(), 0)) if encapsulation.by_flow else last
        )
        tables[B].install_relay(at_b, DeliverDecision())
        tables[A].install_relay(at_a, DeliverDecision())
    for key, action in encapsulation.relays.items():
        tables[RELAY].install_relay(key, action)


@contextmanager
def forwarding(
    encapsulation: Encapsulation, flows: Sequence[FlowKey] = (THERE,)
) -> Iterator[tuple[ThreeServers, list[KernelTable]]]:
    """Yield the network of A, relay and B with eBPF forwarding, and the forwarding tables."""
    with ThreeServers() as lab:
        for server in (A, B):
            lab.add_applications(server)
        tables = [lab.add_table(server, by_flow=encapsulation.by_flow) for server in (A, RELAY, B)]
        install_encapsulation(tables, encapsulation, flows)
        yield lab, tables
