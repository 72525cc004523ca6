"""One clock for all machines: how much each one's is ahead of the lab's, found by round trips.

A part answers each datagram with its CLOCK_MONOTONIC. The answer was given at some moment of the
round trip, so the clock's offset is known but for half of it; of several trips the shortest counts.
The part's socket hears the lab's alone, and all that it tells is the time.

All moments are those of the lab's clock: what is agreed on is told to each machine by its own, and
what a machine tells of is put back.
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

from hosts.linux.calls import readable
from topos.base.errors import PillarboxError

TRIPS, PATIENCE_S = 12, 0.1
ENOUGH_S = 1e-4  # known so well, no further trip is made
EVERY_S = 0.5  # while a trial runs
_NUMBER, _ANSWER = struct.Struct("=Q"), struct.Struct("=Qd")

Now = Callable[[], float]


class Offset(NamedTuple):
    """By how much a machine's clock is ahead of the lab's, and how far off that may be."""

    at_s: float  # by the lab's clock
    ahead_s: float
    error_s: float


class Answering:
    """Tells a machine's time, from a thread of its own, to one that asks."""

    def __init__(self, address: str, lab: tuple[str, int]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 0))
        self._socket.connect(lab)
        self.port: int = self._socket.getsockname()[1]

    def begin(self) -> None:
        """Answer from now on, as long as the process lasts."""
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            # The lab ends before its machines; a datagram of another length is not the lab's.
            with suppress(ConnectionRefusedError, struct.error):
                (number,) = _NUMBER.unpack(self._socket.recv(_NUMBER.size))
                self._socket.send(_ANSWER.pack(number, time.monotonic()))


class Clock:
    """A machine's clock, seen from the lab.

    Parameters
    ----------
    lab : str
        The lab's own address, in the machines' network.
    now : callable, optional
        The lab's clock.
    """

    def __init__(self, lab: str, now: Now = time.monotonic) -> None:
        self.now = now
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((lab, 0))
        self.place: tuple[str, int] = self._socket.getsockname()
        self._number = 0

    def connect(self, address: str, port: int) -> None:
        """Say where the machine answers."""
        self._socket.connect((address, port))

    def offset(self) -> Offset | None:
        """Return the offset, by the shortest of some round trips; None where nothing came back."""
        best: Offset | None = None
        for _ in range(TRIPS):
            found = self._trip()
            if found and (best is None or found.error_s < best.error_s):
                best = found
            if best and best.error_s < ENOUGH_S:
                break
        return best

    def _trip(self) -> Offset | None:
        self._number += 1
        sent_s = self.now()
        try:
            self._socket.send(_NUMBER.pack(self._number))
            while readable([self._socket], PATIENCE_S):
                number, there_s = _ANSWER.unpack(self._socket.recv(_ANSWER.size))
                if number == self._number:  # else the answer to an earlier one
                    back_s = self.now()
                    middle_s = (sent_s + back_s) / 2
                    return Offset(middle_s, there_s - middle_s, (back_s - sent_s) / 2)
        except (ConnectionRefusedError, struct.error):  # its part has ended, or sends nonsense
            pass
        return None

    def close(self) -> None:
        """Ask no more."""
        self._socket.close()


class Clocks:
    """The clocks of all machines of a lab.

    Parameters
    ----------
    machines : int
        How many there are.
    """

    def __init__(self, machines: int) -> None:
        self._machines = machines
        self.clocks: list[Clock] = []
        self._known: dict[int, Offset] = {}
        self._seen: list[tuple[int, Offset]] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, lab: str) -> None:
        """Be ready to ask, from that address."""
        self.clocks = [Clock(lab) for _ in range(self._machines)]

    def measure(self) -> dict[int, Offset]:
        """Find all offsets anew; return those that could be found."""
        for machine, clock in enumerate(self.clocks):
            found = clock.offset()
            if found:
                self._known[machine] = found
                self._seen.append((machine, found))
        return dict(self._known)

    def there(self, machine: int, at_s: float) -> float:
        """Return a moment of the lab's clock by a machine's."""
        known = self._known.get(machine)
        if known is None:
            raise PillarboxError(f"machine {machine} does not tell its time")
        return at_s + known.ahead_s

    def here(self, machine: int, at_s: float) -> float:
        """Return a moment of a machine's clock by the lab's."""
        return 2 * at_s - self.there(machine, at_s)

    def watch(self) -> None:
        """Look at all clocks from now on, now and then, but go by what is known of them."""
        self._seen.clear()
        self.measure()
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            for machine, clock in enumerate(self.clocks):
                found = clock.offset()
                if found:
                    self._seen.append((machine, found))

    def seen(self) -> dict[int, list[Offset]]:
        """End the watch with a last look; return what was seen of each clock."""
        if self._thread:
            self._ended.set()
            self._thread.join()
            self._thread = None
            self.measure()
        offsets: dict[int, list[Offset]] = {machine: [] for machine in range(self._machines)}
        for machine, one in self._seen:
            offsets[machine].append(one)
        return offsets

    def close(self) -> None:
        """Ask no more."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        for clock in self.clocks:
            clock.close()


def moved_s(offsets: Iterable[Offset]) -> float:
    """Return by how much a clock has moved at least, beside the lab's.

    >>> moved_s([Offset(0, 7.0, 0.001), Offset(1, 7.0005, 0.001)])
    0.0
    >>> round(moved_s([Offset(0, 7.0, 0.0001), Offset(1, 7.005, 0.0002)]), 6)
    0.0047
    """
    least, most = -math.inf, math.inf  # where it must have been, had it not moved
    for one in offsets:
        least, most = max(least, one.ahead_s - one.error_s), min(most, one.ahead_s + one.error_s)
    return max(0.0, least - most)
