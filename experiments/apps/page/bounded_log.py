"""The page server's log: at most one sentence per minute on standard error, never a traceback.

Standard error is the terminal of the user who started the lab. Every client of the page can cause
HTTP errors, TLS errors and resource exhaustion, and must not be able to flood that terminal.
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
DELAY_S = 0.5  # delay from the first log event to the summary line, in seconds
PERIOD_S = 60.0  # minimum time between two summary lines, in seconds
MOST_KINDS = 8  # maximum number of event kinds that are counted separately
MOST_NAMED = 2  # maximum number of event kinds named in a log line
OTHERS = "other errors"  # common name of all further event kinds


class BoundedLog(logging.Handler):
    """Log handler that counts records by kind and writes one summary line per minute."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop
        self._counts: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a log record by kind, and schedule the summary line."""
        kind = _record_kind(record)
        known = kind in self._counts or len(self._counts) < MOST_KINDS
        self._counts[kind if known else OTHERS] += 1
        if self._timer is None:
            due_s = max(self._loop.time() + DELAY_S, self._next_s)
            self._timer = self._loop.call_at(due_s, self._write_summary)

    def _write_summary(self) -> None:
        sentence = summary(self._counts)
        self._counts.clear()
        self._timer, self._next_s = None, self._loop.time() + PERIOD_S
        with suppress(OSError, ValueError):  # the page server's terminal may be closed
            sys.stderr.write(f"pillarbox: page: {sentence}\n")
            sys.stderr.flush()


def summary(counts: Counter[str]) -> str:
    """Return a log line with the most frequent kinds of events and their counts.

    >>> summary(Counter({"connections without a token were closed": 583, "a": 1, "b": 2, "c": 4}))
    'connections without a token were closed (583 times); c (4 times); and 3 other events'
    """
    first = counts.most_common(MOST_NAMED)
    named = [f"{kind} ({count} time{'s' * (count > 1)})" for kind, count in first]
    rest = counts.total() - sum(count for _, count in first)
    return "; ".join([*named, *[f"and {rest} other events"] * (rest > 0)])


def _record_kind(record: logging.LogRecord) -> str:
    """Return a log record's message without its arguments, which may contain a client's text."""
    message = str(record.msg).partition("\n")[0][:80]
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return message
    if isinstance(error, HttpProcessingError):
        return "malformed HTTP requests were refused"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{message}: {type(error).__name__}{place}"


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Send all log records and uncaught exceptions of this process to a `BoundedLog`."""

    def report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        LOG.error(str(context["message"]), exc_info=context.get("exception"))

    logging.getLogger().handlers = [BoundedLog(loop)]
    loop.set_exception_handler(report)
    sys.unraisablehook = lambda event: LOG.error(
        "an error occurred while an object was deleted", exc_info=event.exc_value
    )
