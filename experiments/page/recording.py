"""A recording: all that a page shows, over time, in bounded memory. docs/page.md has its format."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any

VERSION = 1
# Of each list as JSON; the oldest go first.
MOST_BYTES = {"samples": 48 << 20, "events": 8 << 20, "states": 4 << 20, "traffic": 4 << 20}
AT_ONCE = 16  # values in a piece of the recording


class Recording:
    """What was seen of one lab, or of one run.

    Parameters
    ----------
    head : dict
        What does not change: ``network``, ``picture``, ``about`` (a list of names and texts),
        ``rate_mbit`` and ``begun_s``, the moment by the wall clock that all others count from.
    """

    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head
        self._lists = {name: _Texts(most) for name, most in MOST_BYTES.items()}

    def add_sample(self, sample: dict[str, Any]) -> str:
        """Keep a sample; return it as JSON."""
        return self._lists["samples"].add(sample)

    def add_event(self, event: dict[str, Any]) -> str:
        """Keep an event; return it as JSON."""
        return self._lists["events"].add(event)

    def add_state(self, state: dict[str, Any]) -> str:
        """Keep what has failed from a moment on; return it as JSON."""
        return self._lists["states"].add(state)

    def add_traffic(self, traffic: dict[str, Any]) -> str:
        """Keep what is sent from a moment on; return it as JSON."""
        return self._lists["traffic"].add(traffic)

    def text(self) -> str:
        """Return the recording as JSON."""
        return "".join(self.pieces())

    def pieces(self) -> Iterator[str]:
        """Return the recording as JSON, as it is now, in pieces that are made on demand.

        A slow reader of the pieces takes little memory.
        """
        return _pieces(self.head, {name: tuple(kept.texts) for name, kept in self._lists.items()})


def _pieces(head: dict[str, Any], lists: dict[str, tuple[str, ...]]) -> Iterator[str]:
    yield _text({"version": VERSION, **head})[:-1]
    for name, texts in lists.items():
        yield f',"{name}":['
        for start in range(0, len(texts), AT_ONCE):
            yield ("," if start else "") + ",".join(texts[start : start + AT_ONCE])
        yield "]"
    yield "}"


class _Texts:
    """Values as JSON, the newest of them: as many as a number of bytes holds."""

    def __init__(self, most_bytes: int) -> None:
        self.texts: deque[str] = deque()
        self._bytes, self._most_bytes = 0, most_bytes

    def add(self, value: dict[str, Any]) -> str:
        text = _text(value)
        self.texts.append(text)
        self._bytes += len(text)
        while self._bytes > self._most_bytes and len(self.texts) > 1:
            self._bytes -= len(self.texts.popleft())
        return text


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
