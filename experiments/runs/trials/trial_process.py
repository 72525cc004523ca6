"""Parent side of a trial: starts the trial's process, limits its time, receives its messages."""

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

from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.models.workloads.flows import Flow, Progress
from pillarbox.experiments.runs.trials.dilation import lab_order, own_measurements
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder

END_S = 10.0  # Timeout for the end of a trial's process, in seconds.
# Worker modules of trials on one machine, and of trials over several machines.
WORKERS = (
    "pillarbox.experiments.runs.trials.trial_worker",
    "pillarbox.experiments.apps.cluster.distributed_trial",
)


class TrialDisplay:
    """Display of a run that shows nothing; `runs.reporting.progress.Live` shows progress."""

    def begin_trial(
        self,
        name: str,
        flows: Sequence[Flow],
        *,
        number: int | None = None,
        address: Callable[[int], str] = str,
    ) -> None:
        """Begin the display of a trial."""

    def phase(self, text: str) -> None:
        """Show the current phase of the trial, such as "starting servers"."""

    def progress(self, now_s: float, progress: Sequence[Progress]) -> None:
        """Show the progress of the trial's flows."""

    def event(self, text: str) -> None:
        """Show a fault or repair of the trial."""

    def end_trial(self, verdict: str, summary: str = "") -> None:
        """End the display of a trial with its verdict and totals."""


class TrialError(Exception):
    """Error of a trial that did not finish; the message is the reason."""


def measure(
    order: TrialOrder,
    live: TrialDisplay,
    log: Path,
    started: Callable[[subprocess.Popen[bytes]], object] = lambda _: None,
    worker: str = "",
) -> TrialMeasurements:
    """Run a trial in a separate process and sandbox; its output goes to the log.

    `started` is called with the process: all that the trial created ends with this process.
    `worker` is the module that the process runs, if it is not the usual one. Raises TrialError if
    the trial does not finish, and KeyboardInterrupt if it is stopped.
    """
    usual = WORKERS[order.trial.system.machines > 1]
    with _started_worker(log, worker or usual) as (process, connection):
        started(process)
        in_lab = lab_order(order)
        connection.send(in_lab)
        found = _receive_measurements(
            *(connection, process, live, time.monotonic() + in_lab.limit_s, in_lab.limit_s),
            order.trial.system.dilation,
        )
        return own_measurements(order, found)


@contextmanager
def _started_worker(log: Path, module: str) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """Start a trial's process and yield it with its connection; end the process afterwards."""
    parent_end, child_end = Pipe()
    with log.open("wb") as printed, child_end:
        process = subprocess.Popen(
            module_command(module, child_end.fileno(), os.getpid()),
            pass_fds=[child_end.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
        )
    try:
        with parent_end:
            yield process, parent_end
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
    finally:
        if process.poll() is None:
            process.kill()  # The kernel then ends all processes in the trial's sandbox.
        process.wait()


def _receive_measurements(
    connection: Connection,
    process: subprocess.Popen[bytes],
    live: TrialDisplay,
    deadline: float,
    limit_s: float,
    dilation: float,
) -> TrialMeasurements:
    """Show the messages of a trial's process until the last, and return its measurements."""
    while True:
        if not connection.poll(max(0.0, deadline - time.monotonic())):
            raise TrialError(f"it did not end within {limit_s:.0f} s")
        try:
            kind, *content = connection.recv()
        except (EOFError, ConnectionResetError):
            code = process.wait(END_S)
            raise TrialError(f"its process ended unexpectedly with code {code}") from None
        if kind == "measured":
            measurements: TrialMeasurements = content[0]
            return measurements
        if kind == "failed":
            raise TrialError(content[0])
        if kind == "stopped":
            raise KeyboardInterrupt
        displays: dict[str, Callable[..., Any]] = {
            "phase": live.phase,
            "progress": lambda now_s, flows: live.progress(now_s / dilation, flows),
            "event": live.event,
        }
        displays[kind](*content)
