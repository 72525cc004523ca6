"""A canary: small packets between two processes, over a cable that the network has no part in.

It measures how late programs are; `canary_pacer` measures how late the kernel is.

The cable is a pair of veth between two namespaces of its own, without a rate. What a packet waits
for there is what every packet of the network waits for beside its queues: the kernel's soft
interrupts, and a process's turn on a processor. A canary sent through the network would mostly show
how full the queues are, which is no fault: they should be full. Here there is none to be in, so a
round trip that takes long says that the machine was late, and by how much.

It counts from when the packet was due, not from when it was sent: a late sender would otherwise get
fast answers. While nothing is sent nothing would be found wrong, so turns that were slept over
count as well, each from when it was due ("coordinated omission", as Gil Tene calls the mistake).
How late the timer was is also counted by itself.
"""

from __future__ import annotations

import socket
import struct
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

from experiments.linux.processes import forked
from experiments.trials.trust.canary_pacer import CanaryPacer, joined
from experiments.trials.trust.readings import DurationStatistics, spread
from hosts.linux.calls import readable
from hosts.linux.rights import take_role

INTERVAL_S = 0.005
ADDRESSES = "10.255.255.1", "10.255.255.2"
PORT = 7  # echo
NAME = "canary"
GATHER_S = 0.05  # how long the last packets may be under way at the end


class CanaryReport(NamedTuple):
    """Measurements of a canary: round trips, its timer and the kernel's (see `canary_pacer`)."""

    round_trip: DurationStatistics
    lost: int
    lateness: DurationStatistics
    pacing: DurationStatistics
    pacing_lost: int


class Canary:
    """Two processes and the cable between them; `sing` blocks until it is told to end."""

    def __init__(self) -> None:
        sockets = []
        for place, address in zip(joined(NAME, ADDRESSES), ADDRESSES, strict=True):
            with place:
                made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                made.bind((address, PORT))
                sockets.append(made)
        self._socket, echo = sockets
        self._socket.connect((ADDRESSES[1], PORT))
        self.echo = forked(lambda: _answer(echo))
        echo.close()
        self._answer_once()
        self._pacer = CanaryPacer()
        self._due: dict[int, list[float]] = {}  # of each packet under way: the turns it stands for
        self._round_trips: list[float] = []
        self._late: list[float] = []

    def _answer_once(self) -> None:
        """Send until something comes back: the cable is up."""
        for _ in range(100):
            self._socket.send(bytes(8))
            if readable([self._socket], 0.05):
                self._socket.recv(8)
                return
        raise OSError("the canary's own cable carries nothing")

    def sing(self, begin_s: float, orders: Connection) -> CanaryReport:
        """Send from a moment on until None comes by `orders`; return what was heard.

        Whatever else comes there is answered with what has been heard so far.
        """
        due, number = begin_s, 1
        while True:
            wait = max(0.0, due - time.monotonic())
            ready = readable([self._socket.fileno(), orders.fileno()], wait)
            now = time.monotonic()
            if self._socket.fileno() in ready:
                self._hear(now)
            if orders.fileno() in ready:
                if orders.recv() is None:
                    break
                orders.send(self._heard(begin_s, now, 0))
            turns = []
            while due <= now:
                turns.append(due)
                due += INTERVAL_S
            if turns:
                self._late += [now - turn for turn in turns]
                self._due[number] = turns
                self._socket.send(struct.pack("=Q", number))
                number += 1
                self._pacer.tend()
        while self._due and readable([self._socket], GATHER_S):
            self._hear(time.monotonic())
        return self._heard(begin_s, now, len(self._due))

    def _heard(self, begin_s: float, now: float, lost: int) -> CanaryReport:
        paced = self._pacer.heard(begin_s, now - GATHER_S)
        return CanaryReport(spread(self._round_trips), lost, spread(self._late), *paced)

    def _hear(self, now: float) -> None:
        number = struct.unpack("=Q", self._socket.recv(8))[0]
        self._round_trips += [now - turn for turn in self._due.pop(number, [])]


def _answer(listener: socket.socket) -> None:
    """Send every packet back."""
    take_role("canary")
    while True:
        data, sender = listener.recvfrom(64)
        listener.sendto(data, sender)
