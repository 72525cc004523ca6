"""Clock synchronization: the offset of each machine's clock from the lab's, by round trips.

A part answers each datagram with its CLOCK_MONOTONIC. The answer was given at an unknown instant
within the round trip, so the error of the offset is at most half the round-trip time; the shortest
of several round trips is used. The part's socket accepts the lab's datagrams only, and its answers
contain the time and nothing else.

All instants in a lab are in the lab's clock: an agreed instant is converted to each machine's
clock, and a machine's instants are converted back.
"""

from __future__ import annotations

import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from pillarbox.hosts.linux.calls import readable
from pillarbox.topos.base.errors import PillarboxError

TRIPS, PATIENCE_S = 12, 0.1
ENOUGH_S = 1e-4  # clock error in seconds below which no further round trip is measured
EVERY_S = 0.5  # interval of clock measurements during a trial, in seconds
_NUMBER, _ANSWER = struct.Struct("=Q"), struct.Struct("=Qd")

Now = Callable[[], float]


class ClockOffset(NamedTuple):
    """Offset of a machine's CLOCK_MONOTONIC from the lab's, with its maximum error."""

    at_s: float  # time of the measurement in the lab's clock
    ahead_s: float
    error_s: float


class ClockServer:
    """Answers the lab's clock requests on a machine, in a background thread."""

    def __init__(self, address: str, lab: tuple[str, int]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 0))
        self._socket.connect(lab)
        self.port: int = self._socket.getsockname()[1]

    def begin(self) -> None:
        """Start to answer clock requests, until the process ends."""
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            # The lab may have closed its socket; datagrams of other lengths are not clock requests.
            with suppress(ConnectionRefusedError, struct.error):
                (number,) = _NUMBER.unpack(self._socket.recv(_NUMBER.size))
                self._socket.send(_ANSWER.pack(number, time.monotonic()))


class RemoteClock:
    """Client that measures the offset of another machine's clock over UDP.

    Parameters
    ----------
    lab : str
        The lab's own address in the machines' network.
    now : callable, optional
        Returns the time of the lab's clock.
    """

    def __init__(self, lab: str, now: Now = time.monotonic) -> None:
        self.now = now
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((lab, 0))
        self.place: tuple[str, int] = self._socket.getsockname()
        self._number = 0

    def connect(self, address: str, port: int) -> None:
        """Set the UDP address and port at which a machine answers clock requests."""
        self._socket.connect((address, port))

    def offset(self) -> ClockOffset | None:
        """Return the clock offset from the shortest UDP round trip, None without an answer."""
        best: ClockOffset | None = None
        for _ in range(TRIPS):
            found = self._round_trip()
            if found and (best is None or found.error_s < best.error_s):
                best = found
            if best and best.error_s < ENOUGH_S:
                break
        return best

    def _round_trip(self) -> ClockOffset | None:
        self._number += 1
        sent_s = self.now()
        try:
            self._socket.send(_NUMBER.pack(self._number))
            while readable([self._socket], PATIENCE_S):
                number, there_s = _ANSWER.unpack(self._socket.recv(_ANSWER.size))
                if number == self._number:  # skips answers to earlier clock requests
                    back_s = self.now()
                    middle_s = (sent_s + back_s) / 2
                    return ClockOffset(middle_s, there_s - middle_s, (back_s - sent_s) / 2)
        # the machine does not answer, or its answer is malformed
        except (ConnectionRefusedError, struct.error):
            pass
        return None

    def close(self) -> None:
        """Close the UDP socket of the clock measurement."""
        self._socket.close()


class Clocks:
    """Measures the clock offsets of all machines of a lab, and converts times.

    Parameters
    ----------
    machines : int
        Number of machines.
    """

    def __init__(self, machines: int) -> None:
        self._machines = machines
        self.clocks: list[RemoteClock] = []
        self._known: dict[int, ClockOffset] = {}
        self._offsets: list[tuple[int, ClockOffset]] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, lab: str) -> None:
        """Open a UDP socket at the lab's address for clock requests to each machine."""
        self.clocks = [RemoteClock(lab) for _ in range(self._machines)]

    def measure(self) -> dict[int, ClockOffset]:
        """Measure the clock offsets of all machines again; return each machine's known offset."""
        for machine, clock in enumerate(self.clocks):
            found = clock.offset()
            if found:
                self._known[machine] = found
                self._offsets.append((machine, found))
        return dict(self._known)

    def machine_time_s(self, machine: int, at_s: float) -> float:
        """Convert a time of the lab's clock to a machine's clock."""
        known = self._known.get(machine)
        if known is None:
            raise PillarboxError(f"the clock of machine {machine} does not answer")
        return at_s + known.ahead_s

    def lab_time_s(self, machine: int, at_s: float) -> float:
        """Convert a time of a machine's clock to the lab's clock."""
        return 2 * at_s - self.machine_time_s(machine, at_s)

    def watch(self) -> None:
        """Measure all clocks periodically from now on, without changing the offsets in use."""
        self._offsets.clear()
        self.measure()
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            for machine, clock in enumerate(self.clocks):
                found = clock.offset()
                if found:
                    self._offsets.append((machine, found))

    def end_watch(self) -> dict[int, list[ClockOffset]]:
        """Stop the periodic measurement; return all measured offsets of each machine's clock."""
        if self._thread:
            self._ended.set()
            self._thread.join()
            self._thread = None
            self.measure()
        offsets: dict[int, list[ClockOffset]] = {machine: [] for machine in range(self._machines)}
        for machine, one in self._offsets:
            offsets[machine].append(one)
        return offsets

    def close(self) -> None:
        """Stop the clock measurements, and close their UDP sockets."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        for clock in self.clocks:
            clock.close()


def moved_s(offsets: Iterable[ClockOffset]) -> float:
    """Return the minimum drift of a clock against the lab's clock, in seconds.

    >>> moved_s([ClockOffset(0, 7.0, 0.001), ClockOffset(1, 7.0005, 0.001)])
    0.0
    >>> round(moved_s([ClockOffset(0, 7.0, 0.0001), ClockOffset(1, 7.005, 0.0002)]), 6)
    0.0047
    """
    least, most = -math.inf, math.inf  # bounds of a clock's offset, if constant
    for one in offsets:
        least, most = max(least, one.ahead_s - one.error_s), min(most, one.ahead_s + one.error_s)
    return max(0.0, least - most)
