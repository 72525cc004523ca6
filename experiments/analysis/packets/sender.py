"""A sender of TCP: its window, what it learns from ACKs, and its timer. As Linux does, by default.

The window grows as CUBIC's (RFC 9438) or NewReno's (RFC 5681, RFC 6582), from 10 segments on
(RFC 6928), in slow start without HyStart. A loss that an ACK tells of is repaired at once, with no
more under way than the window (RFC 6675). The time-out is the smoothed round trip and four times
its deviation, of which at least 200 ms (RFC 6298, but for Linux' minimum). If nothing is missing,
a probe goes before it, after two round trips (TLP, RFC 8985, section 7).
"""

from __future__ import annotations

import math
from typing import Any

from experiments.analysis.packets.state import LOSS, NEVER, OPEN, RECOVERY

FIRST_WINDOW = 10.0
FIRST_TIMEOUT_S, LEAST_TIMEOUT_S, MOST_TIMEOUT_S = 1.0, 0.2, 120.0
LEAST_PROBE_S = 0.002  # beside two round trips
RENO_LEFT, CUBIC_LEFT = 0.5, 0.7  # of the window, after a loss
CUBIC_SCALE = 0.4  # segments a second^3 (RFC 9438, section 5)
CUBIC_RENO = 3 * (1 - CUBIC_LEFT) / (1 + CUBIC_LEFT)  # what makes CUBIC as fast as Reno (4.3)
CUBIC_MOST = 1.5  # of the window, within a round trip (4.4)
LEAST_WINDOW = 2.0


def acknowledged(flow: Any, packet: Any, now: float, cubic: bool, most: float) -> None:
    """Take what an ACK tells."""
    progress = packet.number - flow.acked
    if packet.newest > flow.newest:
        flow.newest = packet.newest
        _timed(flow, now - packet.stamp_s)
    if progress > 0:
        flow.acked = packet.number
        flow.doublings = 0
        flow.probed = False
    flow.repairs = flow.acked
    if flow.doing != OPEN and flow.acked >= flow.until:
        flow.doing = OPEN
    if flow.doing == OPEN and packet.has_holes:
        _lost(flow, cubic)
        flow.window = flow.threshold
        flow.doing, flow.until = RECOVERY, flow.next
    elif flow.doing != RECOVERY and progress > 0:
        _grow(flow, progress, now, cubic, most)


def timer_s(flow: Any, now: float) -> float:
    """Return when its timer is due, from now on."""
    if flow.acked == flow.next:
        return NEVER
    timeout_s = FIRST_TIMEOUT_S
    if flow.round_trip_s > 0:
        timeout_s = flow.round_trip_s + max(LEAST_TIMEOUT_S, 4 * flow.deviation_s)
        if flow.doing == OPEN and not flow.probed:
            late_s = LEAST_TIMEOUT_S if flow.sent - flow.newest == 1 else LEAST_PROBE_S
            timeout_s = min(timeout_s, 2 * flow.round_trip_s + late_s)
    return float(now + min(timeout_s * 2.0**flow.doublings, MOST_TIMEOUT_S))


def is_probe(flow: Any) -> bool:
    """Tell whether the timer is not the time-out yet."""
    return bool(flow.doing == OPEN and not flow.probed and flow.round_trip_s > 0)


def timed_out(flow: Any, cubic: bool) -> None:
    """Take all that is under way for lost."""
    flow.timeouts += 1
    if flow.doing == OPEN:
        _lost(flow, cubic)
    flow.window = 1.0
    flow.doublings = min(flow.doublings + 1, 10)
    flow.newest, flow.repairs = flow.sent, flow.acked
    flow.doing, flow.until = LOSS, flow.next


def next_lost(flow: Any, arrived: Any, sent_as: Any) -> int:
    """Return the next segment to be sent again, of those sent before; else the first that was not.

    `arrived` says of each segment whether it has, `sent_as` the number of its last transmission. It
    is known here as soon as an ACK is on its way that will tell.
    """
    segment: int = flow.repairs
    if flow.doing == OPEN:
        return int(flow.next)
    while segment < flow.next:
        at = flow.segment + segment
        if not arrived[at] and sent_as[at] <= flow.newest:
            break
        segment += 1
    flow.repairs = segment
    return segment


def _timed(flow: Any, round_trip_s: float) -> None:
    """Take a measured round trip (RFC 6298, section 2)."""
    if flow.round_trip_s == 0:
        flow.round_trip_s, flow.deviation_s = round_trip_s, round_trip_s / 2
        return
    off_s = abs(round_trip_s - flow.round_trip_s)
    flow.deviation_s += (off_s - flow.deviation_s) / 4
    flow.round_trip_s += (round_trip_s - flow.round_trip_s) / 8


def _lost(flow: Any, cubic: bool) -> None:
    """Give way, once for all that was lost together."""
    left = CUBIC_LEFT if cubic else RENO_LEFT
    # One that was lost at less than the last time leaves room for others (RFC 9438, 4.7).
    again = flow.window < flow.most
    flow.most = flow.window * (1 + left) / 2 if again else flow.window
    flow.threshold = max(flow.window * left, LEAST_WINDOW)
    flow.epoch_s = NEVER


def _grow(flow: Any, segments: int, now: float, cubic: bool, most: float) -> None:
    window = flow.window
    if window < flow.threshold:
        window = min(window + segments, flow.threshold)
    elif cubic:
        window = _cubic(flow, segments, now)
    else:
        window += segments / window
    flow.window = min(window, most)


def _cubic(flow: Any, segments: int, now: float) -> float:
    """Return the window by the time that has passed (RFC 9438, section 4)."""
    window = flow.window
    if flow.epoch_s == NEVER:
        flow.epoch_s, flow.reno = now, window
        flow.most = max(flow.most, window)
        flow.rise_s = math.pow((flow.most - window) / CUBIC_SCALE, 1 / 3)
    share = CUBIC_RENO if flow.reno < flow.most else 1.0
    flow.reno += share * segments / window
    away_s = now - flow.epoch_s + flow.round_trip_s - flow.rise_s
    target = flow.most + CUBIC_SCALE * away_s**3
    target = min(max(target, window), CUBIC_MOST * window)
    return float(max(window + segments * (target - window) / window, flow.reno))
