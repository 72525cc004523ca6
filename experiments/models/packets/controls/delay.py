"""Control by delay, in the manner of Swift, with the constants of a lab's `delay.bpf.c`.

Swift: Kumar et al., SIGCOMM 2020. The window grows as Reno's while the round trip is at most the
shortest one plus TARGET_S. Above this target it shrinks in proportion to the excess, at most once
in a round trip, and by whole percents and segments, as in the kernel.
"""

from __future__ import annotations

from pillarbox.experiments.models.packets.state import TcpFlow

TARGET_S = 4e-3  # wanted queueing delay
# percent of the excess, as a share of the round trip, by which the window shrinks; and its maximum
BETA, MOST = 80, 50


def exceeds_target(flow: TcpFlow) -> bool:
    """Return True if the latest round trip exceeds the target."""
    return flow.latest_s > flow.ever_s + TARGET_S


def delay_window(flow: TcpFlow) -> float:
    """Return the window after a round trip that exceeds the target."""
    percent = int(BETA * (flow.latest_s - flow.ever_s - TARGET_S) / flow.latest_s)
    return flow.window - int(flow.window) * min(percent, MOST) // 100
