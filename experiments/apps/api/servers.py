"""Programs on servers of a lab, and captures at their ports, each in a separate process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO, NamedTuple

from pillarbox.experiments.apps.api.answers import CaptureFile
from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.lab.emulation.lab_registry import LABS
from pillarbox.experiments.lab.emulation.server_names import line_with_ips
from pillarbox.experiments.runs.control.client import ask
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.spec import parse

BEGUN = "capturing at"
Command = str | Sequence[str]
Stream = int | IO[bytes] | IO[str] | None


class Program(subprocess.Popen[str]):
    """A program on a server; signals reach the program and all processes it has started."""

    def send_signal(self, sig: int) -> None:
        """Send a signal to the program and its children."""
        if self.poll() is None:
            os.killpg(self.pid, sig)


class Server(NamedTuple):
    """A server of a running lab, where programs can be started.

    A command given as a string is run by a shell, as at the prompt; a list is a program and its
    arguments. In both forms, addresses of servers become their IP addresses unless they are quoted.
    """

    lab: int
    address: str
    ip: str

    def run(
        self,
        command: Command,
        *,
        check: bool = False,
        timeout: float | None = None,
        user: str | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end; return its exit code and output, as `subprocess.run` does.

        Parameters
        ----------
        command : str or sequence of str
            Line for a shell, or a program and its arguments.
        check : bool
            Raise `subprocess.CalledProcessError` if the exit code is not 0.
        timeout : float, optional
            Seconds until the program is ended and `subprocess.TimeoutExpired` is raised.
        user : str, optional
            User to run the program as (default: root).
        stdin : str
            Standard input of the program.
        """
        with self.popen(
            command,
            user=user,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                out, err = process.communicate(stdin, timeout)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise subprocess.TimeoutExpired(command, error.timeout, error.output) from None
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(command, process.returncode, out, err)
        if check:
            done.check_returncode()
        return done

    def popen(
        self,
        command: Command,
        *,
        user: str | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> Program:
        """Start a program and return its process, as `subprocess.Popen` does.

        `terminate` and `kill` reach the program and its children; the program ends with the lab.
        """
        words = self._exec_command_line(command)
        options = ["--user", user] if user else []
        return Program(
            module_command("pillarbox", "exec", "--lab", self.lab, *options, *words),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only the calling process
        )

    def _exec_command_line(self, command: Command) -> list[str]:
        """Return the command line of ``pillarbox exec``; raise an error if the server is dead."""
        require(bool(command), "the command to run on a server is empty: name a program")
        found = ask(LABS / str(self.lab), ask="enter", server=self.address)
        if not isinstance(command, str):
            return [self.address, *command]
        ports = found["port_addresses"]
        line = line_with_ips(parse(found["network"]), command, port_addresses=ports)
        return ["--raw", self.address, "sh", "-c", line]


class Capture:
    """A running capture of a lab's frames; ends with its `with` block, by `stop`, or at a limit."""

    def __init__(self, words: Sequence[str | int]) -> None:
        self._captured: CaptureFile | None = None
        self._process = subprocess.Popen(
            module_command("pillarbox", "capture", "--json", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only the calling process
        )
        assert self._process.stderr
        first = self._process.stderr.readline()
        if not first.startswith(BEGUN):
            rest = self._process.communicate()[1]
            raise PillarboxError((first + rest).strip().removeprefix("pillarbox: "))

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> CaptureFile:
        """End the capture of frames; return the capture file and the number of frames."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> CaptureFile:
        """Wait until the capture has reached its limit; return its file and number of frames."""
        if self._captured is None:
            out, err = self._process.communicate()
            if self._process.returncode:
                raise PillarboxError(err.strip().removeprefix("pillarbox: ") or "capture failed")
            found = json.loads(out)
            self._captured = CaptureFile(found["file"], found["frames"], found["missed"])
        return self._captured
