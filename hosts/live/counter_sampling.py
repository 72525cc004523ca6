"""Schedule for reading a server's port counters, from which its router computes port loads.

Counters are read often under load, seldom under low load, and never while nothing is forwarded:
hundreds of idle servers must cost nothing. A packet for the router ends a rest directly; the first
packet that is forwarded without the router is reported by the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pillarbox.hosts.base.bandwidth import Bandwidth
from pillarbox.hosts.live.table import DecisionTable

LOOK_S = 0.25  # interval of reading port counters under load, in seconds
# Interval of reading port counters under low load, in seconds, and the share of the port rate that
# counts as low load; heartbeats use some of it.
IDLE_LOOK_S, IDLE = 10.0, 0.02
REST_S = 3600.0  # interval of reading port counters of a server without traffic, in seconds
# Time in seconds of frequent counter reading after a local program has sent a packet: the program
# may pause, and most of its packets may be forwarded without Python.
ATTENTIVE_S = 2.0


class CounterSchedule:
    """Schedule of reading one server's port byte counters: often under load, rarely at rest.

    Parameters
    ----------
    bandwidth : Bandwidth
        Port loads as the router knows them.
    bytes_of : callable
        Returns the received and sent bytes of each interface.
    table : Table
        Table of decisions that are carried out without the router.
    can_rest : bool
        True if `read_soon` is called when the table is used after a rest.
    clock : callable
        Returns the time of the router's clock in seconds.
    """

    def __init__(
        self,
        bandwidth: Bandwidth,
        bytes_of: Callable[[], dict[str, tuple[int, int]]],
        table: DecisionTable,
        *,
        can_rest: bool,
        clock: Callable[[], float],
    ) -> None:
        self._bandwidth, self._bytes_of, self._table = bandwidth, bytes_of, table
        self._can_rest, self._clock = can_rest, clock
        self.next_s = 0.0
        self._rests = False
        self._repeated = 0
        self._attentive_until_s = 0.0

    def read_soon(self) -> None:
        """Read the port counters soon because of traffic, or immediately after a rest."""
        self.next_s = min(self.next_s, self._clock() + (0.0 if self._rests else LOOK_S))

    def read_often(self) -> None:
        """Read the port counters often for a while, since a local program has sent a packet."""
        self.read_soon()
        self._attentive_until_s = self._clock() + ATTENTIVE_S

    def read_counters(self, ports: Collection[tuple[int, str]], now: float) -> None:
        """Pass the port byte counters to the router's bandwidth, and schedule the next reading."""
        if self._rests:  # the rest added an unknown number of heartbeats to the counters
            self._table.set_rest(False)
            self._bandwidth.begin_anew()
        counters = self._bytes_of()
        for number, name in ports:
            if name in counters:
                self._bandwidth.observe(number, *counters[name], now)
        idle = self._bandwidth.most_used_share < IDLE
        idle = idle and not self._rests and now >= self._attentive_until_s
        before, self._repeated = self._repeated, self._table.forwarded_packets()
        self._rests = idle and self._can_rest and self._repeated == before
        if self._rests:
            self._table.set_rest(True)
        self.next_s = now + (REST_S if self._rests else IDLE_LOOK_S if idle else LOOK_S)
