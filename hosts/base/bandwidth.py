"""How much of each port's rate is free, from the port's byte counters."""

from __future__ import annotations

from enum import Enum
from typing import Any

# The weight of the newest measurement against the mean so far.
NEWEST = 0.5


def mean(before: Any, newest: Any) -> Any:
    """Return the mean so far with the newest measurement in it; arrays for arrays."""
    return NEWEST * newest + (1 - NEWEST) * before


class Direction(Enum):
    """Which of a full-duplex port's two directions."""

    IN = 0
    OUT = 1


class Bandwidth:
    """Available bandwidth of a server's ports, as a data plane's counters show it.

    >>> bandwidth = Bandwidth(ports=2, rate_bps=1e9)
    >>> bandwidth.observe(0, received_bytes=0, sent_bytes=0, now=0.0)
    >>> bandwidth.observe(0, received_bytes=0, sent_bytes=25_000_000, now=1.0)
    >>> bandwidth.available_bps(0, Direction.OUT), bandwidth.available_bps(0, Direction.IN)
    (800000000.0, 1000000000.0)
    """

    def __init__(self, ports: int, rate_bps: float) -> None:
        self.rate_bps = rate_bps
        self._used: dict[tuple[int, Direction], float] = {}
        self._last: dict[int, tuple[float, dict[Direction, int]]] = {}

    def observe(self, port: int, received_bytes: int, sent_bytes: int, now: float) -> None:
        """Take in a port's counters, which only ever grow."""
        counters = {Direction.IN: received_bytes, Direction.OUT: sent_bytes}
        last = self._last.get(port)
        if last is not None and now <= last[0]:
            return
        self._last[port] = (now, counters)
        if last is None:
            return
        since, before = last
        for direction, count in counters.items():
            rate = max(0, count - before[direction]) * 8 / (now - since)
            used = self._used.get((port, direction))
            self._used[port, direction] = rate if used is None else mean(used, rate)

    def begin_anew(self) -> None:
        """Take the next counters of each port for its first ones."""
        self._last.clear()

    def used_bps(self, port: int, direction: Direction) -> float:
        """Return how much flows through the port that way."""
        return self._used.get((port, direction), 0.0)

    @property
    def most_used_bps(self) -> float:
        """Return how much flows through the busiest port, in its busier direction."""
        return max(self._used.values(), default=0.0)

    def available_bps(self, port: int, direction: Direction) -> float:
        """Return how much more could flow through the port that way."""
        return max(0.0, self.rate_bps - self.used_bps(port, direction))
