"""Tables of bounded size that evict the least recently used entry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Bounded(Generic[Key, Value]):
    """A dict of at most `limit` entries with LRU eviction and expiry of idle entries.

    >>> table = Bounded(limit=2, idle_s=10.0)
    >>> for now, name in enumerate("abac"):
    ...     _ = table.put(name, name.upper(), now)
    >>> sorted(table), table.evicted, sorted(table.expire(now=13.5)), len(table)
    (['a', 'c'], 1, [('a', 'A'), ('c', 'C')], 0)
    """

    def __init__(self, limit: int, idle_s: float = float("inf")) -> None:
        self.limit, self.idle_s, self.evicted = limit, idle_s, 0
        self._entries: OrderedDict[Key, tuple[Value, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def put(self, key: Key, value: Value, now: float) -> Key | None:
        """Set an entry and mark it as used at `now`; return the evicted key, if any."""
        self._entries[key] = (value, now)
        self._entries.move_to_end(key)
        if len(self._entries) <= self.limit:
            return None
        self.evicted += 1
        return self._entries.popitem(last=False)[0]

    def use(self, key: Key, now: float) -> Value | None:
        """Return the value of a key and mark its entry as used; None for an unknown key."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries[key] = (found[0], now)
        self._entries.move_to_end(key)
        return found[0]

    def get(self, key: Key) -> Value | None:
        """Return the value of a key without marking its entry as used; None for an unknown key."""
        found = self._entries.get(key)
        return found[0] if found is not None else None

    def idle_for(self, key: Key, now: float) -> float:
        """Return the idle time of an existing table entry, in seconds."""
        return now - self._entries[key][1]

    def pop(self, key: Key) -> Value | None:
        """Remove an entry and return its value; None for an unknown key."""
        found = self._entries.pop(key, None)
        return found[0] if found is not None else None

    def values(self) -> list[Value]:
        """Return all values, least recently used first."""
        return [value for value, _ in self._entries.values()]

    def items(self) -> list[tuple[Key, Value]]:
        """Return all (key, value) pairs, least recently used first."""
        return [(key, value) for key, (value, _) in self._entries.items()]

    def expire(self, now: float) -> list[tuple[Key, Value]]:
        """Remove all table entries idle for `idle_s` seconds; return their keys and values."""
        expired = []
        while self._entries:
            key, (value, used) = next(iter(self._entries.items()))
            if now - used < self.idle_s:
                break
            del self._entries[key]
            expired.append((key, value))
        return expired

    def clear(self) -> None:
        """Remove all entries of the dict."""
        self._entries.clear()


class Seen(Bounded[tuple[int, int], None]):
    """Cache of received broadcasts, by source and identification, for duplicate detection."""

    def is_new(self, source: int, identification: int, now: float) -> bool:
        """Return True if a broadcast is not a duplicate, and add it to the cache."""
        self.expire(now)
        key = source, identification
        if key in self:
            return False
        self.put(key, None, now)
        return True
