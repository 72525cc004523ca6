"""A network that grows and shrinks during all-to-all traffic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.lab.linux.measurement import in_child
from pillarbox.experiments.models.workloads.flows import COMPLETED, Flow, FlowResult, Sending
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from tests.benches._frame import Row
from tests.benches._labs import hindrance, sandboxed

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.lab.traffic.generator import Generator

NETWORKS = ("dcell,4,1,servers=16", "bcube,4,1,servers=8")
PLANE, RATE_MBIT, MTU = "ebpf", 20.0, 9000  # plane, link rate and MTU that two processors can carry
PHASE_S, QUICK_S = 6.0, 1.5
SETTLED_S = 1.0  # time for TCP to converge after a resize, in seconds
INTERVAL_S = 0.5
TIME_LIMIT_S = 200.0
SENDING = Sending(interval_s=INTERVAL_S, timeout_s=2 * TIME_LIMIT_S)
TRACED = 29  # packets are traced between one of 29 server pairs
BEFORE, GROWN, JOINED, SHRUNK = "before", "grown", "new ones send", "shrunk"
NOTES = f"""
All servers of the partial network send to all others, over connections that last for the whole run
(cables of {RATE_MBIT:.0f} Mbit/s, eBPF plane). Meanwhile the network grows to its full size; then
the new servers send too, and leave. goodput_mbps: goodput of the lasting connections, from
{SETTLED_S:.0f} s after a change; new_mbps: goodput of the other connections. took_s: duration of
the change; least_mbps: minimum goodput of the lasting connections in any {INTERVAL_S} s of the
change and of the second after it. broken: number of broken lasting connections. paths: number of
traced packets on the path that the routing computes for the current size.
"""


class GrowthPhase(NamedTuple):
    """A period with a constant network size; times are seconds after the flows' start."""

    name: str
    topology: Topology
    changed_s: float  # start of the preceding change of the network size
    begin_s: float
    end_s: float
    paths: str


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each phase of each network."""
    why = hindrance(PLANE)
    for spec in NETWORKS[:1] if quick else NETWORKS:
        if why:
            yield {"network": spec, "outcome": f"skipped: {why}"}
            continue
        phase_s = QUICK_S if quick else PHASE_S
        result = in_child(phases_of, spec, phase_s, time_limit_s=TIME_LIMIT_S)
        failed: list[Row] = [{"outcome": f"failed: {result.failure}"}]
        yield from ({"network": spec, **each} for each in result.value or failed)


def phases_of(spec: str, phase_s: float) -> list[Row]:
    """Grow and shrink a lab in a sandbox; return a row for each network size."""
    small = parse(spec)
    old, new = (set(permutations(range(size.servers), 2)) for size in (small, small.whole))
    phases: list[GrowthPhase] = []
    with sandboxed(small, plane=PLANE, rate_mbit=RATE_MBIT, mtu=MTU) as lab:
        from pillarbox.experiments.lab.traffic.generator import Generator

        with closing(Generator(lab, _flows(old), SENDING)) as lasting:
            barrier_s = _start_sending(lasting)
            phases.append(_measured_phase(lab, BEFORE, small, barrier_s, phase_s))
            phases.append(_measured_phase(lab, GROWN, small.whole, barrier_s, phase_s))
            flows = _flows(new - old)
            with closing(Generator(lab, flows, SENDING)) as joining:
                joined_s = _start_sending(joining) - barrier_s
                phases.append(_measured_phase(lab, JOINED, small.whole, barrier_s, phase_s))
                joined = _end_sending(joining)
            phases.append(_measured_phase(lab, SHRUNK, small, barrier_s, phase_s))
            lasted = _end_sending(lasting)
    rows = [_row(phase, lasted) for phase in phases]
    sending = rows[2]
    sending["new_mbps"] = _mbps(joined, *(at - joined_s for at in phases[2][3:5]))
    sending["broken"] += _broken_flow_count(joined)
    return rows


def _flows(pairs: set[tuple[int, int]]) -> list[Flow]:
    """Return endless TCP flows between server pairs, which the traffic generator ends at last."""
    pairs_in_order = enumerate(sorted(pairs))
    return [Flow(number, *pair, duration_s=TIME_LIMIT_S) for number, pair in pairs_in_order]


def _start_sending(tool: Generator) -> float:
    """Start the traffic generator's flows; return the start time (CLOCK_MONOTONIC)."""
    tool.prepare()
    barrier_s = time.monotonic()
    tool.start(barrier_s)
    return barrier_s


def _end_sending(tool: Generator) -> list[FlowResult]:
    tool.finish()
    while not tool.ended():
        time.sleep(INTERVAL_S)
    return tool.results()


def _measured_phase(
    lab: Lab, name: str, size: Topology, barrier_s: float, phase_s: float
) -> GrowthPhase:
    """Resize a live network, wait for the phase's duration, and trace paths."""
    changed_s = time.monotonic() - barrier_s
    if size != lab.topology:
        lab.resize(size.servers)
    begin_s = time.monotonic() - barrier_s + SETTLED_S
    time.sleep(SETTLED_S + phase_s)
    end_s = time.monotonic() - barrier_s
    pairs = list(permutations(range(size.servers), 2))[::TRACED]
    right = sum(lab.trace(*pair)["path"] == lab.computed(*pair) for pair in pairs)
    return GrowthPhase(name, size, changed_s, begin_s, end_s, f"{right} of {len(pairs)}")


def _row(phase: GrowthPhase, lasted: list[FlowResult]) -> Row:
    """Return the benchmark row of one network size, from flows that run through all sizes."""
    row: Row = {"phase": phase.name, "servers": phase.topology.servers}
    row["goodput_mbps"] = _mbps(lasted, phase.begin_s, phase.end_s)
    row["new_mbps"] = None
    changed = phase.name in (GROWN, SHRUNK)
    row["took_s"] = phase.begin_s - SETTLED_S - phase.changed_s if changed else None
    row["least_mbps"] = _least_mbps(lasted, phase.changed_s, phase.begin_s) if changed else None
    row["broken"], row["paths"] = _broken_flow_count(lasted), phase.paths
    right, _, traced = phase.paths.split()
    missed = row["broken"] or right != traced
    return row | {"outcome": "missed: a connection broke or a path is wrong" if missed else "ok"}


def _broken_flow_count(results: list[FlowResult]) -> int:
    return sum(result.status != COMPLETED for result in results)


def _by_interval(results: list[FlowResult]) -> dict[tuple[float, float], int]:
    """Return the bytes delivered by all flows, by begin and end of each interval."""
    delivered: dict[tuple[float, float], int] = {}
    for result in results:
        for one in result.intervals:
            key = one.begin_s, one.end_s
            delivered[key] = delivered.get(key, 0) + one.delivered_bytes
    return delivered


def _mbps(results: list[FlowResult], begin_s: float, end_s: float) -> float:
    """Return the goodput of all flows in the intervals within a period, in Mbit/s."""
    found = {
        (begin, end): size
        for (begin, end), size in _by_interval(results).items()
        if begin >= begin_s and end <= end_s
    }
    seconds = sum(end - begin for begin, end in found)
    return sum(found.values()) * 8e-6 / seconds if seconds else 0.0


def _least_mbps(results: list[FlowResult], begin_s: float, end_s: float) -> float:
    """Return the goodput of the slowest interval that overlaps a period, in Mbit/s."""
    return min(
        size * 8e-6 / (end - begin)
        for (begin, end), size in _by_interval(results).items()
        if end > begin_s and begin < end_s
    )
