"""TCP sender: congestion window, processing of ACKs, and retransmission timer, as in Linux by
default.

The window grows as CUBIC's (RFC 9438) or NewReno's (RFC 5681, RFC 6582), from 10 segments on (RFC
6928), and only while it is full. CUBIC leaves slow start by HyStart (Ha and Rhee 2011, "Taming the
elephants: New TCP slow start"). At most two super-packets of a flow, or the data of 1 ms, wait at
its server's own port (Linux' TCP small queues). A loss that an ACK reports is repaired immediately,
with no more segments in flight than the window (RFC 6675), which is reduced as segments arrive (RFC
6937). The timeout is the smoothed round trip plus four times its deviation, of which at least 200
ms (RFC 6298, except for Linux' minimum). If no segment is missing, a tail loss probe is sent before
the timeout, after two round trips (TLP, RFC 8985, section 7).
"""

from __future__ import annotations

import math

from experiments.models.arrays import Bools, Ints
from experiments.models.packets.state import LOSS, NEVER, OPEN, RECOVERY, Packet, TcpFlow

FIRST_WINDOW = 10.0
LEAST_TIMEOUT_S, MOST_TIMEOUT_S = 0.2, 120.0
LEAST_PROBE_S = 0.002  # added to two round trips before a tail loss probe, in seconds
RENO_LEFT, CUBIC_LEFT = 0.5, 0.7  # fraction of the congestion window left after a loss
CUBIC_SCALE = 0.4  # CUBIC's constant C, in segments/second^3 (RFC 9438, section 5)
# window growth per ACKed window that makes CUBIC as fast as Reno (RFC 9438, section 4.3)
CUBIC_RENO = 3 * (1 - CUBIC_LEFT) / (1 + CUBIC_LEFT)
CUBIC_MOST = (
    1.5  # CUBIC: maximum growth factor of the window per round trip (RFC 9438, section 4.4)
)
LEAST_WINDOW = 2.0
OWN_S = 1e-3  # data of a flow that may wait at its server's own port, in seconds at the pacing rate
# TCP pacing rate in windows per round trip: in slow start, and afterwards
PACED, PACED_LATER = 2.0, 1.2
HYSTART_WINDOW, HYSTART_SAMPLES = 16.0, 8
# HyStart: maximum gap between ACKs of a train, and allowance for delayed ACKs, in seconds
TRAIN_S, ACK_DELAY_S = 2e-3, 1e-3
# HyStart: bounds (s), and fraction of the round trip, of the delay that shows a growing queue
LEAST_RISE_S, MOST_RISE_S, RISE = 4e-3, 16e-3, 1 / 8


def process_ack(flow: TcpFlow, packet: Packet, now: float, cubic: bool, most: float) -> None:
    """Update a simulated TCP sender's state from an ACK."""
    progress = packet.number - flow.acked
    delivered = packet.taken - flow.taken
    has_lost = packet.newest - flow.newest > delivered
    if progress > 0 or packet.newest > flow.newest:
        # TCP timestamps allow round-trip samples of retransmitted segments as well
        round_trip_s = now - packet.stamp_s
        _update_round_trip(flow, round_trip_s)
        flow.ever_s = min(flow.ever_s, round_trip_s)
        if cubic and HYSTART_WINDOW <= flow.window < flow.threshold:
            _detect_queue(flow, round_trip_s, packet.number, now)
    flow.newest = max(flow.newest, packet.newest)
    if progress > 0:
        flow.acked = packet.number
        flow.doublings = 0
        flow.probed = False
    flow.repairs = flow.acked
    if flow.doing == LOSS and progress > 0 and packet.stamp_s < flow.undo_s:
        # The acknowledged segment was sent before the timeout: no loss (Eifel algorithm, RFC 3522).
        flow.window, flow.threshold = flow.undo_window, flow.undo_threshold
        flow.doing = OPEN
    if flow.doing != OPEN and flow.acked >= flow.until:
        if flow.doing == RECOVERY:
            flow.window = flow.threshold
        flow.doing = OPEN
    if flow.doing == OPEN and packet.has_holes:
        flow.begun_sent, flow.begun_taken = flow.sent, flow.taken
        flow.begun_window = flow.window
        _reduce_window(flow, cubic)
        flow.doing, flow.until = RECOVERY, flow.next
    flow.taken = max(flow.taken, packet.taken)
    if flow.doing == RECOVERY and delivered > 0:
        _set_recovery_window(flow, delivered, progress > 0 and not has_lost)
    elif flow.doing != RECOVERY and progress > 0:
        # In slow start the congestion window also grows if only half of it was in flight.
        under_way = flow.sent - flow.newest + progress
        if flow.full or (flow.window < flow.threshold and flow.window < 2 * under_way):
            _grow_window(flow, progress, now, cubic, most)


def most_segments_at_own_port(flow: TcpFlow, least: int) -> float:
    """Return the maximum number of a flow's segments at its server's own port, at least `least`."""
    own = float(least)
    # Before the first ACK the round trip is the idle network's, too short if many flows start.
    if flow.acked == 0:
        return own
    pace = PACED if flow.window < flow.threshold else PACED_LATER
    return max(own, OWN_S * pace * flow.window / flow.round_trip_s)


def timer_expiry_s(flow: TcpFlow, now: float) -> float:
    """Return the time at which the sender's timer expires, counted from `now`."""
    if flow.acked == flow.next:
        return NEVER
    timeout_s = flow.round_trip_s + max(LEAST_TIMEOUT_S, 4 * flow.deviation_s)
    if flow.doing == OPEN and not flow.probed:
        late_s = LEAST_TIMEOUT_S if flow.sent - flow.newest == 1 else LEAST_PROBE_S
        timeout_s = min(timeout_s, 2 * flow.round_trip_s + late_s)
    return now + min(timeout_s * 2.0**flow.doublings, MOST_TIMEOUT_S)


def is_tail_loss_probe(flow: TcpFlow) -> bool:
    """Return True if the sender's timer is for a tail loss probe, not for a timeout."""
    return flow.doing == OPEN and not flow.probed


def process_timeout(flow: TcpFlow, now: float, cubic: bool) -> None:
    """Handle a simulated TCP sender's timeout: all segments in flight count as lost."""
    flow.timeouts += 1
    if flow.doing == OPEN:
        flow.undo_s, flow.undo_window, flow.undo_threshold = now, flow.window, flow.threshold
        _reduce_window(flow, cubic)
    flow.window = 1.0
    flow.doublings = min(flow.doublings + 1, 10)
    flow.newest, flow.repairs = flow.sent, flow.acked
    flow.doing, flow.until = LOSS, flow.next


def next_segment_to_send(flow: TcpFlow, arrived: Bools, sent_as: Ints) -> int:
    """Return the next segment to retransmit, or, if none is lost, the first that was never sent.

    `arrived` is true for segments that have arrived, `sent_as` holds each segment's last
    transmission. An arrival counts here as soon as the ACK that will report it is in flight.
    """
    segment = flow.repairs
    if flow.doing == OPEN:
        return flow.next
    while segment < flow.next:
        at = flow.segment + segment
        if not arrived[at] and sent_as[at] <= flow.newest:
            break
        segment += 1
    flow.repairs = segment
    return segment


def segments_of_next_packet(
    flow: TcpFlow, first: int, most: int, arrived: Bools, sent_as: Ints
) -> int:
    """Return the number of segments, from `first` on, in one packet: all lost, or all new.

    Linux limits a packet to half the window (`tcp_cwnd_test`).
    """
    most = min(most, max(int(flow.window / 2), 1))
    if first == flow.next:
        return min(most, flow.segments - first)
    end = min(first + most, flow.next)
    segment = first + 1
    while segment < end:
        at = flow.segment + segment
        if arrived[at] or sent_as[at] > flow.newest:
            break
        segment += 1
    return segment - first


def _detect_queue(flow: TcpFlow, round_trip_s: float, acked: int, now: float) -> None:
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


def _update_round_trip(flow: TcpFlow, round_trip_s: float) -> None:
    """Update the smoothed round trip and its deviation (RFC 6298, section 2)."""
    off_s = abs(round_trip_s - flow.round_trip_s)
    flow.deviation_s += (off_s - flow.deviation_s) / 4
    flow.round_trip_s += (round_trip_s - flow.round_trip_s) / 8


def _set_recovery_window(flow: TcpFlow, delivered: int, goes_well: bool) -> None:
    """Set the window to the segments in flight plus those that recovery allows now (RFC 6937)."""
    sent, under_way = flow.sent - flow.begun_sent, flow.sent - flow.newest
    taken, room = flow.taken - flow.begun_taken, flow.threshold - under_way
    more: float
    if room < 0:
        more = math.ceil(flow.threshold * taken / flow.begun_window) - sent
    else:
        more = min(max(taken - sent, delivered) + (1 if goes_well else 0), room)
    flow.window = under_way + max(more, 0.0 if sent else 1.0)


def _reduce_window(flow: TcpFlow, cubic: bool) -> None:
    """Reduce the congestion window once per loss event."""
    left = CUBIC_LEFT if cubic else RENO_LEFT
    # CUBIC leaves room for other flows if the window fell since the last loss (RFC 9438, 4.7).
    again = flow.window < flow.most
    flow.most = flow.window * (1 + left) / 2 if again else flow.window
    flow.threshold = max(flow.window * left, LEAST_WINDOW)
    flow.epoch_s = NEVER


def _grow_window(flow: TcpFlow, segments: int, now: float, cubic: bool, most: float) -> None:
    window = flow.window
    if window < flow.threshold:
        window = min(window + segments, flow.threshold)
    elif cubic:
        window = _cubic_window(flow, segments, now)
    else:
        window += segments / window
    flow.window = min(window, most)


def _cubic_window(flow: TcpFlow, segments: int, now: float) -> float:
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
