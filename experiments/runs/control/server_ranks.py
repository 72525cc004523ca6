"""A program with one process (rank) on each of several servers; all ranks end together.

Each rank is a child process that enters its server and runs the program there
(`server_program.run_on_server`). Its output is passed on in whole lines, with the server's address
in front. If a rank fails, all others are ended. Processes that a rank started and that outlive the
rank are found by an environment variable, and killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from typing import NamedTuple, NoReturn

import click

from pillarbox.experiments.base.processes import (
    all_processes,
    forked,
    interrupt_deferred,
    with_variables,
)
from pillarbox.experiments.runs.control.client import LabEntrance, entrance_anywhere
from pillarbox.experiments.runs.control.server_program import end_as, run_on_server
from pillarbox.hosts.linux.calls import readable
from pillarbox.topos.base.errors import PillarboxError, require

END_S = 5.0  # time limit for ranks to end after SIGTERM, and for killed processes to end
# Longest wait in seconds: a signal that arrives just before a wait is handled after it.
SIGNAL_S = 0.5
FILES_PER_RANK, OTHER_FILES = 3, 64  # open files: two pipes and the process of each rank
CHUNK = LONGEST_LINE = 1 << 16
ENDS_ALL = (signal.SIGTERM, signal.SIGHUP)  # signals that end all ranks, as Ctrl-C does


class Rank(NamedTuple):
    """A process of the program: its number, its server's address, and its environment variables."""

    number: int
    server: str
    variables: Mapping[str, str]


class Failure(NamedTuple):
    """The first rank that failed, and its exit code (negative: the number of a signal)."""

    rank: Rank
    code: int

    def __str__(self) -> str:
        """Return a sentence about the failure."""
        how = f"failed with exit code {self.code}"
        if self.code < 0:
            how = f"was ended by signal {-self.code} ({signal.strsignal(-self.code)})"
        return f"rank {self.rank.number} on server {self.rank.server} {how}: all ranks were stopped"


def run_ranks(
    folder: Path, ranks: Sequence[Rank], program: Sequence[str], *, user: str | None, mark: str
) -> Failure | None:
    """Run a program with a process on each server; return the first failure, None for success.

    Parameters
    ----------
    folder : Path
        The lab's folder.
    ranks : sequence of Rank
        The processes, on different servers.
    program : sequence of str
        The program and its arguments.
    user : str, optional
        User to run the program as (default: root).
    mark : str
        An environment variable of all ranks (``NAME=VALUE``) that no other process has.
    """
    needed, (limit, _) = FILES_PER_RANK * len(ranks) + OTHER_FILES, getrlimit(RLIMIT_NOFILE)
    require(
        needed <= limit,
        f"{len(ranks)} ranks need {needed} open files, and {limit} are allowed: raise the limit by "
        "`ulimit -n`",
    )
    group = _RankGroup(mark)
    with _ending_signals_as_exit():
        try:
            for rank in ranks:
                entrance = entrance_anywhere(folder, rank.server)
                variables = [f"{name}={value}" for name, value in rank.variables.items()]
                group.start(rank, entrance, with_variables([mark, *variables], program), user)
            while group.processes:
                failure = group.step(SIGNAL_S)
                if failure:
                    return failure
            return None
        finally:
            group.end()


class _RankGroup:
    """The running processes of all ranks, and their output."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._streams: list[_Stream] = []
        self.processes: list[_Process] = []

    def start(
        self, rank: Rank, entrance: LabEntrance, words: Sequence[str], user: str | None
    ) -> None:
        """Start the process of a rank."""
        pipes = [os.pipe() for _ in range(2)]
        for error, (reading, _) in enumerate(pipes):
            self._streams.append(_Stream(reading, rank.server, error=bool(error)))
        writing = [pipe[1] for pipe in pipes]
        with interrupt_deferred():
            pid = forked(partial(_become_rank, entrance, words, user, writing))
            self.processes.append(_Process(rank, pid, os.pidfd_open(pid)))
        for descriptor in (*writing, *entrance.files):
            os.close(descriptor)

    def step(self, wait_s: float) -> Failure | None:
        """Pass on output, or wait for it; return the first failure of a process, or None."""
        files: list[_Stream | _Process] = [*self._streams, *self.processes]
        ready = readable(files, wait_s)
        for one in ready:
            if isinstance(one, _Stream) and not one.pass_on():
                self._streams.remove(one)
                one.close()
        failures = []
        for one in ready:
            if isinstance(one, _Process):
                code = self._reap(one)
                failures += [Failure(one.rank, code)] if code else []
        return failures[0] if failures else None

    def _reap(self, process: _Process) -> int:
        """Return the exit code of a process that has ended or was killed."""
        code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        os.close(process.pidfd)
        self.processes.remove(process)
        return code

    def end(self) -> None:
        """End all processes: by SIGTERM, after a while by SIGKILL; pass on the last output."""
        try:
            for process in self.processes:
                os.kill(process.pid, signal.SIGTERM)
            deadline = time.monotonic() + END_S
            while self.processes and (left_s := deadline - time.monotonic()) > 0:
                self.step(left_s)
        finally:
            for process in list(self.processes):
                os.kill(process.pid, signal.SIGKILL)
                self._reap(process)
            self._kill_remaining_processes()
            # A process that left the lab's reach may write without end.
            deadline = time.monotonic() + END_S
            for stream in self._streams:
                with suppress(OSError):  # standard output is closed
                    while stream.pass_on() and time.monotonic() < deadline:
                        continue
                stream.close()

    def _kill_remaining_processes(self) -> None:
        """Kill the processes that ranks have started, and wait for their end."""
        deadline = time.monotonic() + END_S
        while (left := list(self._remaining_processes())) and time.monotonic() < deadline:
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.005)

    def _remaining_processes(self) -> Iterator[int]:
        """Yield the processes on this machine that have the mark in their environment."""
        for process in all_processes():
            with suppress(OSError):  # the process has ended, or belongs to the kernel
                variables = Path(f"/proc/{process}/environ").read_bytes()
                if self._mark in variables.split(b"\0"):
                    yield process


class _Process(NamedTuple):
    """The child process of a rank, and a descriptor that becomes readable at the process's end."""

    rank: Rank
    pid: int
    pidfd: int

    def fileno(self) -> int:
        return self.pidfd


class _Stream:
    """Standard output or standard error of a rank: a pipe, and where to print the text."""

    def __init__(self, pipe: int, server: str, *, error: bool) -> None:
        os.set_blocking(pipe, False)
        self._pipe, self._prefix, self._error = pipe, f"[{server}] ".encode(), error
        self._begun = b""  # beginning of a line whose end has not arrived

    def fileno(self) -> int:
        return self._pipe

    def close(self) -> None:
        os.close(self._pipe)

    def pass_on(self) -> bool:
        """Print the lines that a chunk completes; without a chunk, the last line, and return False.

        At the end of the stream there is no chunk. A process that left the lab's reach can keep
        the stream open: then there is no chunk when all text has been read.
        """
        try:
            chunk = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            chunk = b""
        *lines, self._begun = (self._begun + chunk).split(b"\n")
        if self._begun and (not chunk or len(self._begun) > LONGEST_LINE):
            lines, self._begun = [*lines, self._begun], b""
        text = b"".join(b"%s%s\n" % (self._prefix, line) for line in lines)
        click.echo(text, nl=False, err=self._error)
        return bool(chunk)


def _become_rank(
    entrance: LabEntrance, words: Sequence[str], user: str | None, writing: Sequence[int]
) -> NoReturn:
    """Run the program on its server, in this child process; end as the program ends."""
    os.setsid()  # Ctrl-C reaches only the parent process, which ends all ranks
    nothing = os.open(os.devnull, os.O_RDONLY)
    for place, descriptor in enumerate((nothing, *writing)):
        os.dup2(descriptor, place)
    try:
        end_as(run_on_server(entrance, words, user))
    except PillarboxError as error:
        os.write(2, f"pillarbox: {error}\n".encode())
        os._exit(1)


@contextmanager
def _ending_signals_as_exit() -> Iterator[None]:
    """Raise SystemExit at SIGTERM and SIGHUP within a block, so that its clean-up runs."""

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {
        number: signal.signal(number, leave)
        for number in ENDS_ALL
        if signal.getsignal(number) == signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
