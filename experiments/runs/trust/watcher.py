"""Watcher process of a trial, started by `Watch`.

The watcher is a separate process so that the interpreter lock of the traffic does not disturb its
samples, and so that its cost can be measured. The canary is a second process, its echo service a
third. Protocol of the channel between `Watch` (left) and the watcher::

    WatchOrder(places, ...)  ->
    <-  None                        The watcher is ready.
    begin_s  ->                     Start time by CLOCK_MONOTONIC.
    <-  None                        The start time is accepted.
    True  ->                        Request for a report; at any time, repeatedly.
    <-  WatchReport(...)
    None  ->                        End of the trial.
    <-  WatchReport(...)            `Watch.end` converts it to Readings.

The watcher ends when the channel is closed, and the other two processes end with it.
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

from pillarbox.experiments.base.processes import ended, forked
from pillarbox.experiments.lab.linux.namespaces import fabric
from pillarbox.experiments.runs.trust.canary import Canary, CanaryReport
from pillarbox.experiments.runs.trust.machine import ProcessorLoad, between, machine
from pillarbox.experiments.runs.trust.queues import Counted, PortLimits, QueueSampler
from pillarbox.experiments.runs.trust.strays import dropped, since
from pillarbox.hosts.linux.calls import inside
from pillarbox.hosts.linux.netlink import Netlink
from pillarbox.hosts.linux.rights import take_role

SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 0.04, 1.0  # Bounds of the sampling interval in seconds.
# Upper bound for the share of one processor that queue sampling takes; cold caches double it.
MOST_WATCHING = 0.015
LOOKS_TO_MEASURE = 3  # Number of samples that measure the cost of sampling.


class WatchOrder(NamedTuple):
    """Order for a watcher: the namespaces and interfaces to sample (see `queues.PortUsage`)."""

    places: list[tuple[int, str, list[int]]]  # Namespace descriptor, its node, interface indexes.
    enough_bytes: int
    rate_bytes_s: float = 0.0
    # Both values of each interface, in the order of `places`; empty if all cables are equal.
    limits: tuple[PortLimits, ...] = ()


class WatchReport(NamedTuple):
    """Report of a watcher; `ports` are in the order of the interfaces in the `WatchOrder`."""

    duration_s: float
    samples: int
    interval_s: float
    ports: list[Counted | None]
    busy: ProcessorLoad
    heard: CanaryReport
    strays: dict[str, int]
    watching: float


class Watcher:
    """Watcher of a trial: samples queues and counters as ordered by its channel."""

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
        self._limits = order.limits
        self._canary = _CanaryProcess()
        take_role("watcher")
        self.interval_s = self._affordable_interval()
        channel.send(None)

    def run(self) -> None:
        """Watch one trial, from the start time to the end that the channel announces."""
        begin_s: float = self._channel.recv()
        # Drop counters of all interfaces take long to read: read them before the start time.
        drops = self._drop_counts()
        self._canary.begin(begin_s)
        self._channel.send(None)
        self._channel.poll(max(0.0, begin_s - time.monotonic()))
        sampler = QueueSampler(self._places, self._enough_bytes, self._rate_bytes_s, self._limits)
        began, spent = machine(), time.process_time()
        due = time.monotonic()
        is_end = False
        while not is_end:
            sampler.look()
            if self._channel.poll(max(0.0, due + self.interval_s - time.monotonic())):
                is_end = self._channel.recv() is None
                sampler.look()
                ended = machine()
                duration_s = ended.at_s - began.at_s
                strays = self._drop_counts()
                strays["processors' own queues"] = ended.backlog_drops - began.backlog_drops
                self._channel.send(
                    WatchReport(
                        duration_s,
                        sampler.looks,
                        self.interval_s,
                        sampler.counted(),
                        between(began, ended),
                        self._canary.heard(is_end),
                        since(drops, strays),
                        (time.process_time() - spent) / duration_s,
                    )
                )
            due = max(due + self.interval_s, time.monotonic())

    def _affordable_interval(self) -> float:
        """Return the sampling interval in seconds that keeps the cost below MOST_WATCHING."""
        trial = QueueSampler(self._places, self._enough_bytes)
        trial.look()  # The first sample warms the caches and is not measured.
        before = time.process_time()
        for _ in range(LOOKS_TO_MEASURE):
            trial.look()
        cost_s = (time.process_time() - before) / LOOKS_TO_MEASURE
        return min(LONGEST_INTERVAL_S, max(SHORTEST_INTERVAL_S, cost_s / MOST_WATCHING))

    def _drop_counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for kernel, owner in self._kernels:
            found.update(dropped(kernel, owner))
        return found


class _CanaryProcess:
    """The canary's process, as the watcher controls it."""

    def __init__(self) -> None:
        self._channel, child_end = Pipe()
        forked(lambda: _run_canary(self._channel, child_end))
        child_end.close()
        self._channel.recv()  # The canary process sends None when it is ready.

    def begin(self, begin_s: float) -> None:
        self._channel.send(begin_s)

    def heard(self, is_end: bool) -> CanaryReport:
        self._channel.send(None if is_end else True)
        heard: CanaryReport = self._channel.recv()
        return heard


def _run_canary(watchers: Connection, channel: Connection) -> None:
    watchers.close()  # An open copy would hide the watcher's end.
    canary = Canary()
    take_role("canary")
    channel.send(None)
    try:
        channel.send(canary.sing(channel.recv(), channel))
    except EOFError:  # The watcher ended before the start of a trial.
        pass
    finally:
        ended(canary.echo)


def _netlink_in(namespace: int) -> Netlink:
    """Return a netlink socket in a namespace; the namespace's descriptor is closed."""
    try:
        with inside(namespace):
            return Netlink()
    finally:
        os.close(namespace)


def main(channel: int) -> None:
    """Run the watcher process; `channel` is the descriptor of its connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent process handles Ctrl-C.
    gc.disable()
    fabric()  # Keeps the namespace in which this process was started as the fabric.
    with suppress(EOFError, ConnectionError):  # The trial's process has ended.
        Watcher(Connection(channel)).run()
