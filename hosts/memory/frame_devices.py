"""Devices that change frames between two servers; devices stack, each sees the last one's output.

Every device draws from a separate seeded random source, so that a run can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from hosts.base.path import Step
from hosts.wire.frame import Frame


class FrameHop(NamedTuple):
    """A frame in flight in a simulated network: from a server, out of a port, to one peer."""

    server: int
    port: int
    peer: int
    frame: Frame

    @property
    def step(self) -> Step:
        """The frame's hop: port and peer."""
        return Step(self.port, self.peer)


class Device(Protocol):
    """A device on a hop: yields the copies of a frame that arrive, each with its delay."""

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield (delay in seconds, frame) per copy; nothing if the frame is lost."""
        ...


class _RandomEffect:
    def __init__(self, probability: float, seed: int = 0) -> None:
        self.probability = probability
        self.random = random.Random(seed)

    def _happens(self) -> bool:
        return self.random.random() < self.probability


class Loss(_RandomEffect):
    """Loses frames at random."""

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame unless it is lost."""
        if not self._happens():
            yield 0.0, hop.frame


class Duplicate(_RandomEffect):
    """Duplicates frames at random."""

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame once or twice."""
        yield 0.0, hop.frame
        if self._happens():
            yield 0.0, hop.frame


class Corrupt(_RandomEffect):
    """Flips one bit of a frame at random, among its first `within_bytes` bytes."""

    def __init__(self, probability: float, seed: int = 0, within_bytes: int = 2**16) -> None:
        super().__init__(probability, seed)
        self.within_bytes = within_bytes

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame, possibly corrupted."""
        data = bytearray(hop.frame.data)
        if data and self._happens():
            data[self.random.randrange(min(len(data), self.within_bytes))] ^= (
                1 << self.random.randrange(8)
            )
        yield 0.0, hop.frame._replace(data=bytes(data))


class FrameDelay:
    """Delays every frame, plus up to `jitter_s` at random, so frames can be reordered."""

    def __init__(self, delay_s: float, jitter_s: float = 0.0, seed: int = 0) -> None:
        self.delay_s, self.jitter_s = delay_s, jitter_s
        self.random = random.Random(seed)

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame with its delay."""
        yield self.delay_s + self.random.random() * self.jitter_s, hop.frame


class OneProcessor:
    """Models one processor per server, which handles one frame at a time in order of arrival.

    Parameters
    ----------
    cost_s : callable
        Returns the processing time of a frame at the next server; 0.0 for frames that need none.
    """

    def __init__(self, cost_s: Callable[[Frame], float]) -> None:
        self.cost_s = cost_s
        self._free_s: dict[int, float] = {}  # time at which each server's processor is free again

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame with the delay until the server has handled it."""
        cost_s = self.cost_s(hop.frame)
        if not cost_s:
            yield 0.0, hop.frame
            return
        free_s = max(now, self._free_s.get(hop.peer, 0.0)) + cost_s
        self._free_s[hop.peer] = free_s
        yield free_s - now, hop.frame


class FrameTap:
    """Shows every frame to a function, and passes it on unchanged."""

    def __init__(self, look: Callable[[FrameHop, float], None]) -> None:
        self.look = look

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame unchanged."""
        self.look(hop, now)
        yield 0.0, hop.frame


def through(
    devices: tuple[Device, ...], hop: FrameHop, now: float
) -> Iterator[tuple[float, Frame]]:
    """Yield the copies of a frame that leave the last of all devices."""
    if not devices:
        yield 0.0, hop.frame
        return
    first, rest = devices[0], devices[1:]
    for delay, frame in first.passing(hop, now):
        for more, last in through(rest, hop._replace(frame=frame), now + delay):
            yield delay + more, last
