"""Recordings: the data of a page over time, in bounded memory. docs/page.md has the format."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any

VERSION = 1  # version of the recording format and the page's protocol
# Maximum size of each list of a recording as JSON, in bytes; the oldest entries go first.
MOST_BYTES = {"samples": 48 << 20, "events": 8 << 20, "states": 4 << 20, "traffic": 4 << 20}
AT_ONCE = 16  # number of recorded values per piece of JSON text


class Recording:
    """Samples, events, states and traffic of a lab or a finished run.

    Parameters
    ----------
    head : dict
        Constant data: ``network``, ``picture``, ``about`` (a list of names and texts),
        ``rate_mbit`` and ``begun_s``, the wall-clock time at which the recording's time is 0.
    """

    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head
        self._lists = {name: _BoundedQueue(most) for name, most in MOST_BYTES.items()}

    def add_sample(self, sample: dict[str, Any]) -> str:
        """Append a sample to the recording, and return the sample as JSON."""
        return self._lists["samples"].add(sample)

    def add_event(self, event: dict[str, Any]) -> str:
        """Append an event to the recording, and return the event as JSON."""
        return self._lists["events"].add(event)

    def add_state(self, state: dict[str, Any]) -> str:
        """Append the failed cables and nodes from a time on, and return them as JSON."""
        return self._lists["states"].add(state)

    def add_traffic(self, traffic: dict[str, Any]) -> str:
        """Append the workload from a time on, and return it as JSON."""
        return self._lists["traffic"].add(traffic)

    def text(self) -> str:
        """Return the recording as JSON."""
        return "".join(self.pieces())

    def pieces(self) -> Iterator[str]:
        """Return an iterator over a snapshot of the recording as pieces of JSON.

        Pieces are created on demand, so a slow reader needs little memory.
        """
        return _pieces(self.head, {name: tuple(queue.texts) for name, queue in self._lists.items()})


def _pieces(head: dict[str, Any], lists: dict[str, tuple[str, ...]]) -> Iterator[str]:
    yield _json_text({"version": VERSION, **head})[:-1]
    for name, texts in lists.items():
        yield f',"{name}":['
        for start in range(0, len(texts), AT_ONCE):
            yield ("," if start else "") + ",".join(texts[start : start + AT_ONCE])
        yield "]"
    yield "}"


class _BoundedQueue:
    """Queue of JSON texts with a size limit in bytes; the oldest texts are removed first."""

    def __init__(self, most_bytes: int) -> None:
        self.texts: deque[str] = deque()
        self._bytes, self._most_bytes = 0, most_bytes

    def add(self, value: dict[str, Any]) -> str:
        text = _json_text(value)
        self.texts.append(text)
        self._bytes += len(text)
        while self._bytes > self._most_bytes and len(self.texts) > 1:
            self._bytes -= len(self.texts.popleft())
        return text


def _json_text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
