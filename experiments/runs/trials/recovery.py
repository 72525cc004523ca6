"""Recovery of flows after a fault: outage time, and time until the previous goodput is reached.

The delivered bytes of flows are recorded in intervals, which limit the resolution of the times
here: an event within an interval counts from the end of the interval.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from itertools import islice, takewhile
from operator import attrgetter
from typing import Any, NamedTuple

from pillarbox.experiments.models.workloads.flows import FlowResult, Interval

BEFORE_S = 1.0  # Time before an event that defines the previous goodput, in seconds.
# Time in which a fault stops a flow, in seconds: queues after the fault drain. Flows that stop
# later have other reasons.
STILL_WITHIN_S = 0.5
AS_BEFORE = 0.9  # Share of the previous goodput from which flows have recovered.
# Time for which recovered flows must keep their mean goodput, in seconds: a receiver that fills a
# gap is fast for a moment.
HOLD_S = 0.5


def recovery(
    events: Sequence[dict[str, Any]],
    results: Sequence[FlowResult],
    killed: Callable[[dict[str, Any]], Collection[int]],
) -> list[dict[str, Any]]:
    """Return the events' rows with ``stopped_flows``, ``rerouted_s`` and ``recovered_s`` filled in.

    An event has stopped a flow if the flow delivered bytes in every interval of the second before,
    and no byte in an interval that begins within half a second after. ``rerouted_s`` is the time
    at which the last stopped flow delivered bytes again; ``recovered_s`` is the time at which all
    stopped flows together reached 90 % of their goodput in the second before, and kept it for half
    a second on average. Both are seconds after the event, and None if no flow stopped or if the
    flows did not recover. Flows from or to a killed server do not count.

    Parameters
    ----------
    events
        Rows of schema.EVENTS.
    results
        Results of all flows, with their intervals.
    killed
        Function that returns the servers that an event killed.
    """
    return [
        event
        if event["reason"]
        else {**event, **_recovery_columns(event["at_s"], set(killed(event)), results)}
        for event in events
    ]


class _StoppedFlow(NamedTuple):
    """A flow that a fault stopped: its previous goodput, its restart, and its intervals."""

    before_bps: float
    again_s: float | None  # Time at which the flow delivered bytes again; None if never.
    intervals: Sequence[Interval]


def _recovery_columns(
    at_s: float, killed_servers: set[int], results: Sequence[FlowResult]
) -> dict[str, Any]:
    """Return a fault's recovery columns: stopped flows, rerouting and recovery times."""
    flows = (r for r in results if not killed_servers & {r.flow.source, r.flow.destination})
    stopped = [found for found in (_stopped_flow(flow.intervals, at_s) for flow in flows) if found]
    again = [one.again_s for one in stopped if one.again_s is not None]
    found: dict[str, Any] = {"stopped_flows": len(stopped), "rerouted_s": None, "recovered_s": None}
    if stopped and len(again) == len(stopped):
        moved_s = max(again)
        back_s = _recovered_s(stopped, moved_s)
        found["rerouted_s"] = moved_s - at_s
        found["recovered_s"] = None if back_s is None else back_s - at_s
    return found


def _stopped_flow(intervals: Sequence[Interval], at_s: float) -> _StoppedFlow | None:
    """Return a flow as stopped by an event at a time, or None if the event did not stop it."""
    before = [one for one in intervals if at_s - BEFORE_S <= one.begin_s and one.end_s <= at_s]
    if not before or not all(one.delivered_bytes for one in before):
        return None
    after = [one for one in intervals if one.begin_s >= at_s]
    soon = takewhile(lambda one: one.begin_s <= at_s + STILL_WITHIN_S, after)
    still_s = next((one.begin_s for one in soon if not one.delivered_bytes), None)
    if still_s is None:
        return None
    again = (one.end_s for one in after if one.begin_s > still_s and one.delivered_bytes)
    return _StoppedFlow(_mean_goodput_bps(before), next(again, None), intervals)


def _mean_goodput_bps(intervals: Sequence[Interval]) -> float:
    seconds = sum(one.end_s - one.begin_s for one in intervals)
    return sum(one.delivered_bytes for one in intervals) * 8 / seconds


def _recovered_s(stopped: Sequence[_StoppedFlow], from_s: float) -> float | None:
    """Return the time at which stopped flows reached their previous goodput again, or None."""
    moments = {one[:2] for flow in stopped for one in flow.intervals if one.end_s >= from_s}
    for begin_s, end_s in sorted(moments):
        now, soon = (
            _goodput_share(stopped, begin_s, end_s),
            _goodput_share(stopped, begin_s, begin_s + HOLD_S),
        )
        if min(now, soon) >= AS_BEFORE:
            return end_s
    return None


def _goodput_share(stopped: Sequence[_StoppedFlow], begin_s: float, end_s: float) -> float:
    """Return the goodput of stopped flows in a time window as a share of their previous goodput.

    Flows that had ended do not count.
    """
    delivered = expected = 0.0
    for flow in stopped:
        first = bisect_right(flow.intervals, begin_s, key=attrgetter("end_s"))
        for one in takewhile(lambda one: one.begin_s < end_s, islice(flow.intervals, first, None)):
            common_s = min(one.end_s, end_s) - max(one.begin_s, begin_s)
            delivered += one.delivered_bytes * 8 * common_s / (one.end_s - one.begin_s)
            expected += flow.before_bps * common_s
    return delivered / expected if expected else 0.0
