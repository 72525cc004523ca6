"""TCP over one relay: the kernel's IP forwarding, eBPF with each header, a loop in Python."""

from __future__ import annotations

import os
import random
import selectors
import shutil
import socket
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial

from pillarbox.experiments.base.processes import beside
from pillarbox.hosts.live.lab_programs import available
from pillarbox.hosts.wire.frame import ETH_IP
from pillarbox.hosts.wire.ipv4 import decrement_ttl
from pillarbox.topos.base.addressing import dotted_quad
from tests.benches._frame import Row
from tests.benches._three_servers import (
    MTU,
    RELAY,
    A,
    B,
    ThreeServers,
    encapsulations,
    forwarding,
    ipv4,
    mac,
)

GOAL = 0.97
SECONDS, ROUNDS = 0.15, 31  # seconds and number of measurements: other load disturbs few short ones
QUICK_SECONDS, QUICK_ROUNDS = 0.05, 1
RESAMPLES = 2000
SEED = 1
NOTES = f"""
One TCP connection (Reno, MTU {MTU}) from A over a relay to B, each a network namespace, with a
bridge between neighbours; each end of the connection runs on a separate processor. The cases take
turns, in a new order each round. of_kernel: the median of a case's rates divided by the median of
the kernel's IP forwarding (goal: {GOAL}); low and high are its 90 % confidence interval (bootstrap
over the rounds). "kernel again" measures the kernel a second time: its deviation from 1 is the
machine's noise.
Frames bypass bridges where eBPF forwards, as in a lab (`bpf.straight_on`); "kernel past bridges" is
the kernel's forwarding with the same bypass.
Under eBPF all three servers work like servers of a lab: A's applications send into a TUN, and eBPF
adds the header too; only the decisions are installed in advance. The loop in Python is
straightforward code: a packet socket on each port, every packet through the interpreter, without
super-packets, which it could not send; A and B use the kernel's own stack in this case.
"""
KERNEL, PYTHON = "kernel", "loop in Python"

Case = Callable[[], AbstractContextManager[ThreeServers]]


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each kind of relay."""
    seconds, rounds = (QUICK_SECONDS, QUICK_ROUNDS) if quick else (SECONDS, ROUNDS)
    cases = {name: CASES[name] for name in (QUICK_CASES if quick else CASES)}
    bad = {name: f"skipped: {why}" for name, why in _reasons(cases).items() if why}
    rates: dict[str, list[float]] = {name: [] for name in cases if name not in bad}
    drawn = random.Random(SEED)
    with ExitStack() as stack:
        labs = {name: stack.enter_context(cases[name]()) for name in rates}
        for _ in range(rounds):
            for name in drawn.sample(list(labs), len(labs)):
                try:
                    rates[name].append(labs[name].goodput_bps(seconds))
                except OSError as error:
                    bad[name] = f"failed: {error}"
    for name in cases:
        row: Row = {"relay": name, "goodput_gbps": None, "of_kernel": None, "low": None}
        row |= {"high": None, "outcome": bad.get(name) or bad.get(KERNEL) or "ok"}
        if row["outcome"] == "ok":
            row |= _compared(rates[name], rates[KERNEL])
            if name in BY_EBPF and not quick and row["of_kernel"] < GOAL:
                row["outcome"] = f"missed: {GOAL} wanted"
        yield row


def _reasons(cases: Iterable[str]) -> dict[str, str]:
    """Return the reason why each kind of relay cannot run on this machine, empty if it can."""
    if os.geteuid():
        return dict.fromkeys(cases, "network namespaces need root")
    no_ebpf = available()
    no_ethtool = "" if shutil.which("ethtool") else "ethtool is missing"
    return {
        name: no_ebpf if name in BY_EBPF else no_ethtool if name == PYTHON else "" for name in cases
    }


def _compared(rates: list[float], kernel: list[float]) -> Row:
    drawn = random.Random(SEED)
    rounds = range(len(rates))
    shares = []
    for _ in range(RESAMPLES):
        again = drawn.choices(rounds, k=len(rates))
        shares.append(_ratio_of_medians([rates[i] for i in again], [kernel[i] for i in again]))
    low, *_, high = statistics.quantiles(shares, n=20)
    return {
        "goodput_gbps": statistics.median(rates) / 1e9,
        "of_kernel": _ratio_of_medians(rates, kernel),
        "low": low,
        "high": high,
    }


def _ratio_of_medians(rates: list[float], kernel: list[float]) -> float:
    return statistics.median(rates) / statistics.median(kernel)


# -- the kinds of relays -----------------------------------------------------------------------


@contextmanager
def _by_ebpf(encapsulation: str) -> Iterator[ThreeServers]:
    with forwarding(encapsulations()[encapsulation]) as (lab, _):
        yield lab


@contextmanager
def _routed(*, straight_on: bool = False) -> Iterator[ThreeServers]:
    """Yield the network of A, relay and B with IP addresses, without forwarding at the relay."""
    with ThreeServers(straight_on=straight_on) as lab:
        for server, far, port in ((A, B, 0), (B, A, 0), (RELAY, A, 0), (RELAY, B, 1)):
            next_mac = mac(RELAY, int(server == B)) if server != RELAY else mac(far, 0)
            device, to = f"eth{port}", dotted_quad(ipv4(far))
            commands = [
                f"link set {device} mtu {MTU}",
                f"route add {to}/32 dev {device}",
                f"neigh add {to} lladdr {next_mac.hex(':')} dev {device} nud permanent",
            ]
            if server != RELAY:
                commands.insert(1, f"addr add {dotted_quad(ipv4(server))}/32 dev {device}")
            lab.servers[server].ip(*commands)
        yield lab


@contextmanager
def _by_kernel(*, straight_on: bool = False) -> Iterator[ThreeServers]:
    with _routed(straight_on=straight_on) as lab:
        lab.servers[RELAY].sysctl("ipv4/ip_forward", 1)
        yield lab


@contextmanager
def _by_python() -> Iterator[ThreeServers]:
    with _routed() as lab:
        for server in (A, B):
            # Offloading is disabled, so that packets have link size and valid checksums.
            with lab.servers[server].entered():
                command = ["ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off"]
                subprocess.run(command, check=True, capture_output=True)

        def forward() -> None:
            with lab.servers[RELAY].entered():
                ports = [_packet_socket("eth0"), _packet_socket("eth1")]
            _forward(ports, [mac(B, 0) + mac(RELAY, 1), mac(A, 0) + mac(RELAY, 0)])

        with beside(forward):
            yield lab


def _packet_socket(name: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    port.bind((name, ETH_IP))
    return port


def _forward(ports: list[socket.socket], next_macs: list[bytes]) -> None:
    """Forward packets between the relay's two ports forever, in Python."""
    ready = selectors.DefaultSelector()
    for number, port in enumerate(ports):
        ready.register(port, selectors.EVENT_READ, number)
    while True:
        for key, _ in ready.select():
            frame, (_, _, kind, *_) = ports[key.data].recvfrom(65536)
            if kind == socket.PACKET_HOST:
                ethernet = next_macs[key.data] + frame[12:14]
                with suppress(
                    OSError
                ):  # a packet is dropped if the queue of the relay's port is full
                    ports[1 - key.data].send(ethernet + decrement_ttl(frame[14:]))


BY_EBPF = {
    "eBPF, plain IP": "plain IP",
    "eBPF, plain IP by flow": "plain IP by flow",
    "eBPF, DCN header": "DCN",
    "eBPF, DCN header, proxy set": "DCN, proxy set and cleared",
    "eBPF, BCube header": "BCube",
    "eBPF, IP in IP": "IP in IP",
}
CASES: dict[str, Case] = {
    KERNEL: _by_kernel,
    "kernel again": _by_kernel,
    "kernel past bridges": partial(_by_kernel, straight_on=True),
    **{name: partial(_by_ebpf, encapsulation) for name, encapsulation in BY_EBPF.items()},
    PYTHON: _by_python,
}
QUICK_CASES = (KERNEL, "eBPF, DCN header", PYTHON)
