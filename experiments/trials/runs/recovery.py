"""How long flows stood still because of a fault, and how long they took to be as fast again.

What a flow delivered is known by intervals, and so are the moments here: whatever happened within
an interval has happened by its end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from itertools import islice, takewhile
from operator import attrgetter
from typing import Any, NamedTuple

from experiments.traffic.flows import FlowResult, Interval

BEFORE_S = 1.0  # before the event: what "as before" means
STILL_WITHIN_S = 0.5  # queues behind a fault empty themselves; who stops later has other reasons
AS_BEFORE = 0.9
HOLD_S = 0.5  # as fast again on average: a receiver that fills a gap is fast for a moment


def recovery(
    events: Sequence[dict[str, Any]],
    results: Sequence[FlowResult],
    killed: Callable[[dict[str, Any]], Collection[int]],
) -> list[dict[str, Any]]:
    """Return the events' rows with ``stopped_flows``, ``rerouted_s`` and ``recovered_s`` filled in.

    A flow has stopped because of an event if it delivered something in every interval of the second
    before, and then nothing in one that begins within half a second. ``rerouted_s`` is when the
    last of them delivered something again; ``recovered_s`` when all together were back at 90 % of
    what they delivered in the second before, and stayed there for half a second on average. Both
    are seconds after the event, and None where no flow had stopped, or where it did not happen.
    Flows from or to a server that died do not count.

    Parameters
    ----------
    events
        Rows of schema.EVENTS.
    results
        The flows, with their intervals.
    killed
        Tells which servers an event made an end of.
    """
    return [
        event
        if event["reason"]
        else {**event, **_recovery(event["at_s"], set(killed(event)), results)}
        for event in events
    ]


class _Stopped(NamedTuple):
    """A flow that stood still."""

    before_bps: float
    again_s: float | None  # when it delivered something again
    intervals: Sequence[Interval]


def _recovery(at_s: float, gone: set[int], results: Sequence[FlowResult]) -> dict[str, Any]:
    """Return the columns that tell what an event did to the flows."""
    flows = (r for r in results if not gone & {r.flow.source, r.flow.destination})
    stopped = [found for found in (_stopped(flow.intervals, at_s) for flow in flows) if found]
    again = [one.again_s for one in stopped if one.again_s is not None]
    found: dict[str, Any] = {"stopped_flows": len(stopped), "rerouted_s": None, "recovered_s": None}
    if stopped and len(again) == len(stopped):
        moved_s = max(again)
        back_s = _back(stopped, moved_s)
        found["rerouted_s"] = moved_s - at_s
        found["recovered_s"] = None if back_s is None else back_s - at_s
    return found


def _stopped(intervals: Sequence[Interval], at_s: float) -> _Stopped | None:
    """Return what became of a flow that stood still because of something at that moment."""
    before = [one for one in intervals if at_s - BEFORE_S <= one.begin_s and one.end_s <= at_s]
    if not before or not all(one.delivered_bytes for one in before):
        return None
    after = [one for one in intervals if one.begin_s >= at_s]
    soon = takewhile(lambda one: one.begin_s <= at_s + STILL_WITHIN_S, after)
    still_s = next((one.begin_s for one in soon if not one.delivered_bytes), None)
    if still_s is None:
        return None
    again = (one.end_s for one in after if one.begin_s > still_s and one.delivered_bytes)
    return _Stopped(_bps(before), next(again, None), intervals)


def _bps(intervals: Sequence[Interval]) -> float:
    seconds = sum(one.end_s - one.begin_s for one in intervals)
    return sum(one.delivered_bytes for one in intervals) * 8 / seconds


def _back(stopped: Sequence[_Stopped], from_s: float) -> float | None:
    """Return when flows were as fast as before again, at that moment or later."""
    moments = {one[:2] for flow in stopped for one in flow.intervals if one.end_s >= from_s}
    for begin_s, end_s in sorted(moments):
        now, soon = _share(stopped, begin_s, end_s), _share(stopped, begin_s, begin_s + HOLD_S)
        if min(now, soon) >= AS_BEFORE:
            return end_s
    return None


def _share(stopped: Sequence[_Stopped], begin_s: float, end_s: float) -> float:
    """Return what flows delivered in a stretch of time, as a share of what it was before.

    Only those count that had not ended.
    """
    delivered = expected = 0.0
    for flow in stopped:
        first = bisect_right(flow.intervals, begin_s, key=attrgetter("end_s"))
        for one in takewhile(lambda one: one.begin_s < end_s, islice(flow.intervals, first, None)):
            common_s = min(one.end_s, end_s) - max(one.begin_s, begin_s)
            delivered += one.delivered_bytes * 8 * common_s / (one.end_s - one.begin_s)
            expected += flow.before_bps * common_s
    return delivered / expected if expected else 0.0
