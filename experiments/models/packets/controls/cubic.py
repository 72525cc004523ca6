"""CUBIC (RFC 9438), which leaves slow start by HyStart.

HyStart: Ha and Rhee 2011, "Taming the elephants: New TCP slow start".
"""

from __future__ import annotations

import math

from pillarbox.experiments.models.packets.state import NEVER, TcpFlow

CUBIC_LEFT = 0.7  # fraction of the congestion window left after a loss
CUBIC_SCALE = 0.4  # CUBIC's constant C, in segments/second^3 (RFC 9438, section 5)
# window growth per ACKed window that makes CUBIC as fast as Reno (RFC 9438, section 4.3)
CUBIC_RENO = 3 * (1 - CUBIC_LEFT) / (1 + CUBIC_LEFT)
CUBIC_MOST = (
    1.5  # CUBIC: maximum growth factor of the window per round trip (RFC 9438, section 4.4)
)
HYSTART_WINDOW, HYSTART_SAMPLES = 16.0, 8
# HyStart: maximum gap between ACKs of a train, and allowance for delayed ACKs, in seconds
TRAIN_S, ACK_DELAY_S = 2e-3, 1e-3
# HyStart: bounds (s), and fraction of the round trip, of the delay that shows a growing queue
LEAST_RISE_S, MOST_RISE_S, RISE = 4e-3, 16e-3, 1 / 8


def cubic_threshold(flow: TcpFlow) -> float:
    """Return the window after a loss; CUBIC's growth begins again."""
    # CUBIC leaves room for other flows if the window fell since the last loss (RFC 9438, 4.7).
    again = flow.window < flow.most
    flow.most = flow.window * (1 + CUBIC_LEFT) / 2 if again else flow.window
    flow.epoch_s = NEVER
    return flow.window * CUBIC_LEFT


def cubic_window(flow: TcpFlow, segments: int, now: float) -> float:
    """Return CUBIC's window at this time (RFC 9438, section 4)."""
    window = flow.window
    if flow.epoch_s == NEVER:
        flow.epoch_s, flow.reno = now, window
        flow.most = max(flow.most, window)
        flow.rise_s = math.pow((flow.most - window) / CUBIC_SCALE, 1 / 3)
    # Linux always grows CUBIC's estimate of Reno's window, not only while CUBIC is slower
    flow.reno += CUBIC_RENO * segments / window
    away_s = now - flow.epoch_s + flow.round_trip_s - flow.rise_s
    target = flow.most + CUBIC_SCALE * away_s**3
    target = min(max(target, window), CUBIC_MOST * window)
    return max(window + segments * (target - window) / window, flow.reno)


def detect_queue(flow: TcpFlow, round_trip_s: float, acked: int, now: float) -> None:
    """End slow start when the ACK train is long or round trips grow (HyStart)."""
    if acked > flow.round_end:
        flow.round_end, flow.round_s, flow.train_s = flow.next, now, now
        flow.samples, flow.least_s = 0, NEVER
    if now - flow.train_s <= TRAIN_S:
        flow.train_s = now
        if now - flow.round_s > (flow.ever_s + ACK_DELAY_S) / 2:
            flow.threshold = flow.window
    flow.least_s = min(flow.least_s, round_trip_s)
    flow.samples += 1
    rise_s = min(max(RISE * flow.ever_s, LEAST_RISE_S), MOST_RISE_S)
    if flow.samples > HYSTART_SAMPLES and flow.least_s > flow.ever_s + rise_s:
        flow.threshold = flow.window
