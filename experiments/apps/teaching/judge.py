"""Judges: one bounded, sealed process for each submission, which returns one message.

A judge finds, reads, parses and grades the files of one student. If it exceeds its bounds, crashes
or returns a malformed message, its student gets no marks and no other student is affected. A judge
is forked from the grader, so that it starts in milliseconds, and proceeds in this order:

1. It limits its CPU time, memory and files (layers.limit_judge); it is killed when the grader ends.
2. It reads the student's files (submissions.py) and starts the keeper, the process that forks
   sealed children for the student's code (sealed.py). No student's code runs in the judge itself.
3. It seals itself: it can then open only Python modules, and start no process.
4. It parses and grades, and writes its answer to a pipe as JSON. Strings in the answer may come
   from the student; marking.py validates the whole answer.
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

from pillarbox.experiments.apps.teaching import layers
from pillarbox.experiments.base.files import CHECKOUT, SHEETS
from pillarbox.topos.base.errors import PillarboxError

MOST_CPU_S = 120
MOST_MEMORY_BYTES = 256 << 20  # memory limit of a judge, in addition to that of the grader
MOST_WALL_S = 600.0
MOST_ANSWER_BYTES = 8 << 20
CHUNK_BYTES = 1 << 16

Seal = Callable[[], None]
# grading task: reads a submission, calls Seal (locks the judge process in), returns the marks
Work = Callable[[Seal], dict[str, Any]]


class JudgeFailure(Exception):  # noqa: N818 - not an error of the grader: a student may have caused it
    """Exception: a judge process returned no marks; the text is the reason."""


def run_judges(
    works: Sequence[Work], jobs: int
) -> Iterator[tuple[int, dict[str, Any] | PillarboxError | JudgeFailure]]:
    """Yield the index and the marks of each grading task, in order of completion.

    A work without an answer yields the `PillarboxError` that it raised, or `JudgeFailure`.
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
                    if (judge in ready and judge.read()) or judge.is_overdue():
                        selector.unregister(judge.pipe)
                        yield judge.number, judge.answer()
        finally:
            for key in [*selector.get_map().values()]:
                key.data.end()


def run_judge(work: Work) -> dict[str, Any]:
    """Run one grading task in a sealed judge process; raise PillarboxError without an answer."""
    ((_, found),) = run_judges([work], 1)
    if isinstance(found, JudgeFailure):
        raise PillarboxError(f"the submission was not graded: {found}")
    if isinstance(found, PillarboxError):
        raise found
    return found


class _Judge:
    """A sealed process that grades one submission, and the received part of its answer."""

    def __init__(self, number: int, work: Work) -> None:
        self.number = number
        self.deadline_s = time.monotonic() + MOST_WALL_S
        self._data = b""
        grader = os.getpid()
        try:
            self.pipe, writer = os.pipe()
            self._pid = os.fork()
        except OSError as error:
            raise PillarboxError(
                f"no process for grading can be started: {error.strerror}"
            ) from None
        if self._pid == 0:
            _judge_process_main(work, writer, grader)
        os.close(writer)

    def read(self) -> bool:
        """Read available bytes of a judge's answer; return True if it is complete or too long."""
        data = os.read(self.pipe, CHUNK_BYTES)
        self._data += data
        return not data or len(self._data) > MOST_ANSWER_BYTES

    def is_overdue(self) -> bool:
        """Return True if the judge process has exceeded its wall time limit."""
        return time.monotonic() > self.deadline_s

    def answer(self) -> dict[str, Any] | PillarboxError | JudgeFailure:
        """End the judge process; return its answer, or the reason why it gave none."""
        late, status = self.is_overdue(), self.end()
        if len(self._data) > MOST_ANSWER_BYTES:
            return JudgeFailure(f"its answer is longer than {MOST_ANSWER_BYTES >> 20} MiB")
        with suppress(ValueError, RecursionError):
            found = json.loads(self._data)
            if "refused" in found:
                return PillarboxError(str(found["refused"]))
            return JudgeFailure(str(found["failed"])) if "failed" in found else dict(found)
        if status == -signal.SIGXCPU:
            return JudgeFailure(f"it takes more than {MOST_CPU_S} s of processor time")
        if late:
            return JudgeFailure(f"it takes more than {MOST_WALL_S:g} s")
        return JudgeFailure("its process ended without an answer")

    def end(self) -> int:
        """Kill the judge process if it runs; return its exit code, negative for a signal."""
        os.close(self.pipe)
        # The judge process is not reaped yet, so its PID is still valid.
        os.kill(self._pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _judge_process_main(work: Work, writer: int, grader: int) -> NoReturn:
    """Run a grading task in this process, write the answer to the grader's pipe and exit."""
    try:
        os.setsid()  # a new session: Ctrl-C signals only the grader
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        layers.hide_memory()  # this process's memory contains the grading secret
        layers.end_with_parent(grader)
        sys.dont_write_bytecode = True
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(_sealed_answer(work)).encode())
    finally:
        os._exit(0)


def _sealed_answer(work: Work) -> dict[str, Any]:
    try:
        layers.limit_judge(MOST_CPU_S, MOST_MEMORY_BYTES)
        return work(_seal_judge)
    except PillarboxError as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"failed": f"it takes more than {MOST_MEMORY_BYTES >> 20} MiB of memory"}
    except Exception as error:  # noqa: BLE001 - affects one student only
        # The exception's message is left out, because students read this text.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"
        return {"failed": f"the grader cannot handle it ({where}): grade it by hand"}


def _seal_judge() -> None:
    """Seal this judge process: it may open only Python modules, and no sockets or processes.

    Layers that this machine does not support are left out: no student's code runs here, and
    sealed.py refuses to run it where it cannot be sealed.
    """
    modules = {os.path.dirname(os.__file__), *sys.path, str(CHECKOUT), str(SHEETS)}  # noqa: PTH120
    with suppress(OSError):
        layers.prepare_calls(asks=True)
    with suppress(OSError):
        layers.landlock(sorted(filter(os.path.isdir, modules)))
    with suppress(OSError):
        layers.calls(asks=True)
