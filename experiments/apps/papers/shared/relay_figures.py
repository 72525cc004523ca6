"""Reducers of a relay's cost: throughput and processor time of a server that forwards packets.

The papers' relays are in the kernel: the verdicts are about the eBPF relay, if it can be measured,
and else about the relay in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import NamedTuple

from pillarbox.experiments.apps.papers.shared import live_experiments, relay_cost
from pillarbox.experiments.apps.papers.shared.figure import Made, point
from pillarbox.experiments.apps.papers.shared.figure_rows import Measured, Row, number
from pillarbox.experiments.apps.papers.shared.live_experiments import PAPERS_MBIT
from pillarbox.experiments.apps.papers.shared.live_verdicts import VERDICTS
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.experiments.runs.reporting.reproduced.result import Settings
from pillarbox.hosts.base.failures import Failures
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.spec import parse

REPEATS = 8
FAIR = 1500  # MTU in bytes to which relaying costs are relative
HOW = (
    "With eBPF, if available, the relay is in the kernel, like the paper's. Its cost per packet is "
    "the difference between the times of sending over it and to it, in turns, including the switch "
    "after it."
)


@dataclass(frozen=True)
class RelaySweep:
    """A relay, and the packets that it forwards."""

    network: str
    routing: str
    relay: str
    pairs: tuple[tuple[str, ...], ...]  # servers that send to each other over the relay
    rate_mbit: float  # rate of cables, or the full load in each direction
    sweep: tuple[float, ...]  # MTUs in bytes, or loads relative to the full load
    quick_sweep: tuple[float, ...]
    seconds: float  # duration of each measurement
    quick_seconds: float
    sizes: tuple[int, ...] = ()  # sizes of a load's packets in bytes: usual, short
    papers_cost: str = ""  # sentence on the paper's processors per Gbit/s, to print after ours

    def check(self, reducer: str) -> None:
        """Raise PillarboxError if the reducer needs other values."""
        require(
            bool(self.pairs) and all(len(pair) == 2 for pair in self.pairs),
            "relay.pairs are lists of two servers",
        )
        require(
            reducer != "relay-by-mtu" or FAIR in {*self.sweep} & {*self.quick_sweep},
            f"relay.sweep and relay.quick_sweep need the MTU {FAIR}, to which costs are relative",
        )
        require(
            reducer != "relay-by-load" or len(self.sizes) == 2,
            "relay.sizes are two sizes of packets: the usual one, and a short one",
        )

    @property
    def ends(self) -> tuple[str, str, str]:
        """A source, the relay, and a destination behind it."""
        source, destination = self.pairs[0]
        return source, self.relay, destination

    def chosen(self, settings: Settings) -> tuple[float, Sequence[float], float]:
        """Return the rate in Mbit/s, the values of the sweep and the seconds of a measurement."""
        rate_mbit = settings.rate_mbit or self.rate_mbit
        if settings.quick:
            return rate_mbit, self.quick_sweep, self.quick_seconds
        return rate_mbit, self.sweep, self.seconds


class Rows(NamedTuple):
    """Rows of a relay's figure, which name its quantities in `of`."""

    points: Sequence[Row]
    rows: Sequence[Row]
    verdict: str


class Taken(NamedTuple):
    """Values of a quantity, turn by turn, and their ideal."""

    values: Sequence[float]
    ideal: float | None = None
    draws: bool = True  # False for a single value of all turns


Quantities = Mapping[str, Mapping[float, Taken]]  # what was measured, by quantity and x


def _reduced(
    rows: Rows, found: Quantities, kernel: bool, reasons: Iterable[str], note: str
) -> Made:
    """Return a figure of a relay: points, rows, verdict and notes."""
    drawn = [*_measured(rows.points, found)]
    measured = [*drawn, *_measured(rows.rows, found)]
    judged = [one for one in measured if not (kernel and one.row.judged == "without eBPF")]
    word, sentences = VERDICTS[rows.verdict](judged, ())
    return Made(
        [one.point for one in drawn],
        rows=[one.point for one in measured] if rows.rows else (),
        judged=(word, [*sentences, *reasons]),
        notes=(note, HOW),
    )


def _measured(rows: Iterable[Row], found: Quantities) -> Iterator[Measured]:
    """Yield the points of rows; those of quantities that were not measured are left out."""
    for row in rows:
        for at, taken in found.get(row.of, {}).items():
            if row.at in (None, at):
                x = f"{at:g}" if row.x == "{system}" else row.x
                named = point(row.series, x, taken.values, number(row.paper, f"{at:g}"))
                if row.x == "{system}":
                    named = replace(named, x=int(at) if at > 1 else at)
                if not taken.draws:
                    named = replace(named, low=None, high=None, draws=0)
                yield Measured(row, replace(named, ideal=taken.ideal))


# -- by MTU ----------------------------------------------------------------------------------------


class MtuMeasurement(NamedTuple):
    """One measurement of a relay: its flows' goodput, its processor share, and forwarded bits."""

    mtu: int
    goodput_bps: float
    share: float
    forwarded_bps: float  # all headers and acknowledgements included


def by_mtu(sweep: RelaySweep, rows: Rows, settings: Settings) -> Made:
    """Measure a relay of TCP connections at each MTU, in a separate lab each."""
    rate_mbit, swept, seconds = sweep.chosen(settings)
    mtus = [*map(int, swept)]
    pairs, missing = _relayed_pairs(sweep)
    where = sweep.network, sweep.routing, sweep.relay
    found = []
    for turn in range(live_experiments.trial_count(settings, REPEATS)):
        for mtu in mtus:
            settings.say(f"MTU {mtu}, turn {turn + 1}")
            taken = relay_cost.run_in_own_process(
                relay_cost.tcp_use, where, pairs, missing, mtu, rate_mbit, seconds
            )
            found.append(MtuMeasurement(mtu, *taken))
    lab = sweep.network, sweep.routing, max(mtus)
    kernel = relay_cost.repeated_in_labs(
        settings, relay_cost.additional_cost_us, lab, sweep.ends, missing, mtus
    )
    return made_by_mtu(sweep, rows, found, rate_mbit, kernel)


def _relayed_pairs(sweep: RelaySweep) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the pairs of both directions over a relay, and servers missing in the paper's lab."""
    network = parse(sweep.network)
    ends = [(network.server(a), network.server(b)) for a, b in sweep.pairs]
    there = {network.server(sweep.relay), *(end for pair in ends for end in pair)}
    missing = sorted({*range(network.servers)} - there)
    return [*ends, *((b, a) for a, b in ends)], missing


def made_by_mtu(
    sweep: RelaySweep,
    rows: Rows,
    found: list[MtuMeasurement],
    rate_mbit: float,
    kernel: list[list[float]],
) -> Made:
    """Return the figure's points and verdict from the relay's measurements."""
    from pillarbox.experiments.models.fluid.ideal import header_bytes, header_efficiency, ideal

    network = parse(sweep.network)
    header = header_bytes(network, sweep.routing)
    pairs, missing = _relayed_pairs(sweep)
    flows = [Flow(at, *pair, duration_s=sweep.seconds) for at, pair in enumerate(pairs)]
    failures = Failures(frozenset(missing))
    mtus = sorted({one.mtu for one in found})
    costs = {mtu: [o.share / o.goodput_bps for o in found if o.mtu == mtu] for mtu in mtus}
    quantities: dict[str, dict[float, Taken]] = {"goodput": {}, "forwarded": {}, "cost by bit": {}}
    for mtu in mtus:
        own = [one for one in found if one.mtu == mtu]
        best = ideal(network, sweep.routing, flows, 1e9, mtu, failures=failures).total_bps / 1e9
        goodput, forwarded = (
            [bps / rate_mbit / 1e6 for bps in values]
            for values in zip(*((one.goodput_bps, one.forwarded_bps) for one in own), strict=True)
        )
        quantities["goodput"][mtu] = Taken(goodput, best)
        quantities["forwarded"][mtu] = Taken(forwarded, float(len(pairs)))
        # If a relay's cost is per packet, the cost per bit falls as packets become larger.
        by_packets = header_efficiency(header, FAIR) / header_efficiency(header, mtu) * FAIR / mtu
        ratios = [cost / fair for cost, fair in zip(costs[mtu], costs[FAIR], strict=True)]
        quantities["cost by bit"][mtu] = Taken(ratios, by_packets)
    processors = {"a process in Python": mean(costs[FAIR]) * 1e9}
    if kernel:
        us = dict(zip(mtus, zip(*kernel, strict=True), strict=True))
        quantities["cost by packet, eBPF"] = {mtu: Taken(us[mtu]) for mtu in mtus}
        quantities["cost by bit, eBPF"] = {
            mtu: Taken(
                [one / mtu / (fair / FAIR) for one, fair in zip(us[mtu], us[FAIR], strict=True)],
                FAIR / mtu,
            )
            for mtu in mtus
        }
        processors["eBPF in the kernel"] = mean(us[FAIR]) * 1e-6 * 1e9 / (FAIR * 8)
    shown = ", ".join(f"{name} {ours:.3g}" for name, ours in processors.items())
    sentence = f"Processors per Gbit/s at an MTU of {FAIR}: {shown}; {sweep.papers_cost}"
    note = (
        f"Cables of {rate_mbit:g} Mbit/s: rates are multiplied by {PAPERS_MBIT / rate_mbit:g} to "
        "compare. The ideal cost of a relay depends on the number of packets only."
    )
    return _reduced(rows, quantities, bool(kernel), [sentence], note)


# -- by load ---------------------------------------------------------------------------------------


class LoadMeasurement(NamedTuple):
    """One measurement of a relay: load, packet size, processor share and packet counts."""

    load: float
    packet_bytes: int
    share: float  # share of one processor
    packets_s: float  # packets per second that the relay forwarded, both directions
    arrived: float  # share of sent packets that arrived


def by_load(sweep: RelaySweep, rows: Rows, settings: Settings) -> Made:
    """Measure a relay of two UDP streams at each load, in one lab per turn."""
    rate_mbit, loads, seconds = sweep.chosen(settings)
    long, short = sweep.sizes
    cases = [*((load, long) for load in loads), (loads[-1], short)]
    where = sweep.network, sweep.routing, sweep.ends
    # full load in one direction; short packets have the same rate
    packets_s = rate_mbit * 125_000 / long
    found = []
    for turn in range(live_experiments.trial_count(settings, REPEATS)):
        settings.say(f"turn {turn + 1}: {len(cases)} loads of {seconds:g} s")
        done = relay_cost.run_in_own_process(
            relay_cost.udp_uses, where, cases, packets_s, rate_mbit, seconds
        )
        found += [LoadMeasurement(*one) for one in done]
    lab = sweep.network, sweep.routing, FAIR
    kernel = relay_cost.repeated_in_labs(
        settings, relay_cost.additional_cost_us, lab, sweep.ends, [], sweep.sizes
    )
    return made_by_load(sweep, rows, found, rate_mbit, kernel)


def made_by_load(
    sweep: RelaySweep,
    rows: Rows,
    found: list[LoadMeasurement],
    rate_mbit: float,
    kernel: list[list[float]],
) -> Made:
    """Return the figure's points and verdict from the relay's measurements."""
    (long, short), full = sweep.sizes, max(one.load for one in found)
    shares = {
        load: [one.share for one in found if (one.load, one.packet_bytes) == (load, long)]
        for load in sorted({one.load for one in found})
    }
    long_us, short_us = (
        [o.share / o.packets_s * 1e6 for o in found if (o.packet_bytes, o.load) == (size, full)]
        for size in (long, short)
    )
    quantities: dict[str, dict[float, Taken]] = {
        "share": {load: Taken(own) for load, own in shares.items()},
        "share of full": {
            load: Taken([share / most for share, most in zip(own, shares[full], strict=True)])
            for load, own in shares.items()
            if load != full
        },
        "cost of a packet": {full: Taken(long_us)},
        "cost of a short packet": {full: Taken(short_us)},
        "arrived": {full: Taken([min(one.arrived for one in found)], draws=False)},
    }
    if kernel:
        # time of a packet in µs if the processor's share is 1 at 1 Gbit/s in each direction
        whole_us = 1e6 / (2 * PAPERS_MBIT * 125_000 / long)
        quantities |= {
            "share, eBPF": {full: Taken([us / whole_us for us, _ in kernel])},
            "cost of a packet, eBPF": {full: Taken([us for us, _ in kernel])},
            "short over long, eBPF": {full: Taken([b / a for a, b in kernel])},
        }
    length = (
        f"In Python a packet of {short} bytes costs {mean(short_us) / mean(long_us):.2f} times one "
        f"of {long}; in the paper the length does not matter."
    )
    note = (
        f"Full load is {rate_mbit:g} Mbit/s in each direction: loads are multiplied by "
        f"{PAPERS_MBIT / rate_mbit:g}. The paper's value is an upper bound, on a machine of about "
        "2010."
    )
    costs = _measured([one for one in rows.rows if one.of == "cost of a packet"], quantities)
    excess = [
        f"In Python a packet costs {ours:.1f} µs, {ours / papers:.0f} times the paper's bound of "
        f"{papers:.2f}: the relay is interpreted here, compiled kernel code in the paper."
        for _, cost in costs
        if (ours := cost.ours or 0.0) > (papers := cost.paper or ours)
    ]
    return _reduced(rows, quantities, bool(kernel), [*excess, length], note)
