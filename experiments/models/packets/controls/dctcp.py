"""DCTCP (RFC 8257), with the constants of a lab's `dctcp.bpf.c`.

The window grows as Reno's. After an ECN mark it shrinks by half the share of marked segments,
alpha; after a loss by half, as conventional TCP's (section 3.5). As in Linux, windows are reduced
in whole segments, and the observation window ends when its last segment is acknowledged.
"""

from __future__ import annotations

from pillarbox.experiments.models.packets.state import Packet, TcpFlow

GAIN = 1 / 16  # estimation gain g (RFC 8257, section 4.2)
FIRST_ALPHA = 1.0  # initial share of marked segments (section 4.2)


def update_alpha(flow: TcpFlow, packet: Packet) -> None:
    """Count the segments that an ACK reports; update alpha once in each observation window.

    RFC 8257, section 3.3: M = marked / acknowledged, alpha = alpha (1 - g) + g M.
    """
    delivered = packet.taken - flow.taken
    flow.observed += delivered
    if packet.marked:
        flow.marked += delivered
    if packet.number < flow.window_end:
        return
    share = flow.marked / flow.observed if flow.observed > 0 else 0.0
    flow.alpha = flow.alpha * (1 - GAIN) + GAIN * share
    flow.window_end = flow.next
    flow.observed = flow.marked = 0


def dctcp_threshold(flow: TcpFlow, marked: bool) -> float:
    """Return the window after a mark, cwnd (1 - alpha / 2), or after a loss."""
    window = int(flow.window)
    return float(window - int(window * (flow.alpha if marked else 1.0) / 2))
