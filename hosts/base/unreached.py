"""Pairs of servers without a path for some seconds: the senders are told by ICMP."""

from __future__ import annotations

from typing import TypeAlias

from pillarbox.hosts.base.bounded import Bounded

REMEMBERED = 4096  # capacity of the table of pairs
# Time without a path after which senders are told. A program that connects would give up at the
# first message, so that none may come while routing still finds its way around a failure. Linux
# gives up as late when no server answers ARP.
TOLD_AFTER_S = 2.5
# Longest pause between two packets of a pair, in seconds, within one time without a path.
# TCP's second and third attempt to connect are 2 s apart, the third and fourth 4 s.
PAUSE_S = 5.0


Pair: TypeAlias = tuple[int, int]  # source and destination, as IPv4 addresses


class UnreachedPairs:
    """Pairs of servers whose packets were dropped because no path was known, and since when."""

    def __init__(self) -> None:
        self._since_s: Bounded[Pair, float] = Bounded(REMEMBERED, PAUSE_S)

    def lasts(self, pair: Pair, now: float) -> bool:
        """Record a dropped packet; return True if packets have been dropped for long enough.

        >>> table = UnreachedPairs()
        >>> [table.lasts((3, 7), now) for now in (0.0, 1.0, 3.0, 7.0, 13.0)]
        [False, False, True, True, False]
        """
        self._since_s.expire(now)
        since_s = self._since_s.use(pair, now)
        if since_s is None:
            self._since_s.put(pair, now, now)
            return False
        return now - since_s >= TOLD_AFTER_S

    def clear(self) -> None:
        """Forget all pairs, since a link works again."""
        self._since_s.clear()
