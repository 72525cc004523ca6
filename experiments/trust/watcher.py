"""The process that watches: ``python -m experiments.trust.watcher CHANNEL``, started by `Watch`.

It is a process of its own so that the watched traffic's interpreter lock does not blur what it
sees, and so that its own cost can be told. A second one is the canary's, a third its echo. ::

    {"places": [[namespace, owner, [interface, ...]], ...], "enough_bytes": 6000}  ->
    <-  {"ready": true}
    {"begin_s": 1234.5}  ->         by CLOCK_MONOTONIC
    {"end": true}  ->
    <-  {...}                       what `Watch.end` makes its Readings of

It ends with the channel, and the other two end with it.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import Counter
from typing import Any

from experiments.emulation.namespaces import fabric
from experiments.emulation.netlink import Netlink
from experiments.trust.canary import Canary
from experiments.trust.machine import between, machine
from experiments.trust.queues import Sampler
from experiments.trust.strays import dropped, since
from hosts.live.namespace import die_with_parent, enter

SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 0.02, 1.0
MOST_WATCHING = 0.02  # of a processor's time, for the queues
LOOKS_TO_MEASURE = 3


class Watcher:
    """Obeys the channel."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lines = channel.makefile("r")
        order = self._order()
        self._kernels: list[tuple[Netlink, str]] = []
        places = []
        for namespace, owner, indexes in order["places"]:
            with_kernel = _netlink_in(namespace)
            self._kernels.append((with_kernel, owner))
            places.append((with_kernel, indexes))
        self._places, self._enough_bytes = places, order["enough_bytes"]
        self._canary = _Singer()
        self.interval_s = self._affordable_interval()
        self._tell({"ready": True})

    def run(self) -> None:
        """Watch once, from the moment that is told until the end is."""
        begin_s = self._order()["begin_s"]
        self._canary.begin(begin_s)
        select.select([self._channel], [], [], max(0.0, begin_s - time.monotonic()))
        sampler = Sampler(self._places, self._enough_bytes)
        began, drops, spent = machine(), self._drops(), _cpu_s()
        due = time.monotonic()
        while True:
            sampler.look()
            due = max(due + self.interval_s, time.monotonic())
            if select.select([self._channel], [], [], max(0.0, due - time.monotonic()))[0]:
                break
        self._order()
        sampler.look()
        ended = machine()
        busy = between(began, ended)
        strays = self._drops()
        strays["processors' own queues"] = busy.backlog_drops
        heard = self._canary.end()
        self._tell(
            {
                "duration_s": ended.at_s - began.at_s,
                "samples": sampler.looks,
                "interval_s": self.interval_s,
                "ports": sampler.counted(),
                "pressure": busy.pressure,
                "steal": busy.steal,
                "idle": busy.idle,
                "strays": since(drops, strays),
                "watching": (_cpu_s() - spent) / (ended.at_s - began.at_s),
                **heard,
            }
        )

    def _affordable_interval(self) -> float:
        """Return how often all queues can be looked at for the share of a processor allowed."""
        trial = Sampler(self._places, self._enough_bytes)
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

    def _order(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:  # whoever wanted this is gone
            sys.exit(0)
        order: dict[str, Any] = json.loads(line)
        return order

    def _tell(self, what: dict[str, Any]) -> None:
        self._channel.sendall(json.dumps(what).encode() + b"\n")


class _Singer:
    """The canary's process."""

    def __init__(self) -> None:
        told, tell = os.pipe()
        hear, say = os.pipe()
        if not os.fork():
            try:
                die_with_parent(signal.SIGKILL)
                os.close(tell)
                os.close(hear)
                _sing(told, say)
            finally:
                sys.stderr.flush()
                os._exit(1)
        os.close(told)
        os.close(say)
        self._tell, self._hear = tell, os.fdopen(hear)
        self._heard()  # that it is ready

    def begin(self, begin_s: float) -> None:
        os.write(self._tell, f"{begin_s!r}\n".encode())

    def end(self) -> dict[str, Any]:
        os.close(self._tell)
        return self._heard()

    def _heard(self) -> dict[str, Any]:
        line = self._hear.readline()
        if not line:
            sys.exit("the canary has died")
        heard: dict[str, Any] = json.loads(line)
        return heard


def _sing(told: int, say: int) -> None:
    canary = Canary()
    os.write(say, b"{}\n")
    begin_s = float(os.read(told, 64) or b"inf")
    if begin_s < float("inf"):
        heard = canary.sing(begin_s, told)
        os.write(say, json.dumps(heard._asdict()).encode() + b"\n")
    os.kill(canary.echo, signal.SIGKILL)
    os._exit(0)


def _netlink_in(namespace: int) -> Netlink:
    """Return a socket to the kernel's netlink of a namespace, which is closed again."""
    enter(namespace)
    try:
        return Netlink()
    finally:
        os.close(namespace)
        enter(fabric().descriptor)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this
    gc.disable()
    fabric()  # the namespace that it was started in
    Watcher(socket.socket(fileno=int(sys.argv[1]))).run()
