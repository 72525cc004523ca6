"""The grader's end of sealed children: questions with a deadline, and untrusted answers.

A child runs untrusted code. If its answer is late, missing, too long or malformed, the child is
killed and `ChildKilled` contains the reason. An exception in the student's code raises
`StudentError`, and the child continues. The caller has to check the *content* of an answer, which
is untrusted input like a packet.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from pillarbox.experiments.base.files import IMPORT_FOLDER
from pillarbox.experiments.base.text import printable
from pillarbox.topos.base.errors import PillarboxError

PROGRAM = Path(__file__).with_name("sealed.py")
# wall time limits of one answer, and of all answers, of the student's code, in seconds
DECISION_S, PATIENCE_S = 2.0, 30.0
SLICE_S = 0.05  # Wall time is counted in slices: pauses of this machine add nothing.
# CPU time that a child may use after an answer, until the next question, in seconds: more than
# reading and collecting garbage take
BACKGROUND_S = 0.5
CPU_S = 10  # CPU time limit of a sealed child process, in seconds
# memory limit of all sealed children of a student's file together, in bytes
MEMORY_BYTES = 128 << 20
LEAST_MEMORY_BYTES = 16 << 20
LONGEST_ANSWER = 1 << 20
# CPUCLOCK_SCHED, the kind of clock in the number of a process's CPU clock (clock_getcpuclockid(3))
PROCESS_CLOCK = 2
START_S = 20.0
# maximum number of lines that the student's file prints, and of characters in a line
MOST_PRINTED, LONGEST_LINE = (200, 400)


class ChildKilled(Exception):  # noqa: N818 - it is what happened to the child, not an error of ours
    """Exception: the sealed process of a student's file was killed; the text is the reason."""


class StudentError(Exception):
    """The student's code raised an exception; the text contains the exception and its line."""


class ChildKeeper:
    """The process that forks sealed children for a student's file; a context manager.

    Parameters
    ----------
    source : str
        The student's file.
    modules : iterable of str
        Modules of Pillarbox that the file may import.
    networks : iterable of str
        Specs of the networks in the questions to children.
    unsealed : bool
        True to read the file even if this machine cannot prevent every forbidden action.
    without : iterable of str
        Layers of the seal to leave out, for tests.
    cpu_s : int
        CPU time limit of a child, in seconds.
    """

    def __init__(
        self,
        source: str,
        modules: Iterable[str],
        networks: Iterable[str],
        *,
        unsealed: bool = False,
        without: Iterable[str] = (),
        cpu_s: int = CPU_S,
    ) -> None:
        self.source, self.cpu_s = source, cpu_s
        self._allow_unsealed = unsealed
        self.unsealed: list[str] = []  # names of forbidden actions that the seal does not prevent
        self.waited_s = 0.0  # wall time of all answers of the student's code so far, in seconds
        self.printed: list[str] = []  # newest lines that the student's file printed
        self._children: list[SealedChild] = []
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = str(theirs.fileno()), str(IMPORT_FOLDER)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(PROGRAM), *arguments],
                pass_fds=[theirs.fileno()],
                cwd="/",  # a folder where no user may write, and sealed children may not look
                env={},  # hides the grader's environment variables from sealed children
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control.settimeout(START_S)
        self._send({"modules": list(modules), "networks": list(networks), "without": list(without)})

    def __enter__(self) -> ChildKeeper:
        return self

    def __exit__(self, *error: object) -> None:
        for child in self._children:
            child.forget()
        self._control.close()  # makes the keeper process kill all sealed children and exit
        try:
            self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            with suppress(PermissionError):  # a sealed judge process cannot send signals
                self._process.kill()
                self._process.wait()

    def child(self, among: int = 1) -> SealedChild:
        """Fork a sealed child with the student's file; `among` children share the memory limit."""
        mine, theirs = socket.socketpair()
        memory = max(LEAST_MEMORY_BYTES, MEMORY_BYTES // among)
        with theirs:
            limits = {"cpu_s": self.cpu_s, "memory_bytes": memory}
            self._send({"start": limits}, [theirs.fileno()])
        started = self._receive()
        self.unsealed = started["open"]
        child = SealedChild(self, started["pid"], mine)
        self._children.append(child)
        if self.unsealed and not self._allow_unsealed:
            child.close()
            raise PillarboxError(
                f"this machine cannot seal the file: {self.unsealed[0]}; "
                "--unsealed grades it anyway"
            )
        try:
            child.ask({"load": self.source})
        except BaseException:
            child.close()
            raise
        return child

    def end(self, pid: int) -> int:
        """Kill a sealed child by its PID; return the signal that ended it, 0 if it had exited."""
        self._send({"end": pid})
        return int(self._receive()["signal"])

    def _send(self, message: dict[str, Any], descriptors: Iterable[int] = ()) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))
        except OSError as error:
            raise PillarboxError(_no_keeper(error)) from error

    def _receive(self) -> Any:
        try:
            return json.loads(self._control.recv(1 << 16))
        except (OSError, ValueError) as error:
            raise PillarboxError(_no_keeper(error)) from error


def _no_keeper(error: Exception) -> str:
    return (
        f"the process that seals student code has ended ({error}): Python and Pillarbox must be "
        f"readable by the grader; try `{sys.executable} {PROGRAM} 0` by hand"
    )


class SealedChild:
    """A sealed process that runs a student's file."""

    def __init__(self, keeper: ChildKeeper, pid: int, stream: socket.socket) -> None:
        self._keeper, self._pid, self._stream = keeper, pid, stream
        self._questions = 0
        self._answered_cpu_s = 0.0  # CPU time of the child at its last answer, in seconds
        self._unread = b""
        self.alive = True

    def ask(self, question: dict[str, Any]) -> Any:
        """Return the student's answer to a question; raise StudentError or ChildKilled if none."""
        if not self.alive:
            raise ChildKilled("it was stopped before")
        self._check_background()
        self._questions += 1
        line = json.dumps({**question, "number": self._questions}) + "\n"
        try:
            self._stream.settimeout(DECISION_S)
            self._stream.sendall(line.encode())
            answer = json.loads(self._read_line())
        except TimeoutError:
            self.stop(f"no answer within {DECISION_S:g} s: it loops or waits")
        except OSError:
            self.stop("its process ended")
        except (ValueError, RecursionError):
            self.stop("its answer is malformed")
        self._answered_cpu_s = self._cpu_s()
        if self._keeper.waited_s > PATIENCE_S:
            self.stop(f"all its answers took {PATIENCE_S:g} s")
        if not isinstance(answer, dict) or answer.get("number") != self._questions:
            self.stop("it answered out of turn")
        lines = str(answer.get("printed", "")).splitlines()
        self._keeper.printed = [
            *self._keeper.printed,
            *(printable(line, LONGEST_LINE) for line in lines),
        ][-MOST_PRINTED:]
        if "error" in answer:
            if str(answer["error"]).startswith("MemoryError"):
                self.stop("it exceeded its memory limit")
            raise StudentError(printable(str(answer["error"]), LONGEST_LINE))
        return answer.get("answer")

    def _check_background(self) -> None:
        """Count the CPU time since the last answer as the student's; stop a child that computes.

        Code that has answered may go on: it can write to the socket of its answers.
        """
        if not self._questions:
            return
        background_s = self._cpu_s() - self._answered_cpu_s
        if background_s > BACKGROUND_S:
            self.stop("it computes after its answer, without a question")
        self._keeper.waited_s += max(0.0, background_s)

    def _cpu_s(self) -> float:
        """Return the CPU time of the child process, in seconds; 0 if the process has ended."""
        try:
            return time.clock_gettime(~self._pid << 3 | PROCESS_CLOCK)
        except OSError:
            return 0.0

    def stop(self, reason: str) -> NoReturn:
        """Kill the sealed child and raise ChildKilled with the reason."""
        ended_by = self.close()
        if ended_by == signal.SIGXCPU:
            reason = f"it used up its {self._keeper.cpu_s} s of processor time"
        elif ended_by not in (0, signal.SIGKILL):
            reason = f"its process ended by signal {ended_by}"
        raise ChildKilled(reason)

    def close(self) -> int:
        """End the sealed child process; return the signal that ended the process."""
        if not self.alive:
            return 0
        self.forget()
        return self._keeper.end(self._pid)

    def forget(self) -> None:
        """Close the socket to the sealed child, so that the keeper process ends the child."""
        self.alive = False
        self._stream.close()

    def _read_line(self) -> bytes:
        """Return the next line of the child; raise TimeoutError if it does not come in time."""
        waited_s = 0.0
        self._stream.settimeout(SLICE_S)
        while b"\n" not in self._unread:
            if len(self._unread) > LONGEST_ANSWER:
                raise ValueError("the answer has no end")
            if waited_s > DECISION_S:
                raise TimeoutError
            began = time.monotonic()
            with suppress(TimeoutError):
                data = self._stream.recv(1 << 16)
                if not data:
                    raise ConnectionResetError
                self._unread += data
            passed_s = min(time.monotonic() - began, 2 * SLICE_S)
            waited_s += passed_s
            self._keeper.waited_s += passed_s
        line, _, self._unread = self._unread.partition(b"\n")
        return line
