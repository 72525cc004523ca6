"""When a server looks at its ports' counters, by which its router knows their load.

Often under load, seldom while there is little, and not at all while nothing is forwarded: hundreds
of servers at rest are to cost nothing. What comes to the router ends a rest by itself. Of what is
forwarded without it, the kernel tells the first packet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from hosts.base.bandwidth import Bandwidth
from hosts.live.table import Table

LOOK_S = 0.25
# Where ports carry less than a share of their rate; heart-beats take some of it.
IDLE_LOOK_S, IDLE = 10.0, 0.02
REST_S = 3600.0
# What a program here has begun may send nothing for a moment, and much of it behind Python's back.
ATTENTIVE_S = 2.0


class Looks:
    """The looks of one server.

    Parameters
    ----------
    bandwidth : Bandwidth
        What its router knows of its ports' load.
    bytes_of : callable
        Returns how many bytes each interface received and sent.
    table : Table
        The decisions that are carried out without the router.
    can_rest : bool
        Whether somebody calls `come` when the table is used again.
    """

    def __init__(
        self,
        bandwidth: Bandwidth,
        bytes_of: Callable[[], dict[str, tuple[int, int]]],
        table: Table,
        *,
        can_rest: bool,
    ) -> None:
        self._bandwidth, self._bytes_of, self._table = bandwidth, bytes_of, table
        self._can_rest = can_rest
        self.next_s = 0.0
        self._rests = False
        self._repeated = 0
        self._attentive_until_s = 0.0

    def come(self) -> None:
        """Look soon: something is going on. After a rest at once, to know what there was before."""
        self.next_s = min(self.next_s, time.monotonic() + (0.0 if self._rests else LOOK_S))

    def attend(self) -> None:
        """Look often for a while: a program of this server has begun something."""
        self.come()
        self._attentive_until_s = time.monotonic() + ATTENTIVE_S

    def look(self, ports: Collection[tuple[int, str]], now: float) -> None:
        """Look at the counters of ports, by number and name."""
        if self._rests:  # heart-beats have passed meanwhile, and nobody knows how many
            self._table.rest(False)
            self._bandwidth.begin_anew()
        counters = self._bytes_of()
        for number, name in ports:
            if name in counters:
                self._bandwidth.observe(number, *counters[name], now)
        idle = self._bandwidth.most_used_bps < IDLE * self._bandwidth.rate_bps
        idle = idle and not self._rests and now >= self._attentive_until_s
        before, self._repeated = self._repeated, self._table.repeated()
        self._rests = idle and self._can_rest and self._repeated == before
        if self._rests:
            self._table.rest(True)
        self.next_s = now + (REST_S if self._rests else IDLE_LOOK_S if idle else LOOK_S)
