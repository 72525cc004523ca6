"""Incremental max-min fair rates while flows start and end: exact, but only changes are recomputed.

A link has a *level*: the rate of the flows that it limits, infinite if it limits none. A flow's
rate is the lowest level on its path. The level x of a link follows from the lowest level that each
of its flows i has on its *other* links, b_i:

    sum of min(b_i, x) = capacity,    or no level, if the sum of all b_i is at most the capacity

Levels that satisfy this everywhere are those of max-min fair rates: a flow's lowest level is at a
link that is full, and on which no flow is faster (Bertsekas & Gallager, Data Networks, section
6.5.2). So it suffices to update the links for which something has changed, until no link is left.
This ends, in any order and from any levels: once every link was updated a few times, the lowest
level is final, then the next one, and so on. The proof is that for switches that compute the rates
in this way independently (Charny, Clark & Jain, Congestion control with explicit rate indication,
ICC 1995). A level depends only on lower ones, so links are updated in ascending order of their
present levels, which change little: most links are updated once.

The *room* of a link is its capacity less the rates of the flows that other links limit. A new rate
is subtracted from the room of each link on the path, so that a link's level is known without its
flows: the room, divided by the number of flows that the link limits. There are two exceptions. If
the level rises above the level of another link on a flow's path, that link limits the flow from
then on, and the first link is updated once more. If the level falls below the rate of a flow that
another link limits, the equation above is solved for the rates of all flows on the link.
"""

from __future__ import annotations

import numpy

from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.arrivals.event_heap import add_event, remove_earliest_event
from pillarbox.experiments.models.arrivals.flow_ends import (
    add_limited_flow,
    end_first_flow,
    limited_flow,
    mark_changed,
    remove_limited_flow,
)
from pillarbox.experiments.models.arrivals.sharing_state import NONE, Link, SharingState
from pillarbox.experiments.models.simulator.compiled import compiled_in_place

# Relative difference below which two fair-share levels are equal, far above rounding errors.
ROUNDING = 1e-12
# Number of additions to a link's room after which the room is computed from the rates of all flows;
# their rounding errors are less than 1e-13 of the capacity.
MOST_ADDITIONS = 500
FULL = 1e-9  # maximum room of a full link, relative to its capacity


@compiled_in_place
def add_active_flow(
    shared: SharingState, slot: int, path: Ints, volume_bits: float, now_s: float
) -> None:
    """Add a flow on a path to the shared links; `update_fair_rates` then changes rates."""
    lowest, least = NONE, numpy.inf
    for position in range(len(path)):
        at = path[position]
        link = shared.links[at]
        if link.flows == link.fits:
            _double_flow_list(shared, at)
        shared.entries[link.begin + link.flows] = (slot << shared.bits) + position
        shared.paths[slot, position], shared.place[slot, position] = at, link.flows
        link.flows += 1
        level = _level_with_new_flow(link)
        if level < least:
            lowest, least = at, level
    shared.slots[slot].length = len(path)
    if shared.links[lowest].level == numpy.inf:  # the level rises as far as links have room
        shared.links[lowest].level, shared.links[lowest].top = 0.0, numpy.inf
    for position in range(len(path)):
        if path[position] == lowest:
            shared.links[lowest].shares += 1
        else:
            _use_room(shared, path[position], 0.0, shared.links[lowest].level)
    add_limited_flow(shared, lowest, slot, volume_bits, now_s)
    _add_to_update_queue(shared, lowest)


@compiled_in_place
def remove_first_flow(shared: SharingState, now_s: float) -> None:
    """Remove the flow that ends first from its links; `update_fair_rates` then changes rates."""
    first, positions = shared.due.heap[0], (1 << shared.bits) - 1
    slot, rate = limited_flow(shared, first, 0), shared.links[first].level
    end_first_flow(shared, now_s)
    for position in range(shared.slots[slot].length):
        at, place = shared.paths[slot, position], shared.place[slot, position]
        link = shared.links[at]
        link.flows -= 1
        last = shared.entries[link.begin + link.flows]
        shared.entries[link.begin + place] = last
        shared.place[last >> shared.bits, last & positions] = place
        if at == first:
            link.shares -= 1
            _add_to_update_queue(shared, at)
        else:
            _use_room(shared, at, rate, 0.0)
        if link.flows == 0:
            link.room, link.additions = link.capacity, 0


@compiled_in_place
def limits_flows(shared: SharingState, at: int) -> bool:
    """Return True if a link is the first full one of a flow, so that the flow's packets wait there.

    Links that are passed by exactly the same flows are full simultaneously; packets wait only at
    the first one, whichever has the level.
    """
    link = shared.links[at]
    if link.level == numpy.inf and link.room > FULL * link.capacity:
        return False
    for i in range(link.flows):
        slot = shared.entries[link.begin + i] >> shared.bits
        if _first_full_link(shared, slot) == at:
            return True
    return False


def _first_full_link(shared: SharingState, slot: int) -> int:
    """Return the first link on a flow's path that is full and lets no flow be faster than it."""
    where = shared.slots[slot].where
    rate = shared.links[where].level
    for position in range(shared.slots[slot].length):
        at = shared.paths[slot, position]
        link = shared.links[at]
        if at == where or _levels_equal(link.level, rate):
            return int(at)
        if link.level == numpy.inf and link.room <= FULL * link.capacity:
            return int(at)
    return int(where)


@compiled_in_place
def update_fair_rates(shared: SharingState, now_s: float) -> None:
    """Recompute links' max-min fair levels, which are the rates of the flows that they limit."""
    while shared.queue.size[0] > 0:
        at = shared.queue.heap[0]
        remove_earliest_event(shared.queue)
        link = shared.links[at]
        link.queued = 0
        if link.shares == 0:
            link.level = numpy.inf
            if _has_room(link):
                continue
            level = _level_from_rates(shared, at)
        else:
            if link.additions > MOST_ADDITIONS:
                _compute_room(shared, at)
            level = link.room / link.shares
            if level < link.top * (1 - ROUNDING):
                level = _level_from_rates(shared, at)
        if not _levels_equal(level, link.level):
            mark_changed(shared, at, now_s)
            if level > link.level:
                _raise_level(shared, at, level, now_s)
            else:
                _lower_level(shared, at, level)
        if link.top > link.level * (1 + ROUNDING):
            _limit_faster_flows(shared, at, now_s)


def _level_with_new_flow(link: Link) -> float:
    """Return an estimate of a link's level if it limits a new flow."""
    if link.level < numpy.inf:
        return link.room / (link.shares + 1)
    return max(link.room, link.capacity / link.flows)


def _raise_level(shared: SharingState, at: int, level: float, now_s: float) -> None:
    """Set a link's level to a higher one; flows that have a lower level elsewhere leave the link.

    The level is too low then. It rises further when the link is updated again.
    """
    link, leaving = shared.links[at], 0
    before, link.level = link.level, level
    for i in range(shared.sizes[at]):
        slot = limited_flow(shared, at, i)
        lowest = _lowest_other_link(shared, at, slot)
        if lowest != NONE and shared.links[lowest].level < level * (1 - ROUNDING):
            shared.leaving[leaving] = slot
            leaving += 1
        else:
            _change_rate(shared, at, slot, before, level)
    for i in range(leaving):
        slot = shared.leaving[i]
        lowest = _lowest_other_link(shared, at, slot)
        _limit_by(shared, slot, lowest, before, now_s)
        _queue_if_level_changes(shared, lowest)
    if leaving > 0:
        _queue_if_level_changes(shared, at)


def _lower_level(shared: SharingState, at: int, level: float) -> None:
    """Set a link's level to a lower one."""
    link = shared.links[at]
    before, link.level = link.level, level
    for i in range(shared.sizes[at]):
        _change_rate(shared, at, limited_flow(shared, at, i), before, level)


def _limit_faster_flows(shared: SharingState, at: int, now_s: float) -> None:
    """Let a link limit the flows on it that are faster than its level."""
    link = shared.links[at]
    for i in range(link.flows):
        slot = shared.entries[link.begin + i] >> shared.bits
        other = shared.slots[slot].where
        rate = shared.links[other].level
        if other != at and rate > link.level:
            _limit_by(shared, slot, at, rate, now_s)
            _queue_if_level_changes(shared, other)
    link.top = link.level


def _change_rate(shared: SharingState, at: int, slot: int, before: float, rate: float) -> None:
    """Update the room of the other links of a flow that a link limits."""
    for position in range(shared.slots[slot].length):
        other = shared.paths[slot, position]
        if other != at:
            _use_room(shared, other, before, rate)


def _use_room(shared: SharingState, at: int, before: float, rate: float) -> None:
    """Update a link for the rate of a flow that another link limits."""
    _add_to_room(shared.links[at], before, rate)
    _queue_if_level_changes(shared, at)


def _add_to_room(link: Link, before: float, rate: float) -> None:
    """Add the difference of a flow's rates to a link's room."""
    link.room += before - rate
    link.additions += 1
    link.top = max(link.top, rate)


def _limit_by(shared: SharingState, slot: int, at: int, before: float, now_s: float) -> None:
    """Let another link limit a flow, which had the rate `before`."""
    previous, rate = shared.slots[slot].where, shared.links[at].level
    left_bits = remove_limited_flow(shared, previous, slot, now_s)
    add_limited_flow(shared, at, slot, left_bits, now_s)
    for position in range(shared.slots[slot].length):
        other = shared.paths[slot, position]
        link = shared.links[other]
        if other == previous:
            _add_to_room(link, 0.0, rate)
            link.shares -= 1
        elif other == at:
            _add_to_room(link, before, 0.0)
            link.shares += 1
        else:
            _use_room(shared, other, before, rate)


def _lowest_other_link(shared: SharingState, at: int, slot: int) -> int:
    """Return the link with the lowest level on a flow's path, other than a link; NONE if none."""
    lowest, level = NONE, numpy.inf
    for position in range(shared.slots[slot].length):
        other = shared.paths[slot, position]
        if other != at and shared.links[other].level < level:
            lowest, level = other, shared.links[other].level
    return lowest


def _level_from_rates(shared: SharingState, at: int) -> float:
    """Return a link's level, infinite if it needs none, from the rates of all flows on it."""
    link, bounds, count = shared.links[at], shared.bounds, 0
    _compute_room(shared, at)
    if link.shares == 0 and link.capacity - link.room <= link.capacity * (1 + ROUNDING):
        return float(numpy.inf)
    for i in range(link.flows):
        where = shared.slots[shared.entries[link.begin + i] >> shared.bits].where
        if where != at:
            bounds[count] = shared.links[where].level
            count += 1
    # Equal shares at first; the rest of slower flows goes to the others.
    level = link.capacity / link.flows
    while True:
        left, others = link.capacity, link.shares
        for i in range(count):
            if bounds[i] < level:
                left -= bounds[i]
            else:
                others += 1
        higher = left / others
        if higher <= level * (1 + ROUNDING):
            return level
        level = higher


def _compute_room(shared: SharingState, at: int) -> None:
    """Compute a link's room, and the highest rate of flows that others limit, from all flows."""
    link = shared.links[at]
    used, top = 0.0, 0.0
    for i in range(link.flows):
        where = shared.slots[shared.entries[link.begin + i] >> shared.bits].where
        if where != at:
            used += shared.links[where].level
            top = max(top, shared.links[where].level)
    link.room, link.top, link.additions = link.capacity - used, top, 0


def _queue_if_level_changes(shared: SharingState, at: int) -> None:
    """Add a link to the update queue unless it keeps its level, or has room without one."""
    link = shared.links[at]
    if link.queued > 0:
        return
    if link.level == numpy.inf:
        changes = not _has_room(link)
    else:
        used = link.level * link.shares
        changes = (
            link.shares == 0
            or abs(link.room - used) > ROUNDING * used
            or link.top > link.level * (1 + ROUNDING)
        )
    if changes:
        _add_to_update_queue(shared, at)


def _has_room(link: Link) -> bool:
    """Return True if a link's capacity suffices for its flows, which other links limit."""
    return link.room >= -ROUNDING * link.capacity and link.additions <= MOST_ADDITIONS


def _add_to_update_queue(shared: SharingState, at: int) -> None:
    link = shared.links[at]
    if link.queued == 0:
        link.queued = 1
        add_event(shared.queue, at, link.level)


def _levels_equal(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= ROUNDING * min(one, other)


def _double_flow_list(shared: SharingState, at: int) -> None:
    """Double the room for flows in a link's list and heap."""
    link, free = shared.links[at], shared.free[0]
    for i in range(link.flows):  # numba takes 3 s longer to compile a slice assignment
        shared.entries[free + i] = shared.entries[link.begin + i]
        shared.limited[free + i] = shared.limited[link.begin + i]
    link.begin, link.fits = free, 2 * link.flows
    shared.free[0] = free + 2 * link.flows
