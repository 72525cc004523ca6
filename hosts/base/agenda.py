"""What is to be done when: a router's timers, each under a name, in virtual or real time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterator

from hosts.base.actions import Action

Deed = Callable[[float], list[Action]]


class Agenda:
    """Timers by name. Setting a name again moves it; a cancelled one is forgotten.

    The heap keeps outdated entries until they come up or outnumber the valid ones, so its size
    is bounded by the number of names.

    >>> agenda = Agenda()
    >>> agenda.set("heart-beat", 1.0, lambda now: [])
    >>> agenda.set("heart-beat", 2.0, lambda now: [])
    >>> agenda.next_at, len(list(agenda.due(1.5))), len(list(agenda.due(2.0)))
    (2.0, 0, 1)
    """

    def __init__(self) -> None:
        self._deeds: dict[Hashable, tuple[float, int, Deed]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._entries = 0

    def __len__(self) -> int:
        return len(self._deeds)

    def set(self, name: Hashable, when: float, deed: Deed) -> None:
        """Do that at that time, once, instead of what stood under the name."""
        self._entries += 1
        self._deeds[name] = (when, self._entries, deed)
        if len(self._heap) > 2 * len(self._deeds) + 64:
            self._heap = [(at, entry, key) for key, (at, entry, _) in self._deeds.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (when, self._entries, name))

    def cancel(self, name: Hashable) -> None:
        """Forget what stands under the name, if anything does."""
        self._deeds.pop(name, None)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._deeds

    @property
    def next_at(self) -> float:
        """When something is to be done next; infinity for never."""
        while self._heap and not self._valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def due(self, now: float) -> Iterator[Deed]:
        """Yield, in order of time, what is to be done by now; each only once."""
        while self.next_at <= now:
            name = heapq.heappop(self._heap)[2]
            yield self._deeds.pop(name)[2]

    def _valid(self, entry: tuple[float, int, Hashable]) -> bool:
        deed = self._deeds.get(entry[2])
        return deed is not None and deed[1] == entry[1]
