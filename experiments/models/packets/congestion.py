"""Congestion controls of simulated TCP, chosen by number: the sender's interface to `controls`.

A flow's record has the number of its control (`TcpFlow.control`), so flows with different controls
can share a network. The sender calls, like Linux (`struct tcp_congestion_ops`):

    observe_ack      an ACK with a round-trip sample, before the sender's state changes
    grow_window      an ACK of new segments, while no loss is being repaired
    reduce_window    a loss or a timeout, once per loss event

Slow start, the bounds of the window, and the repair of losses are the same for all controls. To add
a control, write its module, add its number and name here, and call its functions below.
"""

from __future__ import annotations

from experiments.models.packets.controls.cubic import (
    HYSTART_WINDOW,
    cubic_threshold,
    cubic_window,
    detect_queue,
)
from experiments.models.packets.controls.reno import reno_threshold, reno_window
from experiments.models.packets.state import Packet, TcpFlow

CONTROLS = ("reno", "cubic")  # names of the controls, by number
RENO, CUBIC = range(2)
LEAST_WINDOW = 2.0  # lowest window after a loss, in segments


def observe_ack(flow: TcpFlow, packet: Packet, round_trip_s: float, now: float) -> None:
    """Let the flow's control measure an ACK that brings a round-trip sample."""
    if flow.control == CUBIC and HYSTART_WINDOW <= flow.window < flow.threshold:
        detect_queue(flow, round_trip_s, packet.number, now)


def grow_window(flow: TcpFlow, segments: int, now: float, most: float) -> None:
    """Grow the congestion window after an ACK of new segments, up to `most`."""
    if flow.window < flow.threshold:
        window = min(flow.window + segments, flow.threshold)
    elif flow.control == CUBIC:
        window = cubic_window(flow, segments, now)
    else:
        window = reno_window(flow, segments)
    flow.window = min(window, most)


def reduce_window(flow: TcpFlow) -> None:
    """Set the slow-start threshold, to which the window falls, once per loss event."""
    if flow.control == CUBIC:
        threshold = cubic_threshold(flow)
    else:
        threshold = reno_threshold(flow)
    flow.threshold = max(threshold, LEAST_WINDOW)
