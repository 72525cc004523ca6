"""Incremental max-min fair rates while flows start and end: exact, but only changes are recomputed.

A link has a *level*: the rate of the flows that it limits, infinite if it limits none. A flow's
rate is the lowest level on its path. The level x of a link follows from the lowest level that each
of its flows i has on its *other* links, b_i:

    sum of min(b_i, x) = capacity,    or no level, if the sum of all b_i is at most the capacity

Levels that satisfy this everywhere are those of max-min fair rates: a flow's lowest level is at a
link that is full, and on which no flow is faster (Bertsekas & Gallager, Data Networks, section
6.5.2). So it suffices to update the links for which something has changed, in the order of the
changes, until no link is left. This ends, in any order and from any levels: once every link was
updated a few times, the lowest level is final, then the next one, and so on. The proof is that for
switches that compute the rates in this way independently (Charny, Clark & Jain, Congestion control
with explicit rate indication, ICC 1995).

The data of a flow or link is contiguous in memory, indexed by the flow's *slot*, which it holds
while it is in progress: millions of flows use only the memory that some thousands need. Arrays have
room for all flows simultaneously; unused parts are never touched and cost nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Float64, Floats, Int32, Ints, Records, zero_records
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.simulator.compiled import compiled_in_place
from pillarbox.topos.base.errors import require

# Relative difference below which two fair-share levels are equal, far above rounding errors.
ROUNDING = 1e-12
# Spare capacity, relative to the largest capacity, below which a link's level is updated.
NEAR = 1e-9
FIRST = 4  # initial capacity of a link's list of flows
NONE = -1


class Slot:
    """Record of a flow in progress."""

    low: Float64  # lowest level on the flow's path, and the lowest level of the other links
    second: Float64
    where: Int32  # the link that has the lowest level
    length: Int32  # number of links


class SharingState(NamedTuple):
    """Links, active flows, and the update queue: arrays that functions change in place."""

    capacity: Floats  # capacity of each link
    near: float  # a link with less spare capacity than this has its level updated
    level: Floats
    spare: Floats  # capacity that flows leave of a link without a level; undefined for other links
    # The flows of link l: entries[begin[l] : begin[l] + flows[l]], with room for `fits[l]`. An
    # entry is a slot and the position of link l on the flow's path: slot << bits | position.
    bits: int
    entries: Ints
    begin: Ints
    flows: Ints
    fits: Ints
    free: Ints  # [0]: start of the entries that no link uses yet
    slots: Records[Slot]
    # For each slot: the links, and the flow's index among each link's entries.
    links: Ints
    place: Ints
    # Ring of links to update; slots whose rate has changed since the last `update_fair_rates`.
    queue: Ints
    # ends[0]: first link of the queue; [1]: after its last; [2]: number of changed slots
    ends: Ints
    queued: Ints
    changed: Ints
    marked: Ints
    bounds: Floats  # work array: b_i of each flow of the link being updated


def initial_sharing_state(routes: Routes, slots: int, capacity_bps: Floats) -> SharingState:
    """Return the initial max-min sharing state of idle links, for at most `slots` active flows."""
    links, longest = len(capacity_bps), int(numpy.diff(routes.starts).max(initial=1))
    bits = (longest - 1).bit_length()
    width = 1 << bits
    require(
        max(slots * width, links) < 2**31,
        f"{slots} flows at a time over up to {width} links are more than the simulator can count",
    )
    whole, empty = numpy.int32, numpy.empty
    return SharingState(
        capacity=capacity_bps,
        near=NEAR * float(capacity_bps.max(initial=0.0)),
        level=numpy.full(links, numpy.inf),
        spare=capacity_bps.copy(),
        bits=bits,
        # A link that needs more room gets twice as much; its earlier rooms add up to less.
        entries=empty(links * FIRST + 4 * len(routes.links), whole),
        begin=numpy.arange(links) * FIRST,
        flows=numpy.zeros(links, whole),
        fits=numpy.full(links, FIRST, whole),
        free=numpy.array([links * FIRST]),
        slots=zero_records(Slot, slots),
        links=empty((slots, width), whole),
        place=empty((slots, width), whole),
        queue=empty(links + 1, whole),
        ends=numpy.zeros(3, numpy.int64),
        queued=numpy.zeros(links, numpy.int8),
        changed=empty(slots, whole),
        marked=numpy.zeros(slots, numpy.int8),
        bounds=empty(4 * slots * width),
    )


@compiled_in_place
def add_active_flow(shared: SharingState, slot: int, path: Ints) -> None:
    """Add a flow on a path to the shared links."""
    links, count = shared.links, shared.flows
    shared.slots[slot].length = len(path)
    for position in range(len(path)):
        link = path[position]
        if count[link] == shared.fits[link]:
            _double_flow_list(shared, link)
        shared.entries[shared.begin[link] + count[link]] = (slot << shared.bits) + position
        links[slot, position], shared.place[slot, position] = link, count[link]
        count[link] += 1
        _append_to_update_queue(shared.queue, shared.ends, shared.queued, link)
    _set_lowest_levels(shared.slots[slot], links[slot], shared.level)
    _mark_rate_changed(shared.changed, shared.ends, shared.marked, slot)


@compiled_in_place
def remove_active_flow(shared: SharingState, slot: int) -> None:
    """Remove an ended flow from its links; `update_fair_rates` then changes other flows' rates."""
    begin, count, entries, places = shared.begin, shared.flows, shared.entries, shared.place
    positions = (1 << shared.bits) - 1
    for position in range(shared.slots[slot].length):
        link, place = shared.links[slot, position], places[slot, position]
        count[link] -= 1
        last = entries[begin[link] + count[link]]
        entries[begin[link] + place] = last
        places[last >> shared.bits, last & positions] = place
        if shared.level[link] < numpy.inf:
            _append_to_update_queue(shared.queue, shared.ends, shared.queued, link)
        elif count[link] > 0:
            shared.spare[link] += shared.slots[slot].low
        else:
            shared.spare[link] = shared.capacity[link]


@compiled_in_place
def update_fair_rates(shared: SharingState) -> None:
    """Recompute links' max-min fair levels; `changed` then lists flows with a new rate."""
    level, spare, capacity, bounds = shared.level, shared.spare, shared.capacity, shared.bounds
    slots, links, bits = shared.slots, shared.links, shared.bits
    begin, entries, count = shared.begin, shared.entries, shared.flows
    queue, ends, queued = shared.queue, shared.ends, shared.queued
    while ends[0] != ends[1]:
        link = queue[ends[0]]
        ends[0] = ends[0] + 1 if ends[0] + 1 < len(queue) else 0
        queued[link] = 0
        on_link = entries[begin[link] : begin[link] + count[link]]
        total = 0.0
        for i in range(len(on_link)):
            on = slots[on_link[i] >> bits]
            bounds[i] = on.second if on.where == link else on.low
            total += bounds[i]
        old, new = level[link], numpy.inf
        if total > capacity[link] * (1 + ROUNDING):
            new = _fair_level(bounds, len(on_link), capacity[link])
        else:
            spare[link] = capacity[link] - total
        if _levels_equal(old, new):
            continue
        level[link] = new
        for i in range(len(on_link)):
            slot = on_link[i] >> bits
            on = slots[slot]
            low_before, second_before, where_before = on.low, on.second, on.where
            if where_before == link and new <= second_before:
                on.low = new
            elif where_before != link and new < low_before:
                on.low, on.second, on.where = new, low_before, link
            elif where_before != link and new <= second_before:
                on.second = new
            elif where_before == link or old <= second_before:
                _set_lowest_levels(on, links[slot], level)
            if on.low == low_before and on.where == where_before:
                most = level[where_before]
                if not _levels_equal(min(second_before, most), min(on.second, most)):
                    _append_to_update_queue(queue, ends, queued, where_before)
                continue
            _mark_rate_changed(shared.changed, ends, shared.marked, slot)
            for position in range(on.length):
                other = links[slot, position]
                if other == link or queued[other] > 0:
                    continue
                before = second_before if other == where_before else low_before
                after = on.second if other == on.where else on.low
                most = level[other]
                if most < numpy.inf:
                    matters = not _levels_equal(min(before, most), min(after, most))
                else:  # the spare capacity suffices: the link has no level
                    spare[other] += before - after
                    matters = spare[other] <= shared.near
                if matters:
                    _append_to_update_queue(queue, ends, queued, other)


def _fair_level(bounds: Floats, count: int, capacity: float) -> float:
    """Return the level of a link whose capacity is below the sum of its flows' other levels."""
    level = capacity / count  # equal shares at first; the rest of slower flows goes to the others
    while True:
        left, others = capacity, 0
        for i in range(count):
            if bounds[i] < level:
                left -= bounds[i]
            else:
                others += 1
        higher = left / others
        if higher <= level * (1 + ROUNDING):
            return level
        level = higher


def _set_lowest_levels(on: Slot, links: Ints, level: Floats) -> None:
    """Set the lowest level on a flow's path, its link, and the other links' lowest level."""
    low, second, where = numpy.inf, numpy.inf, NONE
    for position in range(on.length):
        link = links[position]
        if link != where:
            if level[link] < low:
                low, second, where = level[link], low, link
            elif level[link] < second:
                second = level[link]
    on.low, on.second, on.where = low, second, where


def _append_to_update_queue(queue: Ints, ends: Ints, queued: Ints, link: int) -> None:
    if queued[link] == 0:
        queued[link] = 1
        queue[ends[1]] = link
        ends[1] = ends[1] + 1 if ends[1] + 1 < len(queue) else 0


def _mark_rate_changed(changed: Ints, ends: Ints, marked: Ints, slot: int) -> None:
    if marked[slot] == 0:
        marked[slot] = 1
        changed[ends[2]] = slot
        ends[2] += 1


def _levels_equal(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= ROUNDING * min(one, other)


def _double_flow_list(shared: SharingState, link: int) -> None:
    """Double the room for flows in a link's list."""
    begin, count, free = shared.begin[link], shared.flows[link], shared.free[0]
    for i in range(count):  # a loop, since numba takes 3 s longer to compile a slice assignment
        shared.entries[free + i] = shared.entries[begin + i]
    shared.begin[link], shared.fits[link] = free, 2 * count
    shared.free[0] = free + 2 * count
