"""Liao 2012, Fig. 7: a relay's processor time against the UDP load that it forwards.

Paper: servers A and B send each other datagrams of 1024 bytes over server P, whose Click element
forwards them in the kernel. The curve is not printed as numbers; section 5.2 says that at full
load, 1 Gbit/s in each direction, P takes less than half of one processor, and that the cost of
forwarding does not depend on the packets' length.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from experiments.apps.papers.shared import live_experiments, relay_cost
from experiments.apps.papers.shared.figure import Claim, Made, figure, point, verdict
from experiments.runs.reporting.reproduced.result import Point, Settings

if TYPE_CHECKING:
    from experiments.lab.emulation.lab import Lab

NETWORK, ROUTING = "dpillar,4,3", "mp-both"
# servers on the only path of two hops, in both directions
A, RELAY, B = "0.0.0.0", "1.0.0.1", "2.0.0.1"
PACKET_BYTES, SHORT_BYTES = 1024, 256
UDP_IP_BYTES = 28
RATE_MBIT = 20.0  # rate of full load in each direction
LOADS, QUICK_LOADS = (0.2, 0.4, 0.6, 0.8, 1.0), (0.5, 1.0)
SECONDS, QUICK_SECONDS = 3.0, 1.0
SPARE = 1.5  # cables' rate relative to full load: headroom for other traffic
PORT = 5002
TICK_S = 0.002  # interval between a sender's batches
# Section 5.2: upper bound in processors, for 1 Gbit/s in each direction.
PAPERS_SHARE = 0.5
ARRIVED = 0.98  # a load is valid only if this share of its packets arrives
COST = "processor by packet, µs"
ALIKE = 0.15  # tolerance of a short packet's cost, relative to a long one's
STRAIGHT = 0.15  # tolerance of the deviation from proportionality, relative to full load


class LoadMeasurement(NamedTuple):
    """One measurement of a relay: load, packet size, processor share and packet counts."""

    load: float
    packet_bytes: int
    share: float  # share of one processor
    packets_s: float  # packets per second that the relay forwarded, both directions
    arrived: float  # share of sent packets that arrived


@figure(
    "dpillar-fig7",
    "a relay's processor time against the UDP load that it forwards (Liao 2012)",
    "CPU time of a relay by UDP load",
    "load each way, Gbit/s",
    "share of one processor",
    live=True,
)
def fig7(settings: Settings) -> Made:
    """Reproduce Liao 2012, Fig. 7: measure a relay at each UDP load, in one lab per turn."""
    rate_mbit = settings.rate_mbit or RATE_MBIT
    loads, seconds = (QUICK_LOADS, QUICK_SECONDS) if settings.quick else (LOADS, SECONDS)
    cases = [(load, PACKET_BYTES) for load in loads] + [(loads[-1], SHORT_BYTES)]
    found = []
    for turn in range(live_experiments.trial_count(settings)):
        settings.say(f"turn {turn + 1}: {len(cases)} loads of {seconds:g} s")
        done = relay_cost.run_in_own_process(measure, cases, rate_mbit, seconds)
        found += [LoadMeasurement(*one) for one in done]
    return made(found, rate_mbit, relay_cost.repeated_in_labs(settings, measure_kernel))


def measure(
    cases: list[tuple[float, int]], rate_mbit: float, seconds: float
) -> list[tuple[float, int, float, float, float]]:
    """Return the relay's processor share at each load, minus that of idling."""
    # full load in one direction; short packets have the same rate
    packets_s = rate_mbit * 125_000 / PACKET_BYTES
    with relay_cost.sandboxed_relay_lab(NETWORK, ROUTING, SPARE * rate_mbit, 1500) as lab:
        a, relay, b = (lab.server(name) for name in (A, RELAY, B))
        idle = relay_cost.idle_forwarder_use(lab, relay)
        found = []
        for load, size in cases:
            streams = [_Stream(lab, a, b, size), _Stream(lab, b, a, size)]
            for stream in streams:
                stream.start(load * packets_s)
            time.sleep(seconds / 5)  # let the first packets set up their paths before measuring
            busy = relay_cost.ForwarderLoad(lab, relay)
            time.sleep(seconds)
            used = busy.end()
            for stream in streams:
                stream.stop()
            arrived = sum(s.received for s in streams) / sum(s.sent for s in streams)
            share, frames_s = used.share - idle.share, used.frames_s - idle.frames_s
            found.append((load, size, share, frames_s, arrived))
    return found


def measure_kernel() -> list[float]:
    """Return the time of relaying a packet under eBPF in µs, for long and for short packets."""
    with relay_cost.sandboxed_relay_lab(NETWORK, ROUTING, None, 1500, relay_cost.EBPF) as lab:
        ends = lab.server(A), lab.server(RELAY), lab.server(B)
        return relay_cost.additional_relay_cost_us(lab, ends, (PACKET_BYTES, SHORT_BYTES))


class _Stream:
    """UDP stream between two servers at a fixed rate, sent and received by threads."""

    def __init__(self, lab: Lab, source: int, destination: int, packet_bytes: int) -> None:
        self.sent = self.received = 0
        self._data = bytes(packet_bytes - UDP_IP_BYTES)
        self._address = lab.topology.ip(destination), PORT
        with lab.host(destination).live_namespace():
            self._receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with lab.host(source).live_namespace():
            self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._receiver.bind(self._address)
        self._receiver.settimeout(0.2)
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, packets_s: float) -> None:
        """Start sending and receiving the stream's datagrams."""
        runs = (lambda: self._send(packets_s), self._receive)
        self._threads = [threading.Thread(target=run, daemon=True) for run in runs]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending the stream, and receive the datagrams still in flight."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._sender.close()
        self._receiver.close()

    def _send(self, packets_s: float) -> None:
        began_s = time.monotonic()
        while not self._ended.wait(TICK_S):
            due = int((time.monotonic() - began_s) * packets_s)
            while self.sent < due:
                self._sender.sendto(self._data, self._address)
                self.sent += 1

    def _receive(self) -> None:
        while True:
            try:
                self._receiver.recv(PACKET_BYTES)
                self.received += 1
            except TimeoutError:
                if self._ended.is_set():
                    return


def made(found: list[LoadMeasurement], rate_mbit: float, kernel: list[list[float]]) -> Made:
    """Return the figure's points and verdict from the relay's measurements.

    The paper's relay is in the kernel; so the verdict is about the eBPF relay, if it was measured.
    """
    series = "in Python"
    full = max(one.load for one in found)
    points = []
    for load in sorted({one.load for one in found}):
        own = [o.share for o in found if o.load == load and o.packet_bytes == PACKET_BYTES]
        paper = PAPERS_SHARE if load == full else None
        points.append(point(series, load, own, paper))
    long, short = (_relay_packet_costs_us(found, size) for size in (PACKET_BYTES, SHORT_BYTES))
    papers_us = PAPERS_SHARE / (2 * live_experiments.PAPERS_MBIT * 125_000 / PACKET_BYTES) * 1e6
    cost = point(COST, f"{PACKET_BYTES} bytes, Python", long, papers_us)
    costs = [cost]
    judged = [Claim(cost, 0.0, at_most=True)]
    if kernel:
        points.append(point("eBPF", full, [_processor_share(us) for us, _ in kernel], PAPERS_SHARE))
        judged = list(_kernel_claims(kernel, papers_us))
        costs += [claim.row for claim in judged]
    arrived = Point("arrived, of what was sent", "least", min(one.arrived for one in found))
    straight = list(_proportionality_claims(found, full))
    claims = [*judged, Claim(arrived, 0.0, at_least=True, wanted=ARRIVED)]
    claims += [] if kernel else straight
    rows = [
        *points,
        *costs,
        point(COST, f"{SHORT_BYTES} bytes, Python", short),
        *(claim.row for claim in straight),
        arrived,
    ]
    word, reasons = verdict(claims)
    length = (
        f"In Python a packet of {SHORT_BYTES} bytes costs {mean(short) / mean(long):.2f} times one "
        f"of {PACKET_BYTES}; in the paper the length does not matter."
    )
    return Made(
        points,
        rows=rows,
        judged=(word, [*reasons, *_excess_reasons(cost), length]),
        notes=(
            f"Full load is {rate_mbit:g} Mbit/s in each direction: loads are multiplied by "
            f"{live_experiments.PAPERS_MBIT / rate_mbit:g}. The paper's value is an upper bound, "
            "on a machine of about 2010.",
            relay_cost.HOW,
        ),
    )


def _processor_share(packet_us: float) -> float:
    """Return the processor share at 1 Gbit/s in each direction, given a packet's time."""
    return packet_us * 1e-6 * 2 * live_experiments.PAPERS_MBIT * 125_000 / PACKET_BYTES


def _kernel_claims(kernel: list[list[float]], papers_us: float) -> Iterator[Claim]:
    """Yield claims that a packet costs at most the paper's bound, whatever its length."""
    row = point(COST, f"{PACKET_BYTES} bytes, eBPF", [long for long, _ in kernel], papers_us)
    yield Claim(row, 0.0, at_most=True)
    ratios = [short / long for long, short in kernel]
    what = f"{SHORT_BYTES} bytes over {PACKET_BYTES}, eBPF"
    yield Claim(point("processor by packet", what, ratios, 1.0), ALIKE)


def _relay_packet_costs_us(found: list[LoadMeasurement], packet_bytes: int) -> list[float]:
    """Return the relay's processor time per packet at full load, in µs, turn by turn."""
    full = max(one.load for one in found)
    own = [o for o in found if o.packet_bytes == packet_bytes and o.load == full]
    return [one.share / one.packets_s * 1e6 for one in own]


def _proportionality_claims(found: list[LoadMeasurement], full: float) -> Iterator[Claim]:
    """Yield claims that the relay's processor time is proportional to its load."""
    own = [one for one in found if one.packet_bytes == PACKET_BYTES]
    most = [one.share for one in own if one.load == full]
    for load in sorted({one.load for one in own} - {full}):
        shares = [one.share for one in own if one.load == load]
        parts = [share / whole for share, whole in zip(shares, most, strict=True)]
        row = point("share, of that at full load", load, parts)
        yield Claim(row, STRAIGHT, wanted=load / full)


def _excess_reasons(cost: Point) -> list[str]:
    """Return the reason why a relayed packet costs more than the paper's bound, if it does."""
    ours, papers = cost.ours, cost.paper
    assert ours is not None
    assert papers is not None
    if ours <= papers:
        return []
    return [
        f"In Python a packet costs {ours:.1f} µs, {ours / papers:.0f} times the paper's bound of "
        f"{papers:.2f}: the relay is interpreted here, compiled kernel code in the paper."
    ]
