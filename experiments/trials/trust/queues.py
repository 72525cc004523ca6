"""Work conservation: whether a port that had packets waiting sent as fast as its rate allows.

A shaped port is HTB over a queue. As long as packets wait in it, exactly rate x time leaves it; if
less does, the machine was too busy to send in time, and every result that rests on that rate is
wrong, however plausible it looks. It does not matter what the traffic was.

A port counts as backlogged from one look to a later one if packets waited at every look
between. A few always do where TCP sends in bursts: so it takes more than two super-packets, at
several looks in a row, and that for a good part of the time (see `PortUsage`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from experiments.linux.netlink import Netlink
from experiments.linux.queue_counters import QueueCounters, queues

LEAST_LOOKS = 4  # in a row, with packets waiting at each
LEAST_STRETCH_S = 0.075
LEAST_BACKLOGGED_S = 0.2  # altogether: below that a cable's ratio says little


@dataclass
class PortUsage:
    """What one port sent while packets waited.

    Parameters
    ----------
    enough_bytes : int
        So much must wait at a look for the port to be called backlogged.
    rate_bytes_s : float
        Where flows come and go, what the port can send: it may have been empty between two looks
        unless as much waited at the first. 0 for greedy flows, which leave no port empty.
    """

    enough_bytes: int
    rate_bytes_s: float = 0.0
    first: QueueCounters | None = None
    last: QueueCounters | None = None
    backlogged_s: float = 0.0
    backlogged_bytes: int = 0
    _since: tuple[float, int] | None = None  # moment and bytes sent where the stretch began
    _until: tuple[float, int] = (0.0, 0)
    _looks: int = 0
    _waited_bytes: int = 0  # at the latest look

    def look(self, now: float, queue: QueueCounters) -> None:
        """Take in the counters of a moment."""
        self.first, self.last = self.first or queue, queue
        if self._since and self._waited_bytes < self.rate_bytes_s * (now - self._until[0]):
            self.close()
        self._waited_bytes = queue.waiting_bytes
        if queue.waiting_bytes < self.enough_bytes:
            self.close()
            return
        self._until = now, queue.sent_bytes
        self._since = self._since or self._until
        self._looks += 1

    def close(self) -> None:
        """End the stretch; one that is too short to tell is left out."""
        if self._since and self._looks >= LEAST_LOOKS:
            lasted_s = self._until[0] - self._since[0]
            if lasted_s >= LEAST_STRETCH_S:
                self.backlogged_s += lasted_s
                self.backlogged_bytes += self._until[1] - self._since[1]
        self._since, self._looks = None, 0


class Counted(NamedTuple):
    """A port's account, closed."""

    sent_bytes: int
    sent_packets: int
    drops: int
    backlogged_s: float
    backlogged_bytes: int

    def conserved(self, rate_bps: float) -> float | None:
        """Return what was sent of what could have been; None if it was hardly ever backlogged."""
        if self.backlogged_s < LEAST_BACKLOGGED_S:
            return None
        return self.backlogged_bytes * 8 / (rate_bps * self.backlogged_s)


class QueueSampler:
    """Looks at the ports of several namespaces.

    Parameters
    ----------
    places : iterable of (Netlink, list of int)
        Each namespace, and the interfaces that count in it.
    enough_bytes, rate_bytes_s
        See `PortUsage`.
    """

    def __init__(
        self,
        places: Iterable[tuple[Netlink, list[int]]],
        enough_bytes: int,
        rate_bytes_s: float = 0.0,
    ) -> None:
        self._places = [
            (kernel, {index: PortUsage(enough_bytes, rate_bytes_s) for index in indexes})
            for kernel, indexes in places
        ]
        self.looks = 0

    def look(self) -> None:
        """Look at all of them once."""
        for kernel, accounts in self._places:
            before = time.monotonic()
            found = queues(kernel)
            now = (before + time.monotonic()) / 2
            for index, account in accounts.items():
                if index in found:
                    account.look(now, found[index])
        self.looks += 1

    def counted(self) -> list[Counted | None]:
        """Return the accounts in the order given; None for a port that is not shaped."""
        counted: list[Counted | None] = []
        for _, accounts in self._places:
            for account in accounts.values():
                account.close()
                counted.append(_counted(account))
        return counted


def _counted(account: PortUsage) -> Counted | None:
    first, last = account.first, account.last
    if first is None or last is None:
        return None
    return Counted(
        last.sent_bytes - first.sent_bytes,
        (last.sent_packets - first.sent_packets) & 0xFFFFFFFF,  # the kernel's are 32 bits wide
        (last.drops - first.drops) & 0xFFFFFFFF,
        account.backlogged_s,
        account.backlogged_bytes,
    )
