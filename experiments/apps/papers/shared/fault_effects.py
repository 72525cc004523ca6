"""Effects of faults on a run's flows, by trial: the longest gap, and goodput during a fault."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

    from pillarbox.experiments.runs.trials.records import Run


def longest_gap_s(run: Run, _event: str = "") -> pandas.Series:
    """Return the longest time in which a flow of a trial delivered no byte, after its first one.

    The resolution is that of the intervals: parts of an interval do not count.
    """
    import pandas

    gaps: dict[int, float] = {}
    for (trial, _), rows in run.intervals.sort_values("begin_s").groupby(["trial", "flow"]):
        spans = zip(rows.delivered_bytes, rows.end_s - rows.begin_s, strict=True)
        parts = [
            (delivers, sum(lasted_s for _, lasted_s in some))
            for delivers, some in groupby(spans, key=lambda span: span[0] > 0)
        ]
        first = next((at for at, (delivers, _) in enumerate(parts) if delivers), len(parts))
        longest = max((lasted_s for delivers, lasted_s in parts[first:] if not delivers), default=0)
        gaps[trial] = max(gaps.get(trial, 0.0), float(longest))
    return pandas.Series(gaps, dtype=float)


def goodput_during_bps(run: Run, event: str) -> pandas.Series:
    """Return the goodput of each trial from a fault until the next fault or repair, in bit/s."""
    import pandas

    found: dict[int, float] = {}
    for trial, events in run.events.groupby("trial"):
        rows = run.intervals[run.intervals.trial == trial]
        begin_s, end_s = _span(events, event, float(rows.end_s.max()))
        common_s = rows.end_s.clip(upper=end_s) - rows.begin_s.clip(lower=begin_s)
        shares = (common_s / (rows.end_s - rows.begin_s)).clip(lower=0.0)
        if end_s > begin_s:
            found[trial] = float((rows.delivered_bytes * shares).sum()) * 8 / (end_s - begin_s)
    return pandas.Series(found, dtype=float)


def _span(events: pandas.DataFrame, event: str, last_s: float) -> tuple[float, float]:
    """Return the time of an event and of the next one, or the end; both 0 without the event."""
    moments = [*sorted(events.at_s), last_s]
    at_s = events[events.event == event].at_s
    if at_s.empty:
        return 0.0, 0.0
    return float(at_s.iloc[0]), moments[moments.index(at_s.iloc[0]) + 1]
