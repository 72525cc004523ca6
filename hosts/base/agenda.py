"""Named timers of a router, in virtual or real time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterator

from pillarbox.hosts.base.actions import Action

Callback = Callable[[float], list[Action]]


class Agenda:
    """A router's pending timers by name; a timer set again replaces its earlier setting.

    The heap keeps outdated entries until they expire or outnumber the valid ones, so its size is
    bounded by the number of names.

    >>> agenda = Agenda()
    >>> agenda.set("heartbeat", 1.0, lambda now: [])
    >>> agenda.set("heartbeat", 2.0, lambda now: [])
    >>> agenda.next_at, len(list(agenda.due(1.5))), len(list(agenda.due(2.0)))
    (2.0, 0, 1)
    """

    def __init__(self) -> None:
        self._timers: dict[Hashable, tuple[float, int, Callback]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._entries = 0

    def __len__(self) -> int:
        return len(self._timers)

    def set(self, name: Hashable, when: float, callback: Callback) -> None:
        """Set a timer: call `callback` once at time `when`; replaces a timer of the same name."""
        self._entries += 1
        self._timers[name] = (when, self._entries, callback)
        if len(self._heap) > 2 * len(self._timers) + 64:
            self._heap = [(at, entry, key) for key, (at, entry, _) in self._timers.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (when, self._entries, name))

    def cancel(self, name: Hashable) -> None:
        """Cancel the timer with this name, if it is set."""
        self._timers.pop(name, None)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._timers

    @property
    def next_at(self) -> float:
        """Time at which the next timer expires; infinity if no timer is set."""
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def due(self, now: float) -> Iterator[Callback]:
        """Yield the callbacks of all timers that have expired by `now`, in order of time."""
        while self.next_at <= now:
            name = heapq.heappop(self._heap)[2]
            yield self._timers.pop(name)[2]

    def _is_current(self, entry: tuple[float, int, Hashable]) -> bool:
        callback = self._timers.get(entry[2])
        return callback is not None and callback[1] == entry[1]
