"""Available bandwidth of each port, measured with the port's byte counters."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

# Bandwidth of one port, or an array of bandwidths.
Rates = TypeVar("Rates", float, "NDArray[numpy.float64]")

# Weight of the newest bandwidth sample in the exponential moving average.
NEWEST = 0.5


def mean(before: Rates, newest: Rates) -> Rates:
    """Return the moving average of a bandwidth, updated with the newest sample."""
    return NEWEST * newest + (1 - NEWEST) * before


class Direction(Enum):
    """Direction of traffic on a full-duplex port."""

    IN = 0
    OUT = 1


class Bandwidth:
    """Available bandwidth of a server's ports, computed from the data plane's byte counters.

    >>> bandwidth = Bandwidth(ports=2, rate_bps=1e9)
    >>> bandwidth.observe(0, received_bytes=0, sent_bytes=0, now=0.0)
    >>> bandwidth.observe(0, received_bytes=0, sent_bytes=25_000_000, now=1.0)
    >>> bandwidth.available_bps(0, Direction.OUT), bandwidth.available_bps(0, Direction.IN)
    (800000000.0, 1000000000.0)
    """

    def __init__(self, ports: int, rate_bps: float, factors: Sequence[int] = ()) -> None:
        self.ports, self.rate_bps = ports, rate_bps
        self.factors = factors  # relative rate of each port; empty: all ports have `rate_bps`
        self._used: dict[tuple[int, Direction], float] = {}
        self._last: dict[int, tuple[float, dict[Direction, int]]] = {}

    def observe(self, port: int, received_bytes: int, sent_bytes: int, now: float) -> None:
        """Update a port's bandwidth with new values of its monotonic byte counters."""
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
        """Restart the bandwidth measurement: discard the last byte counters of all ports."""
        self._last.clear()

    def used_bps(self, port: int, direction: Direction) -> float:
        """Return the used bandwidth of a port in one direction, in bit/s."""
        return self._used.get((port, direction), 0.0)

    def port_rate_bps(self, port: int) -> float:
        """Return the rate of a port, in bit/s."""
        return self.rate_bps * self.factors[port] if self.factors else self.rate_bps

    @property
    def slowest_bps(self) -> float:
        """Rate of the slowest port, in bit/s."""
        return self.rate_bps * min(self.factors, default=1)

    @property
    def most_used_share(self) -> float:
        """Used share of the rate of the busiest port and direction."""
        shares = (used / self.port_rate_bps(port) for (port, _), used in self._used.items())
        return max(shares, default=0.0)

    def available_bps(self, port: int, direction: Direction) -> float:
        """Return the available bandwidth of a port in one direction, in bit/s."""
        return max(0.0, self.port_rate_bps(port) - self.used_bps(port, direction))
