"""The event queue of links: events come in the order of time, then of the links' numbers."""

from __future__ import annotations

import heapq
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pillarbox.experiments.models.arrays import zero_records
from pillarbox.experiments.models.packets.link_events import (
    CalendarState,
    add_link_event,
    empty_link_calendar,
    first_link_event,
    remove_link_event,
)
from pillarbox.experiments.models.packets.state import NONE, Link

LINKS = 40


def removed(calendar: CalendarState, links: Any) -> tuple[float, int]:
    at = first_link_event(calendar, links)
    remove_link_event(calendar, links, at)
    return links[at].due_s, at


def idle_links(count: int) -> tuple[CalendarState, Any]:
    """Return a calendar and links whose records Python reads as compiled code does."""
    calendar = empty_link_calendar(count)
    clocks = calendar.clocks.view(numpy.recarray)  # type: ignore[attr-defined]
    links = zero_records(Link, count).view(numpy.recarray)  # type: ignore[attr-defined]
    return calendar._replace(clocks=clocks), links


# Delays until a link's next event: ties, short ones, and more than a round through the calendar.
DELAYS_S = some.sampled_from([0.0, 1e-9, 1e-6, 2e-6, 1e-4, 0.1, 50.0]) | some.floats(0, 1e-3)


@settings(deadline=None)
@given(
    begin_s=some.sampled_from([0.0, 2e9]),
    starts_s=some.lists(DELAYS_S, min_size=1, max_size=LINKS),
    delays_s=some.lists(DELAYS_S, max_size=300),
)
def test_events_come_in_the_order_of_time_and_number(
    begin_s: float, starts_s: list[float], delays_s: list[float]
) -> None:
    calendar, links = idle_links(LINKS)
    expected = [(begin_s + due_s, at) for at, due_s in enumerate(starts_s)]
    for due_s, at in expected:
        add_link_event(calendar, links, at, due_s)
    heapq.heapify(expected)
    for delay_s in delays_s:
        now, at = removed(calendar, links)
        assert (now, at) == heapq.heappop(expected)
        add_link_event(calendar, links, at, now + delay_s)
        heapq.heappush(expected, (now + delay_s, at))
    while expected:
        assert removed(calendar, links) == heapq.heappop(expected)
    assert first_link_event(calendar, links) == NONE


def test_an_event_may_precede_one_that_was_found() -> None:
    calendar, links = idle_links(2)
    add_link_event(calendar, links, 0, 1.0)
    assert first_link_event(calendar, links) == 0
    add_link_event(calendar, links, 1, 0.5)
    assert [removed(calendar, links)[1] for _ in range(2)] == [1, 0]


def test_buckets_are_counted_in_63_bits() -> None:
    # Simultaneous events would make the buckets ever narrower.
    calendar, links = idle_links(LINKS)
    for at in range(LINKS):
        add_link_event(calendar, links, at, 2e9)
    order = []
    for _ in range(2000):
        now, at = removed(calendar, links)
        order.append(at)
        add_link_event(calendar, links, at, now)
    assert 0 < calendar.clocks[0].per_s * 2e9 <= 2e15
    assert order == [0] * 2000  # the link with the lowest number


@pytest.mark.parametrize("spacing_s", [1e-9, 1e-2])
def test_the_width_of_buckets_follows_the_events(spacing_s: float) -> None:
    calendar, links = idle_links(LINKS)
    for at in range(LINKS):
        add_link_event(calendar, links, at, at * spacing_s)
    for _ in range(3000):
        now, at = removed(calendar, links)
        add_link_event(calendar, links, at, now + LINKS * spacing_s)
    assert 0.1 < spacing_s * calendar.clocks[0].per_s < 10


def test_a_distant_event_is_in_the_last_bucket() -> None:
    calendar, links = idle_links(3)
    calendar.clocks[0].per_s = 1e12
    for at, due_s in enumerate([3e9, 1e-12, 2e9]):
        add_link_event(calendar, links, at, due_s)
    assert [removed(calendar, links)[1] for _ in range(3)] == [1, 2, 0]


def test_simultaneous_starts_narrow_the_buckets() -> None:
    calendar, links = idle_links(10_000)
    for at in range(10_000):  # each event would pass half of the others: 25 million steps
        add_link_event(calendar, links, at, (at * 7919 % 10_000) * 1e-11)
    clock = calendar.clocks[0]
    assert 1e9 < clock.per_s <= 1e12
    assert clock.passed < 200_000
