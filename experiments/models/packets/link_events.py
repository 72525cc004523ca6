"""Event queue of links: a calendar whose buckets hold the links with a packet on its way.

A link's event is the arrival of its first packet at the other end, so a link is in the queue once
at most. A bucket covers a span of time, and is a list of links in the order of time, then of their
number, so that the order of events does not depend on the width of buckets. A bucket's list may
contain events of later rounds through the calendar (Brown 1988, "Calendar queues: a fast O(1)
priority queue implementation for the simulation event set problem"). The width is adapted such that
an event takes a few steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Float64, Int64, Ints, Records, zero_records
from pillarbox.experiments.models.packets.state import NEVER, NONE, Link

LEAST_BUCKETS = 1 << 8
FIRST_PER_S, MOST_PER_S = 1e6, 1e12  # buckets per second: initial and maximum number
MOST_FROM_START = 1e15  # maximum number of buckets from time 0: numbers of buckets have 63 bits
MOST_STEPS = 3  # steps per event, over buckets or within their lists, from which the width changes
COUNTED = 16  # steps are counted for this number of events per bucket, then from 0 again
LAST_BUCKET = 1 << 62  # number of the bucket for all later events, too


class CalendarState(NamedTuple):
    """Buckets of a link calendar, each the number of its first link, and a record of the rest."""

    buckets: Ints
    clocks: Records[CalendarClock]  # an array of one record


class CalendarClock:
    """Position and width of a link calendar's buckets, and number of steps that events took."""

    per_s: Float64  # buckets per second
    bucket: Int64  # no event is in an earlier bucket; counted from time 0, all rounds
    events: Int64  # number of links in the calendar
    removed: Int64  # number of removed events; the numbers of steps for these events follow
    empty: Int64  # steps over buckets without an event
    passed: Int64  # steps over links in a bucket's list


def empty_link_calendar(links: int) -> CalendarState:
    """Return a calendar for this number of links, none of which has an event."""
    buckets = max(LEAST_BUCKETS, 1 << (2 * links - 1).bit_length())
    clocks = zero_records(CalendarClock, 1)
    clocks["per_s"] = FIRST_PER_S
    return CalendarState(numpy.full(buckets, NONE, numpy.int32), clocks)


def add_link_event(calendar: CalendarState, links: Records[Link], at: int, due_s: float) -> None:
    """Add the event of link `at` to the calendar."""
    clock = calendar.clocks[0]
    links[at].due_s, passed = due_s, clock.passed
    _insert_link(calendar, links, at)
    # Flows that start simultaneously add many events to few buckets before any event is removed.
    if clock.passed - passed > MOST_STEPS:
        _adapt_width(calendar, links, due_s)


def _insert_link(calendar: CalendarState, links: Records[Link], at: int) -> None:
    """Insert a link into the list of its event's bucket."""
    clock, link, due_s = calendar.clocks[0], links[at], links[at].due_s
    bucket = _bucket_of(clock, due_s)
    clock.bucket = min(clock.bucket, bucket)
    clock.events += 1
    place = bucket & (len(calendar.buckets) - 1)
    before, other = NONE, calendar.buckets[place]
    while other != NONE:
        other_s = links[other].due_s
        if due_s < other_s or (due_s == other_s and at < other):
            break
        clock.passed += 1
        before, other = other, links[other].later
    link.later = other
    if before == NONE:
        calendar.buckets[place] = at
    else:
        links[before].later = at


def _bucket_of(clock: CalendarClock, due_s: float) -> int:
    """Return the number of the bucket for an event at this time."""
    return int(min(due_s * clock.per_s, float(LAST_BUCKET)))


def first_link_event(calendar: CalendarState, links: Records[Link]) -> int:
    """Return the link whose event is the earliest, NONE if no link has an event."""
    clock, buckets = calendar.clocks[0], calendar.buckets
    if clock.events == 0:
        return NONE
    bucket, last = clock.bucket, len(buckets) - 1
    for step in range(len(buckets)):
        one = buckets[bucket & last]
        if one != NONE and _bucket_of(clock, links[one].due_s) <= bucket:
            clock.bucket = bucket
            clock.empty += step
            return int(one)
        bucket += 1
    # No event within a round: compare the first events of all buckets.
    first, first_s = NONE, NEVER
    for bucket in range(len(buckets)):
        one = buckets[bucket]
        if one == NONE:
            continue
        due_s = links[one].due_s
        if due_s < first_s or (due_s == first_s and one < first):
            first, first_s = one, due_s
    clock.bucket = _bucket_of(clock, first_s)
    clock.empty += len(buckets)
    return first


def remove_link_event(calendar: CalendarState, links: Records[Link], at: int) -> None:
    """Remove the event of link `at`, the earliest of all, and adapt the width of buckets."""
    clock = calendar.clocks[0]
    place = clock.bucket & (len(calendar.buckets) - 1)
    calendar.buckets[place] = links[at].later
    clock.events -= 1
    clock.removed += 1
    _adapt_width(calendar, links, links[at].due_s)


def _adapt_width(calendar: CalendarState, links: Records[Link], now: float) -> None:
    """Change the width of buckets if events have taken many steps; restart the step counts."""
    clock, count = calendar.clocks[0], len(calendar.buckets)
    if clock.empty + clock.passed > MOST_STEPS * (clock.removed + count):
        is_wide = clock.passed > clock.empty
        # Events that were added, but not removed yet, have taken steps as well.
        many = clock.passed if is_wide else max(clock.removed, 1)
        few = max(clock.removed, clock.events) if is_wide else clock.empty
        most = min(MOST_PER_S, MOST_FROM_START / max(now, 1.0))
        _set_buckets_per_s(calendar, links, min(clock.per_s * many / few, most))
        clock.removed = clock.empty = clock.passed = 0
    elif clock.removed > COUNTED * count:
        clock.removed = clock.empty = clock.passed = 0


def _set_buckets_per_s(calendar: CalendarState, links: Records[Link], per_s: float) -> None:
    """Change the width of buckets, and sort all links into them again."""
    clock, buckets = calendar.clocks[0], calendar.buckets
    chain = NONE  # list of all links in the calendar
    for place in range(len(buckets)):
        one = buckets[place]
        while one != NONE:
            later = links[one].later
            links[one].later = chain
            chain, one = one, later
        buckets[place] = NONE
    clock.bucket, clock.per_s, clock.events = LAST_BUCKET, per_s, 0
    while chain != NONE:
        one, chain = chain, links[chain].later
        _insert_link(calendar, links, one)
