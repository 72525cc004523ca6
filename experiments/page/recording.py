"""A recording: all that a page shows, over time, in bounded memory. docs/page.md has its format."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

VERSION = 1
MOST_BYTES = 48 << 20  # of samples as JSON; the oldest go first
MOST_EVENTS = 20_000
MOST_WORKLOADS = 200


class Recording:
    """What was seen of one lab, or of one run.

    Parameters
    ----------
    head : dict
        What does not change: ``network``, ``picture``, ``about`` (a list of names and texts),
        ``rate_mbit`` and ``begun_s``, the moment by the wall clock that all others count from.
    """

    def __init__(self, head: dict[str, Any], most_bytes: int = MOST_BYTES) -> None:
        self.head = head
        self._most_bytes = most_bytes
        self._samples: deque[str] = deque()
        self._bytes = 0
        self._events: deque[str] = deque(maxlen=MOST_EVENTS)
        self._states: deque[str] = deque(maxlen=MOST_EVENTS)
        self._traffic: deque[str] = deque(maxlen=MOST_WORKLOADS)

    def add_sample(self, sample: dict[str, Any]) -> str:
        """Keep a sample; return it as JSON."""
        text = _text(sample)
        self._samples.append(text)
        self._bytes += len(text)
        while self._bytes > self._most_bytes and len(self._samples) > 1:
            self._bytes -= len(self._samples.popleft())
        return text

    def add_event(self, event: dict[str, Any]) -> str:
        """Keep an event; return it as JSON."""
        self._events.append(_text(event))
        return self._events[-1]

    def add_state(self, state: dict[str, Any]) -> str:
        """Keep what has failed from a moment on; return it as JSON."""
        self._states.append(_text(state))
        return self._states[-1]

    def add_traffic(self, traffic: dict[str, Any]) -> str:
        """Keep what is sent from a moment on; return it as JSON."""
        self._traffic.append(_text(traffic))
        return self._traffic[-1]

    def text(self) -> str:
        """Return everything as JSON."""
        lists = {
            "samples": self._samples,
            "events": self._events,
            "states": self._states,
            "traffic": self._traffic,
        }
        parts = [_text({"version": VERSION, **self.head})[:-1]]
        parts += [f'"{name}":[{",".join(texts)}]' for name, texts in lists.items()]
        return ",".join(parts) + "}"


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
