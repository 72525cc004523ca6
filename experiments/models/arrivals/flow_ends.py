"""Next ends of flows that share links max-min fairly, without an update of every changed rate.

All flows that a link limits have the same rate, the link's level. So they end in an order that no
change of the level affects. Each link counts the bits that a flow has sent while the link limited
it, whichever flow: its *progress*. A flow ends when the progress of its link reaches the flow's
*target*. The link has its flows in a heap by targets, and such links are in a heap by the time at
which their first flow ends. A new level moves the link in the heap of links; a flow moves only when
another link limits it.
"""

from __future__ import annotations

import numpy

from pillarbox.experiments.models.arrivals.event_heap import (
    EventHeap,
    add_event,
    move_event,
    remove_event,
)
from pillarbox.experiments.models.arrivals.sharing_state import SharingState
from pillarbox.experiments.models.simulator.compiled import compiled_in_place


@compiled_in_place
def limited_flow(shared: SharingState, at: int, number: int) -> int:
    """Return the slot of a flow that a link limits; number 0 is the first to end."""
    return int(shared.limited[shared.links[at].begin + number])


@compiled_in_place
def left_bits(shared: SharingState, at: int, slot: int, now_s: float) -> float:
    """Return the volume that a flow has yet to send which a link limits."""
    progress = shared.progress[at]
    sent_bits = progress.bits + progress.rate * (now_s - progress.since_s)
    return float(shared.target_bits[slot] - sent_bits)


def mark_changed(shared: SharingState, at: int, now_s: float) -> None:
    """Record that a link's level or the flows that it limits change."""
    link, progress = shared.links[at], shared.progress[at]
    if link.changed > 0:
        return
    link.changed = 1
    shared.changed[shared.counts[0]] = at
    shared.counts[0] += 1
    shared.total[0] -= progress.rate * shared.sizes[at]
    progress.bits += progress.rate * (now_s - progress.since_s)
    progress.since_s = now_s


def add_limited_flow(
    shared: SharingState, at: int, slot: int, volume_bits: float, now_s: float
) -> None:
    """Add a flow with this remaining volume to those that a link limits."""
    mark_changed(shared, at, now_s)
    add_event(_flows_by_end(shared, at), slot, shared.progress[at].bits + volume_bits)
    shared.slots[slot].where = at


def remove_limited_flow(shared: SharingState, at: int, slot: int, now_s: float) -> float:
    """Remove a flow from those that a link limits; return its remaining volume."""
    mark_changed(shared, at, now_s)
    remove_event(_flows_by_end(shared, at), slot)
    return float(shared.target_bits[slot] - shared.progress[at].bits)


@compiled_in_place
def update_due_times(shared: SharingState, now_s: float) -> None:
    """Compute when the first flow of each changed link ends; update the total rate."""
    for i in range(shared.counts[0]):
        at = shared.changed[i]
        shared.links[at].changed = 0
        if shared.sizes[at] > 0:
            shared.progress[at].rate = shared.links[at].level
        shared.total[0] += shared.progress[at].rate * shared.sizes[at]
        _update_due_time(shared, at, now_s)
    shared.counts[0] = 0


def end_first_flow(shared: SharingState, now_s: float) -> None:
    """Remove the flow that ends first from those that its link limits."""
    at = shared.due.heap[0]
    remove_limited_flow(shared, at, limited_flow(shared, at, 0), now_s)
    _update_due_time(shared, at, now_s)


def _update_due_time(shared: SharingState, at: int, now_s: float) -> None:
    """Compute when the first of the flows that a link limits ends."""
    link, progress = shared.links[at], shared.progress[at]
    if shared.sizes[at] == 0:
        progress.bits = progress.rate = 0.0
        if link.listed > 0:
            link.listed = 0
            remove_event(shared.due, at)
        return
    due_s = numpy.inf
    if progress.rate > 0:
        left = shared.target_bits[limited_flow(shared, at, 0)] - progress.bits
        due_s = now_s + max(0.0, left) / progress.rate
    if link.listed > 0:
        move_event(shared.due, at, due_s)
    else:
        link.listed = 1
        add_event(shared.due, at, due_s)


def _flows_by_end(shared: SharingState, at: int) -> EventHeap:
    """Return the heap of the flows that a link limits, by their targets."""
    link = shared.links[at]
    heap = shared.limited[link.begin : link.begin + link.fits]
    return EventHeap(heap, shared.at, shared.target_bits, shared.sizes[at : at + 1])
