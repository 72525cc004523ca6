"""Event queue: a binary heap whose entries' times can change, soonest first.

`heap[0]` is the entry that is due first. `at[i]` is the position of entry i in the heap, `due_s[i]`
its time.
"""

from __future__ import annotations

from typing import Any


def add_event(heap: Any, at: Any, due_s: Any, size: int, one: int) -> None:
    """Add entry `one` to the simulator's event queue, which has `size` entries."""
    heap[size] = one
    at[one] = size
    restore_heap_order(heap, at, due_s, size + 1, one)


def remove_earliest_event(heap: Any, at: Any, due_s: Any, size: int) -> None:
    """Remove the earliest event from the simulator's event queue of `size` entries."""
    last = heap[size - 1]
    heap[0] = last
    at[last] = 0
    if size > 1:
        restore_heap_order(heap, at, due_s, size - 1, last)


def restore_heap_order(heap: Any, at: Any, due_s: Any, size: int, one: int) -> None:
    """Restore the simulator's event heap after the time of entry `one` has changed."""
    place, when_s = at[one], due_s[one]
    while place > 0:
        above = (place - 1) // 2
        if due_s[heap[above]] <= when_s:
            break
        heap[place] = heap[above]
        at[heap[place]] = place
        place = above
    while True:
        below = 2 * place + 1
        if below + 1 < size and due_s[heap[below + 1]] < due_s[heap[below]]:
            below += 1
        if below >= size or due_s[heap[below]] >= when_s:
            break
        heap[place] = heap[below]
        at[heap[place]] = place
        place = below
    heap[place] = one
    at[one] = place
