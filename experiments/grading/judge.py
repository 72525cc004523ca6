"""Judges: a process for each student's work, bounded and sealed, which answers with one message.

Whatever is done with a student's files happens in a judge: they are found, read, parsed, asked and
compared there. A judge that takes too much time or memory, dies or answers with something else
costs its student the marks, and nobody else. It is forked, so that it starts in milliseconds:

1. It bounds its processor time, memory and files (layers.bounds), and ends with the grader.
2. It reads the student's files (handed_in.py), and starts the process that forks sealed children
   for the student's code (sealed.py). No student's code runs in a judge.
3. It seals itself: from here on it opens nothing but modules, and starts nothing.
4. It parses, asks and compares, and writes its answer to a pipe as JSON, the strings of which are
   a stranger's text. Who reads them checks every one (marking.py).
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from experiments.files import SHEETS
from experiments.grading import layers
from topos.base.errors import PillarboxError

MOST_CPU_S = 120
MOST_MEMORY_BYTES = 256 << 20  # in addition to the grader's own
MOST_WALL_S = 600.0
MOST_ANSWER_BYTES = 8 << 20
CHUNK_BYTES = 1 << 16

Seal = Callable[[], None]
Work = Callable[[Seal], dict[str, Any]]  # what a judge does: reads, seals itself, returns an answer


class Failed(Exception):  # noqa: N818 - it happened to a judge, which may be its student's doing
    """A judge has no answer; the text says why."""


def answers(
    works: Sequence[Work], jobs: int
) -> Iterator[tuple[int, dict[str, Any] | PillarboxError | Failed]]:
    """Yield the number and the answer of each work when it comes, or why there is none.

    A `PillarboxError` of the work itself is what is wrong with its input.
    """
    waiting = deque(enumerate(works))
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or selector.get_map():
                while waiting and len(selector.get_map()) < jobs:
                    judge = _Judge(*waiting.popleft())
                    selector.register(judge.pipe, selectors.EVENT_READ, judge)
                running = [key.data for key in selector.get_map().values()]
                left_s = min(judge.deadline_s for judge in running) - time.monotonic()
                ready = [key.data for key, _ in selector.select(max(0.0, left_s))]
                for judge in running:
                    if (judge in ready and judge.read()) or judge.overdue():
                        selector.unregister(judge.pipe)
                        yield judge.number, judge.answer()
        finally:
            for key in [*selector.get_map().values()]:
                key.data.end()


def answer(work: Work) -> dict[str, Any]:
    """Return the answer of one work, or raise PillarboxError."""
    ((_, found),) = answers([work], 1)
    if isinstance(found, Failed):
        raise PillarboxError(f"not graded: {found}")
    if isinstance(found, PillarboxError):
        raise found
    return found


class _Judge:
    """One process, and what it has written so far."""

    def __init__(self, number: int, work: Work) -> None:
        self.number = number
        self.deadline_s = time.monotonic() + MOST_WALL_S
        self._data = b""
        self.pipe, writer = os.pipe()
        grader = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _run(work, writer, grader)
        os.close(writer)

    def read(self) -> bool:
        """Read what is there; return True after the last byte, or where there are too many."""
        data = os.read(self.pipe, CHUNK_BYTES)
        self._data += data
        return not data or len(self._data) > MOST_ANSWER_BYTES

    def overdue(self) -> bool:
        """Return True if its time is over."""
        return time.monotonic() > self.deadline_s

    def answer(self) -> dict[str, Any] | PillarboxError | Failed:
        """End the process; return its answer, or why there is none."""
        late, status = self.overdue(), self.end()
        if len(self._data) > MOST_ANSWER_BYTES:
            return Failed(f"its answer is longer than {MOST_ANSWER_BYTES >> 20} MiB")
        with suppress(ValueError, RecursionError):
            found = json.loads(self._data)
            if "refused" in found:
                return PillarboxError(str(found["refused"]))
            return Failed(str(found["failed"])) if "failed" in found else dict(found)
        if status == -signal.SIGXCPU:
            return Failed(f"it takes more than {MOST_CPU_S} s of processor time")
        if late:
            return Failed(f"it takes more than {MOST_WALL_S:g} s")
        return Failed("its process ended without an answer")

    def end(self) -> int:
        """Kill the process if it runs; return its exit code, negative for a signal."""
        os.close(self.pipe)
        os.kill(self._pid, signal.SIGKILL)  # not waited for yet: the number is still its own
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _run(work: Work, writer: int, grader: int) -> NoReturn:
    """Be a judge."""
    try:
        os.setsid()  # Ctrl-C is for the grader
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        layers.hide_memory()  # the secret is in it
        layers.end_with_parent(grader)
        sys.dont_write_bytecode = True
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(_answer(work)).encode())
    finally:
        os._exit(0)


def _answer(work: Work) -> dict[str, Any]:
    try:
        layers.bounds(MOST_CPU_S, MOST_MEMORY_BYTES)
        return work(_seal)
    except PillarboxError as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"failed": f"it takes more than {MOST_MEMORY_BYTES >> 20} MiB of memory"}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is one student's
        # Not the exception's text, which a student could read.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"
        return {"failed": f"the grader does not understand it ({where}): grade it by hand"}


def _seal() -> None:
    """Let this process open nothing but modules, and start nothing.

    A layer that this machine does not have is left out: no student's code runs here, and sealed.py
    refuses to run it elsewhere.
    """
    modules = {os.path.dirname(os.__file__), *sys.path, str(SHEETS)}  # noqa: PTH120
    with suppress(OSError):
        layers.prepare_calls(asks=True)
    with suppress(OSError):
        layers.landlock(sorted(filter(os.path.isdir, modules)))
    with suppress(OSError):
        layers.calls(asks=True)
