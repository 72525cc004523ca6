"""The page server's log: at most one sentence a minute on standard error, and never a traceback.

Standard error is the terminal of the user who started the lab. Whoever reaches the page can cause
errors of HTTP, of TLS and for lack of resources, and must not be able to fill that terminal.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

LOG = logging.getLogger("pillarbox.page")
DELAY_S = 0.5  # between the first event and the sentence, which then counts all events of a burst
PERIOD_S = 60.0
MOST_KINDS = 8  # kinds of events that are counted separately
MOST_NAMED = 2  # kinds of events in a sentence
OTHERS = "other errors"


class BoundedLog(logging.Handler):
    """Counts log records by kind, and writes a sentence with the counts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop
        self._counts: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record."""
        kind = _kind(record)
        known = kind in self._counts or len(self._counts) < MOST_KINDS
        self._counts[kind if known else OTHERS] += 1
        if self._timer is None:
            due_s = max(self._loop.time() + DELAY_S, self._next_s)
            self._timer = self._loop.call_at(due_s, self._write)

    def _write(self) -> None:
        sentence = summary(self._counts)
        self._counts.clear()
        self._timer, self._next_s = None, self._loop.time() + PERIOD_S
        with suppress(OSError, ValueError):  # the terminal is gone
            sys.stderr.write(f"pillarbox: page: {sentence}\n")
            sys.stderr.flush()


def summary(counts: Counter[str]) -> str:
    """Return a sentence about what was counted, the most frequent first.

    >>> summary(Counter({"connections without a token were closed": 583, "a": 1, "b": 2, "c": 4}))
    'connections without a token were closed (583 times); c (4 times); and 3 other events'
    """
    first = counts.most_common(MOST_NAMED)
    named = [f"{kind} ({count} time{'s' * (count > 1)})" for kind, count in first]
    rest = counts.total() - sum(count for _, count in first)
    return "; ".join([*named, *[f"and {rest} other events"] * (rest > 0)])


def _kind(record: logging.LogRecord) -> str:
    """Return a record's message without values, which may be a stranger's text."""
    message = str(record.msg).partition("\n")[0][:80]
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return message
    if isinstance(error, HttpProcessingError):
        return "requests that are no HTTP were refused"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{message}: {type(error).__name__}{place}"


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Send all that this process logs, and errors that nobody caught, to a `BoundedLog`."""

    def report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        LOG.error(str(context["message"]), exc_info=context.get("exception"))

    logging.getLogger().handlers = [BoundedLog(loop)]
    loop.set_exception_handler(report)
    sys.unraisablehook = lambda event: LOG.error(
        "an error while an object was deleted", exc_info=event.exc_value
    )
