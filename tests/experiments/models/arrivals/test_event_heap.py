"""Entries leave the event queue in the order of time, whatever was moved or removed before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pillarbox.experiments.models.arrivals.event_heap import (
    add_event,
    empty_event_heap,
    move_event,
    remove_earliest_event,
    remove_event,
)

ENTRIES = 12
times = st.integers(0, 5).map(float)
changes = st.tuples(st.integers(0, ENTRIES - 1), st.none() | times)


@given(st.lists(times, min_size=ENTRIES, max_size=ENTRIES), st.lists(changes, max_size=20))
def test_entries_leave_in_the_order_of_time(
    due_s: list[float], moved: list[tuple[int, float | None]]
) -> None:
    events, expected = empty_event_heap(ENTRIES), dict(enumerate(due_s))
    for one, when_s in expected.items():
        add_event(events, one, when_s)
    for one, when_s in moved:
        if one in expected and when_s is None:
            remove_event(events, one)
            del expected[one]
        elif one in expected and when_s is not None:
            move_event(events, one, when_s)
            expected[one] = when_s
    left = []
    while events.size[0] > 0:
        left.append(int(events.heap[0]))
        remove_earliest_event(events)
    assert [expected[one] for one in left] == sorted(expected.values())
    assert sorted(left) == sorted(expected)
