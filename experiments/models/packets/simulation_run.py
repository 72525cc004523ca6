"""Run of a packet simulation: a thread for each part of the network, and sums of their results."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints, zero_records
from pillarbox.experiments.models.packets.packet_engine import (
    least_free_packets,
    most_logged,
    process_events,
)
from pillarbox.experiments.models.packets.packet_log import LoggedPacket
from pillarbox.experiments.models.packets.simulation_state import (
    EVENTS,
    FREE,
    LOGGED,
    Samples,
    SimulationState,
)
from pillarbox.experiments.models.packets.state import Packet
from pillarbox.experiments.models.packets.windows import abort
from pillarbox.experiments.models.simulator.compiled import compile_in_place, native_in_place


class SimulationPart(NamedTuple):
    """Part of a packet simulation: its state and samples, and the flows that start in it."""

    state: SimulationState
    samples: Samples
    order: Ints  # numbers of the flows, in the order of their start times
    start_s: Floats  # start times in this order


class SimulationTotals(NamedTuple):
    """Sums over all parts of a packet simulation."""

    state: SimulationState  # final state of the first part
    samples: Samples
    passed: Ints  # packets forwarded by each link
    dropped: Ints
    drops: Ints  # dropped data packets and ACKs of each flow
    events: int


def empty_samples(moments_s: Floats, links: Ints) -> Samples:
    """Return the samples of a simulation that has not begun."""
    count = len(moments_s)
    delivered, active = numpy.zeros(count, numpy.int64), numpy.zeros(count, numpy.int64)
    return Samples(moments_s, links, numpy.zeros((count, len(links))), delivered, active)


def run_packet_simulation(parts: Sequence[SimulationPart], until_s: float) -> SimulationTotals:
    """Run the packet simulation until `until_s` or the last packet."""
    states = _run_parts(parts, until_s)
    samples = parts[0].samples
    return SimulationTotals(
        states[0],
        samples._replace(
            queued=numpy.sum([part.samples.queued for part in parts], axis=0),
            delivered=numpy.sum([part.samples.delivered for part in parts], axis=0),
            active=numpy.sum([part.samples.active for part in parts], axis=0),
        ),
        numpy.sum([state.links["passed"] for state in states], axis=0),
        numpy.sum([state.links["dropped"] for state in states], axis=0),
        numpy.sum([state.drops for state in states], axis=0),
        sum(int(state.counts[EVENTS]) for state in states),
    )


def _run_parts(parts: Sequence[SimulationPart], until_s: float) -> list[SimulationState]:
    if len(parts) == 1:
        return [_run_part(parts[0], until_s)]
    # Threads that wait for one another must not compile.
    compile_in_place(process_events, (*parts[0], until_s))
    with ThreadPoolExecutor(len(parts)) as pool:
        try:
            runs = [pool.submit(_run_part, part, until_s) for part in parts]
            return [run.result() for run in runs]
        except BaseException:
            abort(parts[0].state.exchange)
            raise


def _run_part(part: SimulationPart, until_s: float) -> SimulationState:
    state = part.state
    state.counts[FREE] = len(state.unused)
    try:
        while not native_in_place(process_events)(state, *part[1:], until_s):
            state = _enlarge(state)
    except BaseException:
        abort(state.exchange)
        raise
    return state


def _enlarge(state: SimulationState) -> SimulationState:
    """Double the packet log if it is full, and the table of packet records if few are free."""
    if state.counts[LOGGED] > most_logged(state):
        log = zero_records(LoggedPacket, 2 * len(state.log))
        log[: len(state.log)] = state.log
        state = state._replace(log=log)
    if state.counts[FREE] >= least_free_packets(state):
        return state
    # Free records stay in front, new ones follow.
    count, free = len(state.packets), int(state.counts[FREE])
    packets, unused = zero_records(Packet, 2 * count), numpy.zeros(2 * count, numpy.int32)
    packets[:count] = state.packets
    unused[:free] = state.unused[:free]
    unused[free : free + count] = numpy.arange(count, 2 * count)
    state.counts[FREE] = free + count
    data_acked = numpy.resize(state.data_acked, 2 * len(state.data_acked))
    return state._replace(packets=packets, unused=unused, data_acked=data_acked)
