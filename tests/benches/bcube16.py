"""BCube(4,1) with a relayed flow per server: eBPF, Python, and the kernel's routing."""

from __future__ import annotations

import json
import os
import pathlib
import random
import selectors
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.base.processes import ended, forked
from pillarbox.experiments.lab.linux.measurement import in_child
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.path import Path
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from tests.benches._frame import Row
from tests.benches._labs import hindrance, sandboxed

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

NETWORK, ROUTING = "bcube,4,1", "bsr"
KERNEL_ROUTING = "bcube"  # BCube routing whose paths the kernel-routed baseline uses
GOAL = 1.0
SECONDS, ROUNDS = 1.0, 9
QUICK_SECONDS, QUICK_ROUNDS = 0.3, 1
WARM_UP_S = 0.5
CONTROL = b"reno"  # TCP congestion control that every kernel has
PORT = 5001
CHUNK, SINK = 1 << 18, 1 << 20
SEED = 1
TIME_LIMIT_S = 60.0
KERNEL, EBPF, PYTHON = "kernel's IP forwarding", "ebpf", "python"
PAST = "kernel, bridges bypassed"
NOTES = f"""
Each of the 16 servers sends over one TCP connection (Reno, MTU 1500, no rate limit), receives over
a second one, and relays a third. One process writes and one process reads, at full speed, each on a
separate processor. total_gbps: total goodput, the median of {ROUNDS} rounds. In each round every
plane is measured once, in random order, on a new network. of_kernel: the median of the rounds'
ratios to the kernel (goal: {GOAL:g} for eBPF); low and high: their quartiles. The kernel forwards
by static routes, without headers of a DCN. Frames bypass bridges if a forwarder sends them, as in a
lab; "{PAST}" is the kernel's forwarding with the same bypass.
Servers run {ROUTING} with the papers' timers: the processors are fully loaded, so that silence does
not indicate a failure.
cpu_us_per_packet: processor time of a Python forwarder per handled packet, measured with a single
flow in the network; acknowledgements count as packets.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each plane, and a row for each role of a server on the Python plane."""
    seconds, rounds = (QUICK_SECONDS, QUICK_ROUNDS) if quick else (SECONDS, ROUNDS)
    why = {plane: _reason(plane) for plane in (KERNEL, PAST, EBPF, PYTHON)}
    totals: dict[str, list[float]] = {plane: [] for plane, reason in why.items() if not reason}
    drawn = random.Random(SEED)
    for _ in range(rounds):
        for plane in drawn.sample(list(totals), len(totals)):
            found = in_child(total_bps, plane, seconds, time_limit_s=TIME_LIMIT_S)
            if found.failure:
                why[plane] = why[plane] or f"failed: {found.failure}"
            totals[plane].append(found.value or 0.0)
    for plane, reason in why.items():
        row: Row = {"plane": plane, "total_gbps": None, "of_kernel": None, "low": None}
        row |= {"high": None, "outcome": reason}
        if not reason:
            row |= _compared(totals[plane], [] if why[KERNEL] else totals[KERNEL])
            missed = plane == EBPF and not quick and (row["of_kernel"] or 0.0) < GOAL
            row["outcome"] = f"missed: {GOAL:g} wanted" if missed else "ok"
        yield row
    yield from _packet_cost_rows(seconds)


def _reason(plane: str) -> str:
    why = hindrance(
        EBPF if plane == PAST else plane
    )  # the baseline, too, bypasses its bridges by eBPF
    return f"skipped: {why}" if why else ""


def _compared(totals: list[float], kernel: list[float]) -> Row:
    row: Row = {"total_gbps": statistics.median(totals) / 1e9}
    ratios = [ours / theirs for ours, theirs in zip(totals, kernel, strict=bool(kernel))]
    if ratios:
        row["of_kernel"] = statistics.median(ratios)
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios
        row |= {"low": quartiles[0], "high": quartiles[-1]}
    return row


def flows(topology: Topology) -> list[Path]:
    """Return the flows' paths: each server is source, relay and destination of one flow.

    >>> [len(path) for path in flows(parse(NETWORK))] == [2] * 16
    True
    >>> sorted(path.servers[1] for path in flows(parse(NETWORK))) == list(range(16))
    True
    """

    def partner(server: int) -> int:
        digits = zip(topology.digits(server), topology.radices(), strict=True)
        far: int = topology.server_at([(digit + 1) % radix for digit, radix in digits])
        return far

    return [_flow_path(topology, server, partner(server)) for server in range(topology.servers)]


def _flow_path(topology: Topology, source: int, destination: int) -> Path:
    return route(topology, KERNEL_ROUTING, source, destination).paths[0]


# -- one turn, in a separate process -----------------------------------------------------------


def total_bps(plane: str, seconds: float) -> float:
    """Start BCube's network in a sandbox; return the total goodput of all flows in bit/s."""
    topology = parse(NETWORK)
    with _network(topology, plane) as net:
        return _total_goodput_bps(
            [_connected(net, topology, path) for path in flows(topology)], seconds
        )


def _network(topology: Topology, plane: str) -> AbstractContextManager[Any]:
    if plane in (KERNEL, PAST):
        return _kernel_routed_network(topology, straight_on=plane == PAST)
    return _ebpf_forwarded_network(topology, plane)


def packet_costs_us(seconds: float) -> dict[str, float]:
    """Return the CPU time per packet at source, relay and destination in microseconds."""
    topology = parse(NETWORK)
    with _lab(topology, PYTHON) as lab:
        path = flows(topology)[0]
        ends = _connected(lab.net, topology, path)
        before = [_cpu_and_packets(lab, server) for server in path.servers]
        _total_goodput_bps([ends], seconds)
        after = [_cpu_and_packets(lab, server) for server in path.servers]
    return {
        part: (spent - had) / (handled - were) * 1e6
        for part, (had, were), (spent, handled) in zip(
            ("source", "relay", "destination"), before, after, strict=True
        )
    }


def _packet_cost_rows(seconds: float) -> Iterator[Row]:
    reason = _reason(PYTHON)
    if not reason:
        found = in_child(packet_costs_us, seconds, time_limit_s=TIME_LIMIT_S)
        for part, cost_us in (found.value or {}).items():
            yield {"python_forwarder": part, "cpu_us_per_packet": cost_us, "outcome": "ok"}
        reason = f"failed: {found.failure}" if found.failure else ""
    if reason:
        yield {"python_forwarder": "all", "cpu_us_per_packet": None, "outcome": reason}


def _cpu_and_packets(lab: Lab, server: int) -> tuple[float, int]:
    """Return the CPU time of a server's forwarder in seconds, and the number of its packets."""
    assert lab.forwarders is not None
    stat = pathlib.Path(f"/proc/{lab.forwarders.pids[server]}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    state = lab.state(server)
    handled = state["counters"].get("frames out", 0) + state["counters"].get("delivered", 0)
    handled += sum(state["repeated"].values())
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK"), handled


def _lab(topology: Topology, plane: str) -> AbstractContextManager[Lab]:
    # The papers' slow timers: with fast ones, servers on a busy CPU would be declared dead.
    return sandboxed(topology, routing=ROUTING, plane=plane, timers="paper", rate_mbit=None)


@contextmanager
def _ebpf_forwarded_network(topology: Topology, plane: str) -> Iterator[Any]:
    with _lab(topology, plane) as lab:
        yield lab.net


@contextmanager
def _kernel_routed_network(topology: Topology, *, straight_on: bool) -> Iterator[Any]:
    """Yield a network of plain IP routers, with kernel routes for all flows both ways."""
    from pillarbox.experiments.lab.linux import sandbox

    sandbox.enter()
    from pillarbox.experiments.lab.emulation.lab_network import LabNet
    from pillarbox.experiments.lab.linux.namespaces import write_sysctl

    commands: dict[int, list[str]] = {server: [] for server in range(topology.servers)}
    for path in flows(topology):
        back = _flow_path(topology, path.destination, path.source)
        for one in (path, back):
            for server, step in zip(one.servers, one.steps, strict=False):
                target = topology.ip(one.destination)
                device = topology.interface(server, step.port)
                mac = topology.mac(
                    step.peer, step.port
                )  # the peer's port has the same number, as a cable joins ports of one level
                commands[server] += [
                    f"route replace {target}/32 dev {device}",
                    f"neigh replace {target} lladdr {mac} dev {device} nud permanent",
                ]
    with LabNet(topology, forwarders=False) as net:
        for switch in () if straight_on else net.switches:
            switch.disable_bridge_bypass()
        for server, lines in commands.items():
            host = net[topology.node_name(server)]
            with host.live_namespace():
                write_sysctl("net/ipv4/ip_forward", "1")
                for place in ("all", "default"):
                    write_sysctl(f"net/ipv4/conf/{place}/rp_filter", "0")
                text = "\n".join(lines)
                subprocess.run(["ip", "-batch", "-"], input=text, text=True, check=True)
        yield net


# -- the flows -----------------------------------------------------------------------------------


def _connected(net: Any, topology: Topology, path: Path) -> tuple[socket.socket, socket.socket]:
    source, destination = path.source, path.destination
    with net[topology.node_name(destination)].live_namespace():
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with net[topology.node_name(source)].live_namespace():
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener:
        for each in (listener, client):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONTROL)
            each.settimeout(5.0)
        client.bind((topology.ip(source), 0))
        listener.bind((topology.ip(destination), PORT))
        listener.listen(1)
        client.connect(listener.getsockname())
        server, _ = listener.accept()
    return client, server


def _total_goodput_bps(
    connections: list[tuple[socket.socket, socket.socket]], seconds: float
) -> float:
    """Return the total goodput of all TCP connections in bit/s."""
    clients = [client for client, _ in connections]
    servers = [server for _, server in connections]
    for each in (*clients, *servers):
        each.setblocking(False)
    ours, theirs = socket.socketpair()
    processors = os.sched_getaffinity(0)
    children = [
        forked(lambda: _send_endlessly(clients), min(processors)),
        forked(lambda: _read_and_count(servers, seconds, theirs), max(processors)),
    ]
    with ours, theirs:
        ours.settimeout(WARM_UP_S + seconds + 5.0)
        found: float = json.loads(ours.recv(1 << 10))
    for child in children:
        ended(child)
    return found


def _send_endlessly(clients: list[socket.socket]) -> None:
    data = bytes(CHUNK)
    ready = selectors.DefaultSelector()
    for client in clients:
        ready.register(client, selectors.EVENT_WRITE, client)
    while True:
        for key, _ in ready.select():
            with suppress(BlockingIOError):
                key.data.send(data)


def _read_and_count(servers: list[socket.socket], seconds: float, report: socket.socket) -> None:
    ready = selectors.DefaultSelector()
    sink = bytearray(SINK)  # receive buffer that stays empty: MSG_TRUNC discards the data
    for server in servers:
        ready.register(server, selectors.EVENT_READ, server)

    def count(for_s: float) -> float:
        start, received = time.monotonic(), 0
        while (now := time.monotonic()) < start + for_s:
            for key, _ in ready.select(0.1):
                with suppress(BlockingIOError):
                    received += key.data.recv_into(sink, SINK, socket.MSG_TRUNC)
        return received * 8 / (now - start)

    count(WARM_UP_S)
    report.sendall(json.dumps(count(seconds)).encode())
    count(TIME_LIMIT_S)
