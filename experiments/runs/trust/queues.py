"""Work conservation: did a port with packets in its queue send at its full rate?

A shaped port is HTB over a queue. While packets wait in the queue, the port sends exactly rate x
time; if it sends less, the machine was too busy to send in time, and every result that depends on
that rate is wrong, however plausible. This holds for any traffic.

A port counts as backlogged between two samples if packets waited at every sample between them. With
bursts of TCP a few packets always wait: so a backlog takes more than two super-packets, at several
samples in a row, for a minimum time (see `PortUsage`).

The samples also give the queue's median length and its 99th percentile, without those of the first
second: slow start fills a queue once, in a long trial as in a short one.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from pillarbox.experiments.lab.linux.queue_counters import QueueCounters, queues
from pillarbox.experiments.runs.trust.readings import nearest_rank
from pillarbox.hosts.linux.netlink import Netlink

LEAST_LOOKS = 4  # Least number of consecutive samples in a backlogged period of a port.
LEAST_STRETCH_S = 0.075  # Shortest backlogged period that counts, in seconds.
WARM_UP_S = 1.0  # Time from a port's first sample until its queue length counts, in seconds.
LEAST_BACKLOGGED_S = 0.2  # Least total backlogged time of a meaningful ratio, in seconds.


@dataclass
class PortUsage:
    """Bytes that one port sent while its queue was backlogged, and the backlogged time.

    Parameters
    ----------
    enough_bytes : int
        Queue length at a sample from which the port counts as backlogged.
    rate_bytes_s : float
        Rate of the port if flows come and go: between two samples the queue may have been empty,
        unless at the first it held as many bytes as the port can send in that time. 0 for greedy
        flows, which leave no port empty.
    """

    enough_bytes: int
    rate_bytes_s: float = 0.0
    first: QueueCounters | None = None
    last: QueueCounters | None = None
    backlogged_s: float = 0.0
    backlogged_bytes: int = 0
    _since: tuple[float, int] | None = None  # Start of the backlogged period: time, bytes sent.
    _until: tuple[float, int] = (0.0, 0)
    _looks: int = 0
    _waited_bytes: int = 0  # Queue length at the latest sample, in bytes.
    _began_s: float | None = None  # Time of the first sample.
    _lengths: array[int] = field(default_factory=lambda: array("q"))  # Queue lengths, in bytes.

    def look(self, now: float, queue: QueueCounters) -> None:
        """Add a sample of the port's queue counters."""
        self.first, self.last = self.first or queue, queue
        self._began_s = now if self._began_s is None else self._began_s
        if now - self._began_s >= WARM_UP_S:
            self._lengths.append(queue.waiting_bytes)
        if self._since and self._waited_bytes < self.rate_bytes_s * (now - self._until[0]):
            self.close()
        self._waited_bytes = queue.waiting_bytes
        if queue.waiting_bytes < self.enough_bytes:
            self.close()
            return
        self._until = now, queue.sent_bytes
        self._since = self._since or self._until
        self._looks += 1

    def queue_bytes(self) -> tuple[float, float] | tuple[None, None]:
        """Return the queue's median length and 99th percentile; None for a short trial."""
        if not self._lengths:
            return None, None
        ordered = sorted(self._lengths)
        return float(nearest_rank(ordered, 0.5)), float(nearest_rank(ordered, 0.99))

    def close(self) -> None:
        """End a port's current backlogged period, which is not counted if it is too short."""
        if self._since and self._looks >= LEAST_LOOKS:
            lasted_s = self._until[0] - self._since[0]
            if lasted_s >= LEAST_STRETCH_S:
                self.backlogged_s += lasted_s
                self.backlogged_bytes += self._until[1] - self._since[1]
        self._since, self._looks = None, 0


class PortLimits(NamedTuple):
    """Limits of one port: see `PortUsage`."""

    enough_bytes: int
    rate_bytes_s: float


class Counted(NamedTuple):
    """Counters of one port over a trial: traffic, drops, backlogged time and bytes, queue."""

    sent_bytes: int
    sent_packets: int
    drops: int
    backlogged_s: float
    backlogged_bytes: int
    queue_median_bytes: float | None = None
    queue_p99_bytes: float | None = None

    def conserved(self, rate_bps: float) -> float | None:
        """Return the share of its rate that a backlogged port sent; None if rarely backlogged."""
        if self.backlogged_s < LEAST_BACKLOGGED_S:
            return None
        return self.backlogged_bytes * 8 / (rate_bps * self.backlogged_s)


class QueueSampler:
    """Sampler of the queues of ports in several namespaces.

    Parameters
    ----------
    places : iterable of (Netlink, list of int)
        Netlink socket of each namespace, and indexes of the interfaces to sample in it.
    enough_bytes, rate_bytes_s
        See `PortUsage`.
    limits : sequence of PortLimits
        Both values of each interface, in the order of `places`; empty if all are equal.
    """

    def __init__(
        self,
        places: Iterable[tuple[Netlink, list[int]]],
        enough_bytes: int,
        rate_bytes_s: float = 0.0,
        limits: Sequence[PortLimits] = (),
    ) -> None:
        each = iter(limits) if limits else repeat(PortLimits(enough_bytes, rate_bytes_s))
        self._places = [
            (kernel, {index: PortUsage(*next(each)) for index in indexes})
            for kernel, indexes in places
        ]
        self.looks = 0

    def look(self) -> None:
        """Sample the queues of all ports once."""
        for kernel, usages in self._places:
            before = time.monotonic()
            found = queues(kernel)
            now = (before + time.monotonic()) / 2
            for index, usage in usages.items():
                if index in found:
                    usage.look(now, found[index])
        self.looks += 1

    def counted(self) -> list[Counted | None]:
        """Return the counters of all ports, in the order of `places`; None if not shaped."""
        counted: list[Counted | None] = []
        for _, usages in self._places:
            for usage in usages.values():
                usage.close()
                counted.append(_port_counters(usage))
        return counted


def _port_counters(usage: PortUsage) -> Counted | None:
    first, last = usage.first, usage.last
    if first is None or last is None:
        return None
    return Counted(
        last.sent_bytes - first.sent_bytes,
        (last.sent_packets - first.sent_packets)
        & 0xFFFFFFFF,  # The kernel's packet counters wrap at 32 bits.
        (last.drops - first.drops) & 0xFFFFFFFF,
        usage.backlogged_s,
        usage.backlogged_bytes,
        *usage.queue_bytes(),
    )
