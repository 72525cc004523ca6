"""Scalable TCP (Kelly 2003), with the constants of a lab's `scalable.bpf.c`.

Each acknowledged segment adds 0.01 segments, and a loss takes an eighth of the window. Windows of
up to 16 segments follow Reno's rules, and the gain is never below Reno's.
"""

from __future__ import annotations

from pillarbox.experiments.models.packets.controls.reno import reno_threshold, reno_window
from pillarbox.experiments.models.packets.state import TcpFlow

LOWEST = 16  # window above which the rules differ from Reno's, in segments
PER_ACK = 100  # acknowledged segments by which the window grows by one
CUT = 8  # a loss takes the window divided by CUT


def scalable_threshold(flow: TcpFlow) -> float:
    """Return the window after a loss, in whole segments as in the kernel."""
    window = int(flow.window)
    return reno_threshold(flow) if window <= LOWEST else float(window - window // CUT)


def scalable_window(flow: TcpFlow, segments: int) -> float:
    """Return the window after an ACK of new segments."""
    if int(flow.window) <= LOWEST:
        return reno_window(flow, segments)
    return flow.window + segments / min(flow.window, float(PER_ACK))
