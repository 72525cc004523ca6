"""Guo 2009, Fig. 9: throughput and processor time of a relay at several MTUs.

Paper: five servers of BCube_3, of which 0000 relays four TCP connections (0001 and 0100, 0010 and
1000, both directions) as fast as they can, at 1 Gbit/s. The curves are not printed as numbers;
section 7.4 gives 4 Gbit/s above 1 KB, and the processor's share at 1.5 KB and 9 KB.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from experiments.apps.papers.shared import live_experiments, relay_cost
from experiments.apps.papers.shared.figure import Made, figure, point
from experiments.models.workloads.flows import Flow, Sending
from experiments.runs.reporting.reproduced.result import Point, Settings
from hosts.base.failures import Failures
from topos.base.spec import parse

if TYPE_CHECKING:
    from experiments.lab.emulation.lab import Lab

NETWORK, ROUTING = "bcube,2,3", "bsr"
RELAY = "0.0.0.0"
PAIRS = (("0.0.0.1", "0.1.0.0"), ("0.0.1.0", "1.0.0.0"))
MTUS, QUICK_MTUS = (750, 1500, 3000, 6000, 9000), (1500, 9000)
RATE_MBIT = 10.0  # four times this rate leaves a Python forwarder some idle processor time
SECONDS, QUICK_SECONDS = 4.0, 1.5
SETTLE_S = 0.5  # duration of TCP's slow start, which is not measured
# Paper's values (section 7.4).
PAPERS_GBPS = 4.0
PAPERS_SHARE = {1500: 0.36, 9000: 0.076}
PAPERS_COST = {9000: 0.076 / 0.36}
THROUGHPUT, COST = "throughput, Gbit/s", "processor by bit, of that at 1500"
COST_EBPF, BY_PACKET = f"{COST}, eBPF", "processor by packet, µs, eBPF"
FAIR = 1500  # MTU in bytes to which relaying costs are relative


class RelayMeasurement(NamedTuple):
    """One measurement of a relay: its goodput, and its share of a processor."""

    mtu: int
    goodput_bps: float
    share: float


@figure(
    "bcube-fig9",
    "throughput and processor time of a relay at several MTUs (Guo 2009)",
    "Throughput and CPU time of a relay",
    "MTU, bytes",
    "Gbit/s; processor by bit",
    live=True,
)
def fig9(settings: Settings) -> Made:
    """Reproduce Guo 2009, Fig. 9: measure a relay at each MTU, in a separate lab each."""
    rate_mbit = settings.rate_mbit or RATE_MBIT
    mtus, seconds = (QUICK_MTUS, QUICK_SECONDS) if settings.quick else (MTUS, SECONDS)
    found = []
    for turn in range(live_experiments.trial_count(settings)):
        for mtu in mtus:
            settings.say(f"MTU {mtu}, turn {turn + 1}")
            found.append(
                RelayMeasurement(
                    mtu, *relay_cost.run_in_own_process(measure, mtu, rate_mbit, seconds)
                )
            )
    return made(found, rate_mbit, relay_cost.repeated_in_labs(settings, measure_kernel, mtus))


def _flows(seconds: float) -> tuple[list[Flow], set[int]]:
    """Return Fig. 9's four TCP flows through one relay, and servers missing in the paper's lab."""
    bcube = parse(NETWORK)
    ends = [(bcube.server(a), bcube.server(b)) for a, b in PAIRS]
    pairs = [*ends, *((b, a) for a, b in ends)]
    there = {bcube.server(RELAY), *(end for pair in ends for end in pair)}
    flows = [Flow(number, a, b, duration_s=seconds) for number, (a, b) in enumerate(pairs)]
    return flows, set(range(bcube.servers)) - there


def measure(mtu: int, rate_mbit: float, seconds: float) -> tuple[float, float]:
    """Return four connections' goodput over a relay, and its processor share above idle."""
    from experiments.lab.traffic.generator import Generator

    flows, missing = _flows(seconds)
    with relay_cost.sandboxed_relay_lab(NETWORK, ROUTING, rate_mbit, mtu) as lab:
        relay = lab.server(RELAY)
        _kill_missing(lab, missing)
        idle = relay_cost.idle_forwarder_use(lab, relay)
        with closing(Generator(lab, flows, Sending(timeout_s=seconds + 10))) as sending:
            sending.prepare()
            at_s = time.monotonic() + 0.2
            sending.start(at_s)
            time.sleep(max(0.0, at_s + SETTLE_S - time.monotonic()))
            busy = relay_cost.ForwarderLoad(lab, relay)
            time.sleep(max(0.0, at_s + seconds - time.monotonic()))
            share = busy.end().share - idle.share
            while not sending.ended():
                time.sleep(0.02)
            delivered = sum(
                one.delivered_bytes
                for result in sending.results()
                for one in result.intervals
                if one.begin_s >= SETTLE_S and one.end_s <= seconds
            )
    return delivered * 8 / (seconds - SETTLE_S), share


def measure_kernel(mtus: Sequence[int]) -> list[float]:
    """Return the time in µs of relaying a packet as long as each MTU under eBPF."""
    with relay_cost.sandboxed_relay_lab(NETWORK, ROUTING, None, max(mtus), relay_cost.EBPF) as lab:
        _kill_missing(lab, _flows(0.0)[1])
        (source, destination), *_ = PAIRS
        ends = lab.server(source), lab.server(RELAY), lab.server(destination)
        return relay_cost.additional_relay_cost_us(lab, ends, mtus)


def _kill_missing(lab: Lab, missing: Iterable[int]) -> None:
    """Kill the servers of BCube_3 that the paper's testbed lacks."""
    for server in missing:
        lab.kill(server)
    lab.wait_converged()


def made(found: list[RelayMeasurement], rate_mbit: float, kernel: list[list[float]]) -> Made:
    """Return the figure's points and verdict from the relay's measurements."""
    from experiments.models.fluid.ideal import header_bytes, header_efficiency, ideal

    bcube = parse(NETWORK)
    header = header_bytes(bcube, ROUTING)
    flows, missing = _flows(SECONDS)
    failures = Failures(frozenset(missing))
    mtus = sorted({one.mtu for one in found})
    costs = {mtu: [o.share / o.goodput_bps for o in found if o.mtu == mtu] for mtu in mtus}
    rows = []
    for mtu in mtus:
        own = [one.goodput_bps / rate_mbit / 1e6 for one in found if one.mtu == mtu]
        best = ideal(bcube, ROUTING, flows, 1e9, mtu, failures=failures).total_bps / 1e9
        paper = PAPERS_GBPS if mtu > 1000 else None
        rows.append(replace(point(THROUGHPUT, mtu, own, paper), ideal=best))
    for mtu in mtus:
        paper = PAPERS_COST.get(mtu)
        # If a relay's cost is per packet, the cost per bit falls as packets become larger.
        by_packets = header_efficiency(header, FAIR) / header_efficiency(header, mtu) * FAIR / mtu
        ratios = [cost / fair for cost, fair in zip(costs[mtu], costs[FAIR], strict=True)]
        rows.append(replace(point(COST, mtu, ratios, paper), ideal=by_packets))
    rows += _kernel_points(mtus, kernel)
    # The paper's relay is in the kernel; so the verdict is about the eBPF relay, if measured.
    about = [row for row in rows if row.series in (THROUGHPUT, COST_EBPF if kernel else COST)]
    word, reasons = live_experiments.verdict_with_ideals(about)
    return Made(
        rows,
        judged=(word, [*reasons, *_reasons(mean(costs[FAIR]) * 1e9, kernel, mtus)]),
        notes=(
            f"Cables of {rate_mbit:g} Mbit/s: rates are multiplied by "
            f"{live_experiments.PAPERS_MBIT / rate_mbit:g} to compare. "
            "The ideal cost of a relay depends on the number of packets only.",
            relay_cost.HOW,
        ),
    )


def _kernel_points(mtus: Sequence[int], kernel: list[list[float]]) -> Iterator[Point]:
    """Yield the eBPF relay's cost per packet, and per bit relative to 1500-byte packets."""
    by_bit = [{mtu: us / mtu for mtu, us in zip(mtus, turn, strict=True)} for turn in kernel]
    for at, mtu in enumerate(mtus if kernel else ()):
        yield point(BY_PACKET, mtu, [turn[at] for turn in kernel])
    for mtu in mtus if kernel else ():
        ratios = [turn[mtu] / turn[FAIR] for turn in by_bit]
        yield replace(point(COST_EBPF, mtu, ratios, PAPERS_COST.get(mtu)), ideal=FAIR / mtu)


def _reasons(python: float, kernel: list[list[float]], mtus: Sequence[int]) -> list[str]:
    """Return a sentence on the processor time of forwarding, in processors per Gbit/s."""
    papers = PAPERS_SHARE[FAIR] / PAPERS_GBPS
    costs = {"a process in Python": python}
    if kernel:
        packet_us = mean(turn[mtus.index(FAIR)] for turn in kernel)
        costs["eBPF in the kernel"] = packet_us * 1e-6 * 1e9 / (FAIR * 8)
    shown = ", ".join(f"{name} {ours:.3g}" for name, ours in costs.items())
    return [
        f"Processors per Gbit/s at an MTU of {FAIR}: {shown}; the paper's kernel driver "
        f"{papers:.2g}, or {2 * papers:.2g} if its 36 % are of both cores."
    ]
