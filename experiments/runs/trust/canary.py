"""Canary: round trips of small packets between two processes, over a separate cable.

The canary measures the scheduling latency of programs; `canary_pacer` measures that of the kernel.

The cable is a veth pair without a rate limit between two namespaces that only the canary uses. A
packet on it waits for the kernel's soft interrupts and for a process to be scheduled, as every
packet of the network does in addition to its queues. A canary sent through the network would mostly
measure the queue depth, and full queues are correct. The canary's cable has no queue, so a long
round trip shows by how much the machine was late.

A round trip counts from the time at which the packet was due, not from the time at which it was
sent: otherwise a late sender would measure fast answers. Packets that a sleeping sender missed
count as well, each from its due time (Gil Tene calls the omission of these "coordinated omission").
The lateness of the timer is also reported separately.
"""

from __future__ import annotations

import socket
import struct
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

from pillarbox.experiments.base.processes import forked
from pillarbox.experiments.runs.trust.canary_pacer import CanaryPacer, joined
from pillarbox.experiments.runs.trust.readings import DurationStatistics, spread
from pillarbox.hosts.linux.calls import readable
from pillarbox.hosts.linux.rights import take_role

INTERVAL_S = 0.005  # Interval between two canary packets in seconds.
ADDRESSES = "10.255.255.1", "10.255.255.2"
PORT = 7  # UDP port of the echo service.
NAME = "canary"
GATHER_S = 0.05  # Timeout for the last canary packets to come back, in seconds.


class CanaryReport(NamedTuple):
    """The canary's round trips, timer lateness and pacing, which show an overloaded machine."""

    round_trip: DurationStatistics
    lost: int
    lateness: DurationStatistics
    pacing: DurationStatistics
    pacing_lost: int


class Canary:
    """Canary: two processes that echo UDP packets over a cable, to measure scheduling latency."""

    def __init__(self) -> None:
        sockets = []
        for place, address in zip(joined(NAME, ADDRESSES), ADDRESSES, strict=True):
            with place:
                bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                bound.bind((address, PORT))
                sockets.append(bound)
        self._socket, echo = sockets
        self._socket.connect((ADDRESSES[1], PORT))
        self.echo = forked(lambda: _serve_echo(echo))
        echo.close()
        self._wait_until_connected()
        self._pacer = CanaryPacer()
        # Due times of canary packets in flight, by number: a late packet replaces those it delayed.
        self._due: dict[int, list[float]] = {}
        self._round_trips: list[float] = []
        self._late: list[float] = []

    def _wait_until_connected(self) -> None:
        """Send packets until an answer arrives, which shows that the canary's cable is up."""
        for _ in range(100):
            self._socket.send(bytes(8))
            if readable([self._socket], 0.05):
                self._socket.recv(8)
                return
        raise OSError("the canary's cable carries no packets")

    def sing(self, begin_s: float, orders: Connection) -> CanaryReport:
        """Send canary packets from a time on until `orders` yields None; return the report.

        Any other message on `orders` is answered with the report up to then.
        """
        due, number = begin_s, 1
        while True:
            wait = max(0.0, due - time.monotonic())
            ready = readable([self._socket.fileno(), orders.fileno()], wait)
            now = time.monotonic()
            if self._socket.fileno() in ready:
                self._receive_answer(now)
            if orders.fileno() in ready:
                if orders.recv() is None:
                    break
                orders.send(self._report(begin_s, now, 0))
            due_times = []
            while due <= now:
                due_times.append(due)
                due += INTERVAL_S
            if due_times:
                self._late += [now - due_s for due_s in due_times]
                self._due[number] = due_times
                self._socket.send(struct.pack("=Q", number))
                number += 1
                self._pacer.tend()
        while self._due and readable([self._socket], GATHER_S):
            self._receive_answer(time.monotonic())
        return self._report(begin_s, now, len(self._due))

    def _report(self, begin_s: float, now: float, lost: int) -> CanaryReport:
        paced = self._pacer.heard(begin_s, now - GATHER_S)
        return CanaryReport(spread(self._round_trips), lost, spread(self._late), *paced)

    def _receive_answer(self, now: float) -> None:
        number = struct.unpack("=Q", self._socket.recv(8))[0]
        self._round_trips += [now - due_s for due_s in self._due.pop(number, [])]


def _serve_echo(listener: socket.socket) -> None:
    """Send every received packet back to its sender (echo service of the canary)."""
    take_role("canary")
    while True:
        data, sender = listener.recvfrom(64)
        listener.sendto(data, sender)
