"""TCP sender: congestion window, processing of ACKs, and retransmission timer, as in Linux by
default.

The window grows as the flow's congestion control decides (`congestion`), from 10 segments on (RFC
6928), and only while it is full. At most two super-packets of a flow, or the data of 1 ms, wait at
its server's own port (Linux' TCP small queues). A loss that an ACK reports is repaired immediately,
with no more segments in flight than the window (RFC 6675), which is reduced as segments arrive (RFC
6937). The timeout is the smoothed round trip plus four times its deviation, of which at least 200
ms (RFC 6298, except for Linux' minimum). An ECN-Echo reduces the window like a loss, at most once
per window of data (RFC 3168, section 6.1.2), and not again if segments of that window are lost. If
no segment is missing, a tail loss probe is sent before the timeout, after two round trips (TLP, RFC
8985, section 7).
"""

from __future__ import annotations

import math

from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.packets.congestion import (
    grow_window,
    holds_window,
    observe_ack,
    reduce_window,
)
from pillarbox.experiments.models.packets.state import (
    LOSS,
    NEVER,
    OPEN,
    RECOVERY,
    REDUCTION,
    Packet,
    TcpFlow,
)

FIRST_WINDOW = 10.0
LEAST_TIMEOUT_S, MOST_TIMEOUT_S = 0.2, 120.0
LEAST_PROBE_S = 0.002  # added to two round trips before a tail loss probe, in seconds
OWN_S = 1e-3  # data of a flow that may wait at its server's own port, in seconds at the pacing rate
# TCP pacing rate in windows per round trip: in slow start, and afterwards
PACED, PACED_LATER = 2.0, 1.2


def process_ack(flow: TcpFlow, packet: Packet, now: float, most: float) -> None:
    """Update a simulated TCP sender's state from an ACK."""
    progress = packet.number - flow.acked
    delivered = packet.taken - flow.taken
    has_lost = packet.newest - flow.newest > delivered
    if progress > 0 or packet.newest > flow.newest:
        # TCP timestamps allow round-trip samples of retransmitted segments as well
        round_trip_s = now - packet.stamp_s
        _update_round_trip(flow, round_trip_s)
        flow.ever_s = min(flow.ever_s, round_trip_s)
        observe_ack(flow, packet, round_trip_s, now)
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
    # A reduction lasts until the receiver has the first segment that reports it.
    last = flow.until + (1 if flow.doing == REDUCTION else 0)
    if flow.doing != OPEN and flow.acked >= last:
        if flow.doing != LOSS:
            flow.window = flow.threshold
        flow.doing = OPEN
    if packet.has_holes and (flow.doing == OPEN or flow.doing == REDUCTION):
        if flow.doing == OPEN:
            _begin_reduction(flow, False)
        flow.doing, flow.until = RECOVERY, flow.next
    elif packet.marked and flow.doing == OPEN:
        _begin_reduction(flow, True)
        flow.doing, flow.until, flow.owes_notice = REDUCTION, flow.next, True
    flow.taken = max(flow.taken, packet.taken)
    if flow.doing == RECOVERY or flow.doing == REDUCTION:
        if delivered > 0:
            _set_recovery_window(flow, delivered, progress > 0 and not has_lost)
    elif progress > 0 and not holds_window(flow, now):
        # In slow start the congestion window also grows if only half of it was in flight.
        under_way = flow.sent - flow.newest + progress
        if flow.full or (flow.window < flow.threshold and flow.window < 2 * under_way):
            grow_window(flow, progress, now, most)


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
    if is_tail_loss_probe(flow):
        late_s = LEAST_TIMEOUT_S if flow.sent - flow.newest == 1 else LEAST_PROBE_S
        timeout_s = min(timeout_s, 2 * flow.round_trip_s + late_s)
    return now + min(timeout_s * 2.0**flow.doublings, MOST_TIMEOUT_S)


def is_tail_loss_probe(flow: TcpFlow) -> bool:
    """Return True if the sender's timer is for a tail loss probe, not for a timeout."""
    return (flow.doing == OPEN or flow.doing == REDUCTION) and not flow.probed


def process_timeout(flow: TcpFlow, now: float) -> None:
    """Handle a simulated TCP sender's timeout: all segments in flight count as lost."""
    flow.timeouts += 1
    if flow.doing == OPEN:
        flow.undo_s, flow.undo_window, flow.undo_threshold = now, flow.window, flow.threshold
        reduce_window(flow, False)
    flow.window = 1.0
    flow.doublings = min(flow.doublings + 1, 10)
    flow.newest, flow.repairs = flow.sent, flow.acked
    flow.doing, flow.until = LOSS, flow.next


def next_segment_to_send(flow: TcpFlow, arrived_as: Ints, sent_as: Ints) -> int:
    """Return the next segment to retransmit, or, if none is lost, the first that was never sent.

    `arrived_as` holds the transmission with which each segment has arrived, of which the sender
    knows those that an ACK has reported; `sent_as` holds each segment's last transmission.
    """
    segment = flow.repairs
    if flow.doing == OPEN or flow.doing == REDUCTION:
        return flow.next
    while segment < flow.next:
        at = flow.segment + segment
        if arrived_as[at] > flow.reported and sent_as[at] <= flow.newest:
            break
        segment += 1
    flow.repairs = segment
    return segment


def segments_of_next_packet(
    flow: TcpFlow, first: int, most: int, arrived_as: Ints, sent_as: Ints
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
        if arrived_as[at] <= flow.reported or sent_as[at] > flow.newest:
            break
        segment += 1
    return segment - first


def _update_round_trip(flow: TcpFlow, round_trip_s: float) -> None:
    """Update the smoothed round trip and its deviation (RFC 6298, section 2)."""
    off_s = abs(round_trip_s - flow.round_trip_s)
    flow.deviation_s += (off_s - flow.deviation_s) / 4
    flow.round_trip_s += (round_trip_s - flow.round_trip_s) / 8


def _begin_reduction(flow: TcpFlow, marked: bool) -> None:
    """Begin to reduce the window as segments arrive, after a loss or an ECN mark."""
    flow.begun_sent, flow.begun_taken = flow.sent, flow.taken
    flow.begun_window = flow.window
    reduce_window(flow, marked)


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
