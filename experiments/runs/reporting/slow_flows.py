"""Explanations of completion times: why flows of a run were slow, in parts and in a sentence."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy
import pandas

from pillarbox.experiments.base.text import counted
from pillarbox.experiments.lab.linux.shaping import catch_up_s, checked_delay, port_mtu
from pillarbox.experiments.models.fluid.directed_links import (
    end_of,
    link_at,
    link_count,
    link_factors,
    link_rates_bps,
)
from pillarbox.experiments.models.packets import critical_path
from pillarbox.experiments.models.packets.critical_path import (
    CriticalPaths,
    FlowToExplain,
    Outage,
    Part,
    Ports,
)
from pillarbox.experiments.models.packets.packet_log import NO_LINK, PacketLog
from pillarbox.experiments.models.port_bursts import burst_bytes
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.trials import packet_records
from pillarbox.experiments.runs.trials.records import Run, trial_folder
from pillarbox.hosts.base.fault_kinds import BY_NAME
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

COMPLETED = "completed"
MOST_PARTS = 6  # largest number of parts in a sentence; the rest is summed up
LEAST_SHARE = 0.02  # smallest share of a part in a sentence
# Kinds whose parts at different ports are one part of a sentence, and its text.
WHOLE = {
    critical_path.SENDING: "sending its own data at the rate of the cables",
    critical_path.PROPAGATION: "propagation on cables",
    critical_path.ACK_DELAY: "waiting for delayed acknowledgements",
    critical_path.SENDER: "a pause of the sender",
    critical_path.START: "before its first packet",
    critical_path.MACHINE: "late timers and programs",
    critical_path.UNKNOWN: "not known, because packets were not logged",
}
REPETITIONS = {
    critical_path.TIMEOUT: "in retransmission time-outs",
    critical_path.RECOVERY: "in fast recovery",
}


class NamedPart(NamedTuple):
    """A part of a flow's completion time, with names instead of numbers."""

    kind: str
    seconds: float
    port: str  # name of the port's interface, such as s3-eth2; empty if the part has none
    flows: float  # mean number of other flows ahead
    fault: str


@dataclass(frozen=True)
class Explanation:
    """Parts of a flow's completion time; they add up to `seconds`."""

    trial: int  # counted from 1
    flow: int
    source: str
    destination: str
    volume_bytes: int
    start_s: float
    seconds: float
    ideal_s: float | None
    parts: tuple[NamedPart, ...]

    def sentence(self) -> str:
        """Return the explanation as a sentence without the flow's name."""
        ideal = ""
        if self.ideal_s:
            ideal = f", {self.seconds / self.ideal_s:.3g} times the ideal"
        return f"{_seconds(self.seconds, self.seconds)}{ideal}: {self._parts_text()}"

    def line(self) -> str:
        """Return the explanation with the names of the flow and its servers."""
        ends = f"{self.source} -> {self.destination}, {self.volume_bytes:,} bytes"
        return f"trial {self.trial}, flow {self.flow} ({ends}): {self.sentence()}"

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON data."""
        parts = [
            {
                "kind": part.kind,
                "seconds": part.seconds,
                "port": part.port or None,
                "flows": part.flows if part.kind == critical_path.WAITING else None,
                "fault": part.fault or None,
            }
            for part in self.parts
        ]
        own = {name: value for name, value in vars(self).items() if name != "parts"}
        return {**own, "sentence": self.sentence(), "parts": parts}

    def _parts_text(self) -> str:
        merged: defaultdict[NamedPart, float] = defaultdict(float)
        for part in self.parts:
            whole = part._replace(port="", flows=0.0) if part.kind in WHOLE else part
            merged[whole._replace(seconds=0.0)] += part.seconds
        rows = sorted(merged.items(), key=lambda row: -row[1])
        shown = [row for row in rows if row[1] >= LEAST_SHARE * self.seconds][:MOST_PARTS]
        texts = [f"{_seconds(sum_s, self.seconds)} {_text(part)}" for part, sum_s in shown]
        rest = rows[len(shown) :]
        rest_s = sum(sum_s for _, sum_s in rest)
        if round(rest_s, _decimals(self.seconds)):
            texts.append(
                f"{_seconds(rest_s, self.seconds)} in {counted(len(rest), 'smaller part')}"
            )
        return ", ".join(texts)


def _decimals(whole: float) -> int:
    """Return the number of decimals with which a time has three digits."""
    return max(0, 2 - math.floor(math.log10(whole))) if whole > 0 else 0


def _seconds(value: float, whole: float) -> str:
    """Return a part of a time with the decimals of the whole time."""
    return f"{value:.{_decimals(whole)}f} s"


def _text(part: NamedPart) -> str:
    if part.kind in WHOLE:
        return WHOLE[part.kind]
    if part.kind == critical_path.WAITING:
        return f"waiting at {part.port} behind {counted(max(1, round(part.flows)), 'flow')}"
    if part.kind == critical_path.REROUTING:
        return f"until lost data took another path ({part.fault})"
    loss = f"after a drop at {part.port}" if part.port else "after late packets"
    return f"{REPETITIONS[part.kind]} {loss}"


class TrialPackets(NamedTuple):
    """Packet log of a trial, its flows, and the network that they used."""

    trial: int  # counted from 0
    topology: Topology
    log: PacketLog
    ports: Ports
    flows: pandas.DataFrame
    events: pandas.DataFrame


def logged_trial(run: Run, trial: int) -> TrialPackets:
    """Return the recorded packet log of a trial."""
    record = _record(run, trial)
    system = _system(run, record["system"])
    links = link_count(system.topology)
    log = packet_records.read_packets(trial_folder(run.folder, trial), links)
    flows = run.flows[run.flows["trial"] == trial]
    events = run.events[run.events["trial"] == trial]
    return TrialPackets(trial, system.topology, log, ports_of(system), flows, events)


def simulated_trial(run: Run, trial: int) -> TrialPackets:
    """Return a trial's flows with the ends that a simulation computes, and its packet log."""
    from pillarbox.experiments.runs.reporting.overlay import repeated

    _record(run, trial)
    records = tuple(one for one in run.records if one["trial"] == trial)
    for found in repeated(replace(run, records=records)):
        require(
            found.multipath is None and bool(found.flows["volume_bytes"].notna().all()),
            "a simulation explains TCP flows with a volume: choose another run",
        )
        start_s = found.flows["start_s"].to_numpy(numpy.float64)
        volume_bytes = found.flows["volume_bytes"].to_numpy(numpy.int64)
        results = found.simulated(start_s, volume_bytes, logs_packets=True)
        assert results.log is not None
        numbers = found.flows["flow"].to_numpy(numpy.int64)
        flows = found.flows.assign(
            end_s=results.end_s,
            delivered_bytes=volume_bytes,
            status=COMPLETED,
            slowdown=(results.end_s - start_s) / found.flows["alone_s"],
        )
        log = results.log._replace(flow=numbers[results.log.flow])
        return TrialPackets(
            trial, found.topology, log, ports_of(found.system), flows, run.events.iloc[:0]
        )
    raise AssertionError("a trial with a record has flows")


def _record(run: Run, trial: int) -> dict[str, Any]:
    """Return the record of a completed trial; raise PillarboxError if there is none."""
    found = [one for one in run.records if one["trial"] == trial]
    require(bool(found), f"{run.folder} has no trial {trial + 1}: it has {len(run.records)}")
    (record,) = found
    require(record["status"] == COMPLETED, f"trial {trial + 1} failed: {record['reason']}")
    return record


def _system(run: Run, name: str) -> System:
    return next(system for system in run.plan.systems if system.name == name)


def ports_of(system: System) -> Ports:
    """Return the ports of a lab of a system."""
    topology = system.topology
    heads = numpy.full(link_count(topology), NO_LINK)
    for node in range(topology.nodes):
        for port, plug in topology.neighbours(node):
            heads[link_at(topology, node, port)] = plug.node
    rate_bps = numpy.full(len(heads), numpy.inf)
    burst_s = numpy.zeros(len(heads))
    if system.rate_mbit is not None:
        rate_bps[:] = link_rates_bps(topology, system.rate_mbit * 1e6)
        mtu, catch_up = port_mtu(system.mtu, topology.ports > 1), catch_up_s(system.catch_up)
        for rate in numpy.unique(rate_bps):
            burst_s[rate_bps == rate] = burst_bytes(rate / 1e6, mtu, catch_up) * 8 / rate
    delay = checked_delay(system.delay, None)
    delay_s = (delay.delay_s if delay else 0.0) * link_factors(topology, topology.factors.delays)
    return Ports(heads, rate_bps, burst_s, delay_s)


def completed(flows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the flows that completed, with times of their start and end."""
    took_s = flows["end_s"] - flows["start_s"]
    return flows[(flows["status"] == COMPLETED) & numpy.isfinite(took_s)]


def slowest(flows: pandas.DataFrame, count: int) -> pandas.DataFrame:
    """Return the completed flows with the largest slowdown, or without slowdowns the longest."""
    done = completed(flows)
    took_s = done["end_s"] - done["start_s"]
    order = done["slowdown"].where(done["slowdown"].notna(), took_s)
    return done.loc[order.sort_values(ascending=False, kind="stable").index[:count]]


def explained(trial: TrialPackets, flows: pandas.DataFrame) -> Iterator[Explanation]:
    """Yield the explanation of each of these flows of a trial."""
    names = [f"{row.event} {row.what}" for row in trial.events.itertuples()]
    paths = CriticalPaths(trial.log, trial.ports, list(_outages(trial.events)))
    server = trial.topology.server
    for row in flows.itertuples():
        wanted = FlowToExplain(
            int(row.flow),
            server(row.source),
            server(row.destination),
            float(row.start_s),
            float(row.end_s),
            int(row.delivered_bytes),
        )
        parts = paths.parts(wanted)
        yield Explanation(
            trial.trial + 1,
            wanted.flow,
            row.source,
            row.destination,
            wanted.volume_bytes,
            wanted.start_s,
            sum(part.seconds for part in parts),
            None if pandas.isna(row.alone_s) else float(row.alone_s),
            tuple(_named(trial.topology, part, names) for part in parts),
        )


def _outages(events: pandas.DataFrame) -> Iterator[Outage]:
    """Yield the times in which faults lose packets: until stopped flows continue."""
    for number, row in enumerate(events.itertuples()):
        if row.event not in BY_NAME:  # a repair
            continue
        after_s = next(
            (value for value in (row.rerouted_s, row.detected_s) if not pandas.isna(value)), None
        )
        if after_s is not None:
            yield Outage(number, float(row.at_s), float(row.at_s) + float(after_s))


def _named(topology: Topology, part: Part, faults: Sequence[str]) -> NamedPart:
    port = "" if part.link == NO_LINK else topology.interface(*end_of(topology, part.link))
    fault = faults[part.fault] if part.fault >= 0 else ""
    return NamedPart(part.kind, part.seconds, port, part.flows, fault)
