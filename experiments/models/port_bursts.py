"""Bytes that a port of a lab sends together: TCP's super-packets, and the burst after idle time.

`pillarbox.experiments.lab.linux.shaping` sets these limits, and models of a lab's ports calculate
with them.
"""

from __future__ import annotations

AT_ONCE_S = 0.003  # burst of a port after idle time, as seconds of its rate
# minimum size of TCP's super-packets in segments, and the kernel's maximum in bytes
LEAST_SEGMENTS, MOST_SUPER_PACKET = 2, 65536


def super_packet_bytes(rate_mbit: float | None, mtu: int) -> int:
    """Return the bound of TCP's super-packets in bytes at a rate: about 1 ms of traffic.

    >>> super_packet_bytes(10, 1500), super_packet_bytes(100, 1500), super_packet_bytes(100, 9000)
    (3000, 12500, 18000)
    >>> super_packet_bytes(None, 1500)
    65536
    """
    if rate_mbit is None:
        return MOST_SUPER_PACKET
    return min(MOST_SUPER_PACKET, max(LEAST_SEGMENTS * mtu, int(rate_mbit * 125)))


def super_packet_segments(rate_mbit: float | None, mtu: int) -> int:
    """Return the number of TCP segments per super-packet at a rate, if TCP's window allows it.

    By default TCP uses two segments where many flows share a cable, since each flow sends little in
    1 ms. Every port on the path takes as long for two segments as for ten.

    >>> super_packet_segments(10, 1500), super_packet_segments(100, 1500)
    (2, 8)
    >>> super_packet_segments(None, 1500)
    2
    """
    return LEAST_SEGMENTS if rate_mbit is None else super_packet_bytes(rate_mbit, mtu) // mtu


def burst_bytes(rate_mbit: float, mtu: int, at_once_s: float = AT_ONCE_S) -> float:
    """Return the largest burst of a port after idle time in bytes.

    With hysteresis it is the saved credit, the allowed debt, and the packet that exceeds the debt.

    >>> burst_bytes(20, 1500), burst_bytes(10, 1500)
    (10500.0, 9000)
    """
    return 2 * owed_bytes(rate_mbit, mtu, at_once_s) + super_packet_bytes(rate_mbit, mtu)


def owed_bytes(rate_mbit: float, mtu: int, at_once_s: float = AT_ONCE_S) -> float:
    """Return the bytes by which a port that sends in bursts may exceed its rate.

    >>> owed_bytes(100, 1500), owed_bytes(100, 9000)
    (18750.0, 18750.0)
    """
    return max(super_packet_bytes(rate_mbit, mtu), at_once_s / 2 * rate_mbit * 125_000)
