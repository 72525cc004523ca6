"""One trial, from the outside: a process that is watched, and that cannot go on for ever."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from experiments.interpreter import module_command
from experiments.traffic.flows import Flow, Progress
from experiments.trials.runs.order import TrialMeasurements, TrialOrder

END_S = 10.0  # for a lab to end
# Of a trial on one machine, and over several: the latter knows what this floor does not.
WORKERS = "experiments.trials.runs.trial_worker", "experiments.machines.distributed_trial"


class TrialDisplay:
    """Display of a run that shows nothing; `experiments.reporting.progress.Live` shows progress."""

    def begin_trial(
        self,
        name: str,
        flows: Sequence[Flow],
        *,
        number: int | None = None,
        address: Callable[[int], str] = str,
    ) -> None:
        """Begin a trial."""

    def phase(self, text: str) -> None:
        """Say what it is doing."""

    def progress(self, now_s: float, progress: Sequence[Progress]) -> None:
        """Say how far its flows are."""

    def event(self, text: str) -> None:
        """Tell of a fault."""

    def end_trial(self, verdict: str, summary: str = "") -> None:
        """End it."""


class TrialError(Exception):
    """A trial that did not come to its end; the text says why."""


def measure(
    order: TrialOrder,
    live: TrialDisplay,
    log: Path,
    started: Callable[[subprocess.Popen[bytes]], object] = lambda _: None,
    worker: str = "",
) -> TrialMeasurements:
    """Run a trial in a process and sandbox of its own; what it prints goes to the log.

    `started` is given the process, whose end is that of all that the trial made; `worker` is the
    module that is this process, where it is not the usual one. Raises TrialError where the trial
    comes to no end, and KeyboardInterrupt where it is stopped.
    """
    usual = WORKERS[order.trial.system.machines > 1]
    with _worker(log, worker or usual) as (process, connection):
        started(process)
        connection.send(order)
        return _heard(connection, process, live, time.monotonic() + order.limit_s, order.limit_s)


@contextmanager
def _worker(log: Path, module: str) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """Start a trial's process; afterwards nothing of it is left."""
    ours, theirs = Pipe()
    with log.open("wb") as printed, theirs:
        process = subprocess.Popen(
            module_command(module, theirs.fileno(), os.getpid()),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
        )
    try:
        with ours:
            yield process, ours
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
    finally:
        if process.poll() is None:
            process.kill()  # and the kernel everything in its sandbox
        process.wait()


def _heard(
    connection: Connection,
    process: subprocess.Popen[bytes],
    live: TrialDisplay,
    deadline: float,
    limit_s: float,
) -> TrialMeasurements:
    """Show the process's messages until its last, what it measured."""
    while True:
        if not connection.poll(max(0.0, deadline - time.monotonic())):
            raise TrialError(f"it did not end within {limit_s:.0f} s")
        try:
            what, *content = connection.recv()
        except (EOFError, ConnectionResetError):
            code = process.wait(END_S)
            raise TrialError(f"its process ended before its time, with code {code}") from None
        if what == "measured":
            found: TrialMeasurements = content[0]
            return found
        if what == "failed":
            raise TrialError(content[0])
        if what == "stopped":
            raise KeyboardInterrupt
        shown: dict[str, Callable[..., Any]] = {
            "phase": live.phase,
            "progress": live.progress,
            "event": live.event,
        }
        shown[what](*content)
