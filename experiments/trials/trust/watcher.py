"""The process that watches, started by `Watch`.

It is a process of its own so that the watched traffic's interpreter lock does not blur what it
sees, and so that its own cost can be measured. A second one is the canary's, a third its echo. ::

    Order(places, enough_bytes, ...)  ->
    <-  None                        it is ready
    begin_s  ->                     by CLOCK_MONOTONIC
    <-  None                        it will be
    True  ->                        what has been seen so far? at any time, and again
    <-  Seen(...)
    None  ->                        the end
    <-  Seen(...)                   what `Watch.end` makes its Readings of

It ends with the channel, and the other two end with it.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections import Counter
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NamedTuple

from experiments.linux.namespaces import fabric
from experiments.linux.netlink import Netlink
from experiments.linux.processes import ended, forked
from experiments.trials.trust.canary import Canary, CanaryReport
from experiments.trials.trust.machine import Busyness, between, machine
from experiments.trials.trust.queues import Counted, QueueSampler
from experiments.trials.trust.strays import dropped, since
from hosts.linux.calls import inside
from hosts.linux.rights import take_role

SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 0.04, 1.0
MOST_WATCHING = 0.015  # of a processor's time, for the queues; caches that are cold double it
LOOKS_TO_MEASURE = 3


class WatchOrder(NamedTuple):
    """What is to be watched."""

    places: list[tuple[int, str, list[int]]]  # namespace, whose it is, interfaces that count
    enough_bytes: int  # see `queues.Account`
    rate_bytes_s: float = 0.0


class WatchReport(NamedTuple):
    """What was seen; `ports` are in the order of the interfaces that were to be watched."""

    duration_s: float
    samples: int
    interval_s: float
    ports: list[Counted | None]
    busy: Busyness
    heard: CanaryReport
    strays: dict[str, int]
    watching: float


class Watcher:
    """Obeys the channel."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        order: WatchOrder = channel.recv()
        self._kernels: list[tuple[Netlink, str]] = []
        self._places: list[tuple[Netlink, list[int]]] = []
        for namespace, owner, indexes in order.places:
            kernel = _netlink_in(namespace)
            self._kernels.append((kernel, owner))
            self._places.append((kernel, indexes))
        self._enough_bytes, self._rate_bytes_s = order.enough_bytes, order.rate_bytes_s
        self._canary = _Singer()
        take_role("watcher")
        self.interval_s = self._affordable_interval()
        channel.send(None)

    def run(self) -> None:
        """Watch once, from the moment that comes by the channel until the end does."""
        begin_s: float = self._channel.recv()
        drops = self._drops()  # of many interfaces: not when everything begins
        self._canary.begin(begin_s)
        self._channel.send(None)
        self._channel.poll(max(0.0, begin_s - time.monotonic()))
        sampler = QueueSampler(self._places, self._enough_bytes, self._rate_bytes_s)
        began, spent = machine(), time.process_time()
        due = time.monotonic()
        over = False
        while not over:
            sampler.look()
            if self._channel.poll(max(0.0, due + self.interval_s - time.monotonic())):
                over = self._channel.recv() is None
                sampler.look()
                ended = machine()
                duration_s = ended.at_s - began.at_s
                strays = self._drops()
                strays["processors' own queues"] = ended.backlog_drops - began.backlog_drops
                self._channel.send(
                    WatchReport(
                        duration_s,
                        sampler.looks,
                        self.interval_s,
                        sampler.counted(),
                        between(began, ended),
                        self._canary.heard(over),
                        since(drops, strays),
                        (time.process_time() - spent) / duration_s,
                    )
                )
            due = max(due + self.interval_s, time.monotonic())

    def _affordable_interval(self) -> float:
        """Return how often all queues can be looked at for the share of a processor allowed."""
        trial = QueueSampler(self._places, self._enough_bytes)
        trial.look()  # the first one also warms caches
        before = time.process_time()
        for _ in range(LOOKS_TO_MEASURE):
            trial.look()
        cost_s = (time.process_time() - before) / LOOKS_TO_MEASURE
        return min(LONGEST_INTERVAL_S, max(SHORTEST_INTERVAL_S, cost_s / MOST_WATCHING))

    def _drops(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for kernel, owner in self._kernels:
            found.update(dropped(kernel, owner))
        return found


class _Singer:
    """The canary's process."""

    def __init__(self) -> None:
        self._channel, theirs = Pipe()
        forked(lambda: _sing(self._channel, theirs))
        theirs.close()
        self._channel.recv()  # that it is ready

    def begin(self, begin_s: float) -> None:
        self._channel.send(begin_s)

    def heard(self, over: bool) -> CanaryReport:
        self._channel.send(None if over else True)
        heard: CanaryReport = self._channel.recv()
        return heard


def _sing(watchers: Connection, channel: Connection) -> None:
    watchers.close()  # so that this process hears of the watcher's end
    canary = Canary()
    take_role("canary")
    channel.send(None)
    try:
        channel.send(canary.sing(channel.recv(), channel))
    except EOFError:  # nothing was watched
        pass
    finally:
        ended(canary.echo)


def _netlink_in(namespace: int) -> Netlink:
    """Return a socket to the kernel's netlink of a namespace, which is closed again."""
    try:
        with inside(namespace):
            return Netlink()
    finally:
        os.close(namespace)


def main(channel: int) -> None:
    """Be the process, with that descriptor as the channel."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    gc.disable()
    fabric()  # the namespace that it was started in
    with suppress(EOFError, ConnectionError):  # the parent has ended
        Watcher(Connection(channel)).run()
