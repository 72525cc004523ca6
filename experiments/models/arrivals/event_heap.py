"""Event queue: a binary heap whose entries' times can change, soonest first.

Entries that are due at the same time are in the order of their numbers, so that the order of events
does not depend on the order in which entries were added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints


class EventHeap(NamedTuple):
    """Heap of numbered entries, of which ``heap[0]`` is due first; `size` is an array of 1 number.

    `at[i]` is the position of entry i in the heap, `due_s[i]` its time.
    """

    heap: Ints
    at: Ints
    due_s: Floats
    size: Ints


def empty_event_heap(entries: int) -> EventHeap:
    """Return a heap with room for this number of entries, none of which is due."""
    return EventHeap(
        numpy.zeros(entries, numpy.int32),
        numpy.zeros(entries, numpy.int32),
        numpy.full(entries, numpy.inf),
        numpy.zeros(1, numpy.int64),
    )


def add_event(events: EventHeap, one: int, due_s: float) -> None:
    """Add entry `one` to the simulator's event queue."""
    size = events.size[0]
    events.heap[size], events.at[one], events.size[0] = one, size, size + 1
    move_event(events, one, due_s)


def remove_earliest_event(events: EventHeap) -> None:
    """Remove the earliest event from the simulator's event queue."""
    remove_event(events, events.heap[0])


def remove_event(events: EventHeap, one: int) -> None:
    """Remove entry `one` from the simulator's event queue."""
    place, size = events.at[one], events.size[0] - 1
    last = events.heap[size]
    events.heap[place], events.at[last], events.size[0] = last, place, size
    if place < size:
        move_event(events, last, events.due_s[last])


def move_event(events: EventHeap, one: int, when_s: float) -> None:
    """Change the time of entry `one` in the simulator's event queue."""
    heap, at, due_s, size = events.heap, events.at, events.due_s, events.size[0]
    place = at[one]
    due_s[one] = when_s
    while place > 0:
        above = (place - 1) // 2
        if not _is_before(when_s, one, due_s[heap[above]], heap[above]):
            break
        heap[place] = heap[above]
        at[heap[place]] = place
        place = above
    while True:
        below = 2 * place + 1
        if below + 1 < size:
            right, left = heap[below + 1], heap[below]
            if _is_before(due_s[right], right, due_s[left], left):
                below += 1
        if below >= size or not _is_before(due_s[heap[below]], heap[below], when_s, one):
            break
        heap[place] = heap[below]
        at[heap[place]] = place
        place = below
    heap[place] = one
    at[one] = place


def _is_before(due_s: float, one: int, other_due_s: float, other: int) -> bool:
    """Return True if entry `one` is due before entry `other`."""
    return due_s < other_due_s or (due_s == other_due_s and one < other)
