"""Devices that change frames between two servers; devices stack, each sees the last one's output.

Every device draws from a separate seeded random source, so that a run can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from pillarbox.hosts.base.path import Step
from pillarbox.hosts.wire.frame import Frame


class FrameHop(NamedTuple):
    """A frame in flight in a simulated network: from a server, out of a port, to one peer."""

    server: int
    port: int
    peer: int
    frame: Frame

    @property
    def step(self) -> Step:
        """The hop that the frame is on: egress port and peer."""
        return Step(self.port, self.peer)


class Device(Protocol):
    """A simulated device on each hop, which loses, delays, copies or changes frames."""

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield (delay in seconds, frame) per copy that arrives; nothing if the frame is lost."""
        ...


class _RandomDevice:
    def __init__(self, probability: float, seed: int = 0) -> None:
        self.probability = probability
        self.random = random.Random(seed)

    def _affects_frame(self) -> bool:
        return self.random.random() < self.probability


class Loss(_RandomDevice):
    """Device of a simulated network that loses frames at random."""

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame without delay, unless the device loses it."""
        if not self._affects_frame():
            yield 0.0, hop.frame


class Duplicate(_RandomDevice):
    """Device of a simulated network that duplicates frames at random."""

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame once, or twice if the device duplicates it."""
        yield 0.0, hop.frame
        if self._affects_frame():
            yield 0.0, hop.frame


class Reorder(_RandomDevice):
    """Device of a simulated network that delivers frames late at random, after later frames."""

    def __init__(self, probability: float, jitter_s: float, seed: int = 0) -> None:
        super().__init__(probability, seed)
        self.jitter_s = jitter_s

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame without delay, or `jitter_s` late if the device selects it."""
        yield self.jitter_s if self._affects_frame() else 0.0, hop.frame


class Corrupt(_RandomDevice):
    """Device that flips one bit of frames at random, among their first `within_bytes` bytes."""

    def __init__(self, probability: float, seed: int = 0, within_bytes: int = 2**16) -> None:
        super().__init__(probability, seed)
        self.within_bytes = within_bytes

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame, with one bit flipped if the device corrupts it."""
        data = bytearray(hop.frame.data)
        if data and self._affects_frame():
            data[self.random.randrange(min(len(data), self.within_bytes))] ^= (
                1 << self.random.randrange(8)
            )
        yield 0.0, hop.frame._replace(data=bytes(data))


class FrameDelay:
    """Device that delays every frame, plus up to `jitter_s` at random, which can reorder frames."""

    def __init__(self, delay_s: float, jitter_s: float = 0.0, seed: int = 0) -> None:
        self.delay_s, self.jitter_s = delay_s, jitter_s
        self.random = random.Random(seed)

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame with its delay in seconds, which includes random jitter."""
        yield self.delay_s + self.random.random() * self.jitter_s, hop.frame


class OneProcessor:
    """Device that models one processor per server, which handles frames one after the other.

    Parameters
    ----------
    cost_s : callable
        Returns the processing time of a frame at the next server; 0.0 for frames that need none.
    """

    def __init__(self, cost_s: Callable[[Frame], float]) -> None:
        self.cost_s = cost_s
        # Time at which the processor of each server is free again.
        self._free_s: dict[int, float] = {}

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield the frame with the delay until the next server's processor has handled it."""
        cost_s = self.cost_s(hop.frame)
        if not cost_s:
            yield 0.0, hop.frame
            return
        free_s = max(now, self._free_s.get(hop.peer, 0.0)) + cost_s
        self._free_s[hop.peer] = free_s
        yield free_s - now, hop.frame


class FrameTap:
    """Device that passes frames on unchanged, after a call of a function with each frame."""

    def __init__(self, look: Callable[[FrameHop, float], None]) -> None:
        self.look = look

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Call the function with the frame, and yield the frame unchanged."""
        self.look(hop, now)
        yield 0.0, hop.frame


def pass_devices(
    devices: tuple[Device, ...], hop: FrameHop, now: float
) -> Iterator[tuple[float, Frame]]:
    """Yield (delay in seconds, frame) per copy of a frame that passes all devices of a hop."""
    if not devices:
        yield 0.0, hop.frame
        return
    first, rest = devices[0], devices[1:]
    for delay, frame in first.passing(hop, now):
        for more, last in pass_devices(rest, hop._replace(frame=frame), now + delay):
            yield delay + more, last
