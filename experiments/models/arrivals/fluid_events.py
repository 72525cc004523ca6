"""Flows that start, share links max-min fairly, and end: one event per start and per end.

Between two events all rates are constant, so results are exact except for rounding. A flow may wait
for other flows (steps of a collective), and may choose among several paths when it starts. Fluids
have no packets, queues, slow start or propagation delay.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.arrivals.flow_ends import (
    left_bits,
    limited_flow,
    update_due_times,
)
from pillarbox.experiments.models.arrivals.max_min_updates import (
    add_active_flow,
    limits_flows,
    remove_first_flow,
    update_fair_rates,
)
from pillarbox.experiments.models.arrivals.sharing_state import (
    SharingState,
    initial_sharing_state,
)
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.simulator.compiled import native
from pillarbox.experiments.models.simulator.references import by_reference
from pillarbox.topos.base.errors import require

# Volume left of a finished flow due to rounding, as a fraction of its volume.
SENT = 1e-9
NONE = -1


class FluidSimulationResults(NamedTuple):
    """Simulated start, end and path of every flow, and all flows' totals over time."""

    begin_s: Floats  # start of the flow: later than requested if it waited for others
    end_s: Floats  # NaN for a flow that has no path, or waits for a flow that never ends
    path: Ints  # index of the chosen path among the flow's paths
    delivered_bits: Floats  # bits delivered by all flows up to each requested moment
    active: Ints  # number of flows in progress at each requested moment
    events: int  # number of moments at which flows started or ended
    most_active: int
    # All flows' total rate from each event on, until the next event.
    event_s: Floats = numpy.empty(0)
    rate_bps: Floats = numpy.empty(0)
    # For each link of each flow's path: 1 if the link limits other flows at the flow's start; empty
    # unless requested.
    limits: Ints = numpy.empty(0, numpy.int8)


def delivered_bits_at(found: FluidSimulationResults, moments_s: Floats) -> Floats:
    """Return the bits delivered by all flows up to each moment, after the simulation.

    The figures are those of `delivered_bits`, except for rounding.

    >>> chain = Routes(numpy.array([0, 2, 3, 4]), numpy.array([0, 1, 0, 1]))
    >>> volumes, capacity = numpy.array([6.0, 3.0, 14.0]), numpy.array([6.0, 10.0])
    >>> found = simulate_fluid_flows(chain, numpy.zeros(3), volumes, capacity)
    >>> delivered_bits_at(found, numpy.array([0.5, 1.0, 9.0])).tolist()
    [6.5, 13.0, 23.0]
    """
    if not found.events:
        return numpy.zeros(len(moments_s))
    bits = numpy.cumsum(found.rate_bps[:-1] * numpy.diff(found.event_s))
    at_events: Floats = numpy.concatenate([numpy.zeros(1), bits])
    return numpy.interp(moments_s, found.event_s, at_events)


class _FlowsToSimulate(NamedTuple):
    """Arrays of the flows to simulate: start, volume and links of each flow's possible paths."""

    starts: Ints
    links: Ints
    choices: int
    start_s: Floats
    volume_bits: Floats
    order: Ints  # flows that wait for no other, by start time
    waits: Ints  # number of flows that each flow waits for
    next_starts: Ints  # index into `nexts` of the flows that wait for each flow
    nexts: Ints


class _SimulationResults(NamedTuple):
    begin_s: Floats
    end_s: Floats
    path: Ints
    delivered_bits: Floats
    active: Ints
    counts: Ints  # counts[0]: number of events; counts[1]: maximum number of active flows
    event_s: Floats  # for each event: its time, and all flows' total rate from then on
    rate_bps: Floats
    limits: Ints


def simulate_fluid_flows(
    routes: Routes,
    start_s: Floats,
    volume_bits: Floats,
    capacity_bps: Floats,
    *,
    choices: int = 1,
    after: Routes | None = None,
    moments_s: Floats | None = None,
    records_limits: bool = False,
) -> FluidSimulationResults:
    """Return start and end of flows that share links max-min fairly at every moment.

    Parameters
    ----------
    routes : Routes
        Links of each flow's path, or of its paths: those of flow i are rows i * choices and
        following. A path without links means that the flow cannot be routed.
    start_s : array
        Earliest start of each flow, in any order.
    volume_bits : array
        Volume of each flow, more than 0.
    capacity_bps : array
        Capacity of each link.
    choices : int
        Number of paths of each flow. A flow takes the path whose fullest link has the fewest flows
        at its start; among equal ones the shortest, then the first.
    after : Routes, optional
        The flows that each flow waits for, in place of links.
    moments_s : array, optional
        Moments, ascending, at which the delivered volume and the active flows are recorded.
    records_limits : bool
        Whether the results say which links limit flows when a flow starts (`limits`).

    Examples
    --------
    >>> chain = Routes(numpy.array([0, 2, 3, 4]), numpy.array([0, 1, 0, 1]))
    >>> volumes, capacity = numpy.array([6.0, 3.0, 14.0]), numpy.array([6.0, 10.0])
    >>> simulate_fluid_flows(chain, numpy.zeros(3), volumes, capacity).end_s.tolist()
    [1.6, 1.0, 2.0]
    >>> third_after_first = Routes(numpy.array([0, 0, 0, 1]), numpy.array([0]))
    >>> after = third_after_first
    >>> simulate_fluid_flows(chain, numpy.zeros(3), volumes, capacity, after=after).end_s.tolist()
    [1.5, 1.0, 2.9]
    """
    flows = len(start_s)
    require(
        len(volume_bits) == flows and routes.flows == flows * choices,
        f"{flows} simulated flows need as many volumes, and {choices} paths each",
    )
    require(bool((volume_bits > 0).all()), "each simulated flow needs a volume of more than 0 bits")
    require(
        bool(numpy.isfinite(start_s).all()),
        "each simulated flow needs a finite earliest start time",
    )
    moments_s = numpy.empty(0) if moments_s is None else numpy.asarray(moments_s, numpy.float64)
    waits, nexts = _dependencies(after, flows)
    first = numpy.flatnonzero(waits == 0)
    given = _FlowsToSimulate(
        routes.starts.astype(numpy.int64),
        routes.links.astype(numpy.int32),
        choices,
        numpy.asarray(start_s, numpy.float64),
        numpy.asarray(volume_bits, numpy.float64),
        first[numpy.argsort(start_s[first], kind="stable")],
        waits,
        *nexts,
    )
    found = _SimulationResults(
        numpy.full(flows, numpy.nan),
        numpy.full(flows, numpy.nan),
        numpy.zeros(flows, numpy.int32),
        numpy.zeros(len(moments_s)),
        numpy.zeros(len(moments_s), numpy.int64),
        numpy.zeros(2, numpy.int64),
        numpy.empty(2 * flows),
        numpy.empty(2 * flows),
        numpy.zeros(len(routes.links) if records_limits else 0, numpy.int8),
    )
    state = initial_sharing_state(routes, flows, numpy.array(capacity_bps, numpy.float64))
    native(_process_events)(given, found, state, moments_s)
    events, most = found.counts.tolist()
    course = found.event_s[:events], found.rate_bps[:events]
    return FluidSimulationResults(*found[:5], events, most, *course, found.limits)


def _dependencies(after: Routes | None, flows: int) -> tuple[Ints, Routes]:
    """Return the number of flows that each flow waits for, and the flows that wait for each."""
    none = numpy.zeros(flows + 1, numpy.int64)
    if after is None:
        return none[1:].copy(), Routes(none, numpy.empty(0, numpy.int64))
    require(after.flows == flows, f"{flows} flows need as many lists of flows that they wait for")
    waits = numpy.diff(after.starts)
    known = (after.links >= 0) & (after.links < flows)
    require(bool(known.all()), f"flows wait for others by number, 0 to {flows - 1}")
    waiting = numpy.repeat(numpy.arange(flows), waits)
    starts = none
    starts[1:] = numpy.cumsum(numpy.bincount(after.links, minlength=flows))
    return waits.copy(), Routes(starts, waiting[numpy.argsort(after.links, kind="stable")])


def _process_events(
    given: _FlowsToSimulate, found: _SimulationResults, shared: SharingState, moments_s: Floats
) -> None:
    """Process the starts and ends of all flows in the order of time."""
    flows, shared = len(given.start_s), by_reference(shared)
    flow_of = numpy.empty(flows, numpy.int32)  # each slot's flow
    # stack of slots without an active flow: the last is used next
    unused = numpy.empty(flows, numpy.int32)
    for slot in range(flows):
        unused[slot] = flows - 1 - slot
    waits = given.waits.copy()
    ready = [(0.0, 0)]  # flows whose predecessors have ended, by (later) start time
    ready.pop()
    active, begun, noted, delivered = 0, 0, 0, 0.0
    due = shared.due
    while True:
        now = numpy.inf
        if begun < len(given.order):
            now = given.start_s[given.order[begun]]
        if len(ready) > 0:
            now = min(now, ready[0][0])
        if active > 0:
            now = min(now, due.due_s[due.heap[0]])
        while noted < len(moments_s) and moments_s[noted] < now:
            found.active[noted] = active
            found.delivered_bits[noted] = delivered
            for link in range(len(shared.sizes)):
                for i in range(shared.sizes[link]):
                    slot = limited_flow(shared, link, i)
                    left = left_bits(shared, link, slot, moments_s[noted])
                    found.delivered_bits[noted] += given.volume_bits[flow_of[slot]] - left
            noted += 1
        if now == numpy.inf:
            return
        found.counts[0] += 1
        while active > 0:
            link = due.heap[0]
            slot = limited_flow(shared, link, 0)
            flow = flow_of[slot]
            early = (due.due_s[link] - now) * shared.progress[link].rate
            if due.due_s[link] > now and not early <= given.volume_bits[flow] * SENT:
                break
            remove_first_flow(shared, now)
            active -= 1
            unused[flows - active - 1] = slot
            found.end_s[flow] = now
            delivered += given.volume_bits[flow]
            for other in given.nexts[given.next_starts[flow] : given.next_starts[flow + 1]]:
                waits[other] -= 1
                if waits[other] == 0:
                    heapq.heappush(ready, (max(now, given.start_s[other]), other))
        while True:
            if len(ready) > 0 and ready[0][0] <= now:
                flow = heapq.heappop(ready)[1]
            elif begun < len(given.order) and given.start_s[given.order[begun]] <= now:
                flow = given.order[begun]
                begun += 1
            else:
                break
            row = _row_of_chosen_path(given, shared, flow)
            found.path[flow] = row - flow * given.choices
            path = given.links[given.starts[row] : given.starts[row + 1]]
            if len(path) == 0:
                continue
            found.begin_s[flow] = now
            slot = unused[flows - active - 1]
            flow_of[slot] = flow
            active += 1
            if len(found.limits) > 0:
                for position in range(len(path)):
                    limits = limits_flows(shared, path[position])
                    found.limits[given.starts[row] + position] = limits
            add_active_flow(shared, slot, path, given.volume_bits[flow], now)
        found.counts[1] = max(found.counts[1], active)
        update_fair_rates(shared, now)
        update_due_times(shared, now)
        if active == 0:  # discard the sum's rounding errors
            shared.total[0] = 0.0
        event = found.counts[0] - 1
        found.event_s[event], found.rate_bps[event] = now, shared.total[0]


def _row_of_chosen_path(given: _FlowsToSimulate, shared: SharingState, flow: int) -> int:
    """Return the row, in the table of all paths, of the path that a starting flow takes."""
    best = flow * given.choices
    fewest, shortest = NONE, 0
    for row in range(flow * given.choices, (flow + 1) * given.choices):
        path = given.links[given.starts[row] : given.starts[row + 1]]
        most = 0
        for link in path:
            most = max(most, shared.links[link].flows)
        better = fewest == NONE or most < fewest or (most == fewest and len(path) < shortest)
        if len(path) > 0 and better:
            best, fewest, shortest = row, most, len(path)
    return best
