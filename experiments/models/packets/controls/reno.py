"""NewReno: additive increase, multiplicative decrease (RFC 5681, RFC 6582)."""

from __future__ import annotations

from pillarbox.experiments.models.packets.state import TcpFlow

RENO_LEFT = 0.5  # fraction of the congestion window left after a loss


def reno_threshold(flow: TcpFlow) -> float:
    """Return the window after a loss."""
    return flow.window * RENO_LEFT


def reno_window(flow: TcpFlow, segments: int) -> float:
    """Return the window after an ACK of new segments: a segment more per round trip."""
    return flow.window + segments / flow.window
