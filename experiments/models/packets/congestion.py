"""Congestion controls of simulated TCP, chosen by number: the sender's interface to `controls`.

A flow's record has the number of its control (`TcpFlow.control`), so flows with different controls
can share a network. The sender calls, like Linux (`struct tcp_congestion_ops`):

    observe_ack      an ACK with a round-trip sample, before the sender's state changes
    holds_window     an ACK of new segments, while no loss is being repaired: may the window grow?
    grow_window      the same ACK, if the window may grow and is full
    reduce_window    a loss, a timeout or an ECN mark, once per window of data

Slow start, the bounds of the window, and the repair of losses are the same for all controls. To add
a control, write its module, add its number and name here, and call its functions below.
"""

from __future__ import annotations

from pillarbox.experiments.models.packets.controls.cubic import (
    HYSTART_WINDOW,
    cubic_threshold,
    cubic_window,
    detect_queue,
)
from pillarbox.experiments.models.packets.controls.dctcp import dctcp_threshold, update_alpha
from pillarbox.experiments.models.packets.controls.delay import delay_window, exceeds_target
from pillarbox.experiments.models.packets.controls.lia import lia_window
from pillarbox.experiments.models.packets.controls.reno import reno_threshold, reno_window
from pillarbox.experiments.models.packets.controls.scalable import (
    scalable_threshold,
    scalable_window,
)
from pillarbox.experiments.models.packets.state import Packet, TcpFlow

CONTROLS = (
    "reno",
    "cubic",
    "dctcp",
    "delay",
    "scalable",
    "lia",
)  # names of the controls, by number
RENO, CUBIC, DCTCP, DELAY, SCALABLE, LIA = range(6)
LEAST_WINDOW = 2.0  # lowest window after a loss, in segments


def observe_ack(flow: TcpFlow, packet: Packet, round_trip_s: float, now: float) -> None:
    """Let the flow's control measure an ACK that brings a round-trip sample."""
    if flow.control == CUBIC and HYSTART_WINDOW <= flow.window < flow.threshold:
        detect_queue(flow, round_trip_s, packet.number, now)
    elif flow.control == DCTCP:
        update_alpha(flow, packet)
    elif flow.control == DELAY:
        # Linux measures a control's round trips by the newest acknowledged segment.
        flow.latest_s = now - packet.newest_s
        flow.ever_s = min(flow.ever_s, flow.latest_s)


def holds_window(flow: TcpFlow, now: float) -> bool:
    """Return True if the window must not grow; a control by delay may shrink the window here."""
    if flow.control != DELAY or not exceeds_target(flow):
        return False
    if now - flow.cut_s >= flow.latest_s:
        flow.cut_s = now
        flow.window = flow.threshold = max(delay_window(flow), LEAST_WINDOW)
    return True


def grow_window(flow: TcpFlow, segments: int, now: float, most: float) -> None:
    """Grow the congestion window after an ACK of new segments, up to `most`."""
    if flow.window < flow.threshold:
        window = min(flow.window + segments, flow.threshold)
    elif flow.control == CUBIC:
        window = cubic_window(flow, segments, now)
    elif flow.control == SCALABLE:
        window = scalable_window(flow, segments)
    elif flow.control == LIA:
        window = lia_window(flow, segments)
    else:
        window = reno_window(flow, segments)
    flow.window = min(window, most)


def reduce_window(flow: TcpFlow, marked: bool) -> None:
    """Set the slow-start threshold, to which the window falls: after a loss, or after a mark."""
    if flow.control == CUBIC:
        threshold = cubic_threshold(flow)
    elif flow.control == DCTCP:
        threshold = dctcp_threshold(flow, marked)
    elif flow.control == SCALABLE:
        threshold = scalable_threshold(flow)
    else:
        threshold = reno_threshold(flow)
    flow.threshold = max(threshold, LEAST_WINDOW)
