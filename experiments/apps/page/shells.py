"""Shells on servers for operators of a page, each with a separate pseudo-terminal.

The gate holds the master ends of the pseudo-terminals. A shell does not run as root: it runs as the
user who called sudo, or as the user "nobody", and cannot gain rights, like the page's server. Its
output is read only as fast as the page acknowledges it: a stalled page stops only its own shells.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.runs.control.client import LabEntrance
from pillarbox.hosts.linux.calls import readable
from pillarbox.topos.base.errors import PillarboxError, require

MOST_SHELLS = 16  # maximum number of open shells per page server
CHUNK = 2048  # maximum size of a message with shell output, in bytes
CREDIT = 32  # maximum number of unacknowledged messages with output per shell
LARGEST_SIDE = 500  # maximum number of rows and of columns of a terminal
LOOK_S = 0.5  # interval of checking whether a shell has ended, in seconds
KEYS = frozenset(["ask", "shell", "server", "rows", "columns", "text"])

DEEDS = frozenset(["shell", "type", "resize", "taken", "hang up"])

Tell = Callable[[dict[str, Any]], None]


class ServerShell:
    """A shell process on a server, and the thread that reads its output."""

    def __init__(
        self, number: int, entrance: LabEntrance, tell: Tell, ended: Callable[[int], object]
    ) -> None:
        self._number, self._tell, self._ended = number, tell, ended
        self._master_end, far = pty.openpty()
        namespaces, reach = entrance.files, entrance.reach
        command = module_command(
            "pillarbox.experiments.apps.page.shell", entrance.prompt, *namespaces, *entrance.group
        )
        try:
            self._process = subprocess.Popen(
                # A shell on another computer also runs without rights (`machines.within`). Its
                # local proxy process receives the signal of a new terminal size.
                ["setsid", "--ctty", *reach] if reach else command,
                stdin=far,
                stdout=far,
                stderr=far,
                pass_fds=namespaces,
                cwd="/",
                start_new_session=not reach,
            )
        finally:
            for descriptor in (far, *namespaces):
                os.close(descriptor)
        os.set_blocking(self._master_end, False)
        self._credit, self._credit_changed = CREDIT, threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._read_output, daemon=True)
        self._thread.start()

    def do(self, request: dict[str, Any]) -> None:
        """Execute a request for the shell: input, new size, acknowledgement or end."""
        ask = request["ask"]
        if ask == "type":
            self._write_input(request.get("text", ""))
        elif ask == "resize":
            self._resize_terminal(request.get("rows"), request.get("columns"))
        elif ask == "taken":
            with self._credit_changed:
                self._credit = min(CREDIT, self._credit + 1)
                self._credit_changed.notify()
        else:
            self.close()

    def _write_input(self, text: Any) -> None:
        require(isinstance(text, str), "terminal input has to be a text")
        try:
            with self._credit_changed:
                os.write(self._master_end, text.encode())
        except BlockingIOError:
            raise PillarboxError(
                "the input buffer is full, as the program does not read: end the program"
            ) from None
        except OSError:  # the shell on the server has ended
            return

    def _resize_terminal(self, rows: Any, columns: Any) -> None:
        is_valid = all(isinstance(one, int) and 0 < one <= LARGEST_SIDE for one in (rows, columns))
        require(is_valid, f"rows and columns of a terminal have to be 1 to {LARGEST_SIDE}")
        size = struct.pack("HHHH", rows, columns, 0, 0)
        with suppress(OSError), self._credit_changed:
            fcntl.ioctl(self._master_end, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        """Kill the shell and its process group."""
        with self._credit_changed:
            self._is_closed = True
            self._credit_changed.notify()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read_output(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while not self._is_closed:
            with self._credit_changed:
                self._credit_changed.wait_for(lambda: self._credit > 0 or self._is_closed, LOOK_S)
                no_credit = self._credit <= 0
            if no_credit and self._process.poll() is not None:
                break  # the server was killed and the page has stalled
            if no_credit or not readable([self._master_end], LOOK_S):
                continue
            try:
                text = decoder.decode(os.read(self._master_end, CHUNK))
            except OSError:  # the shell has closed the pseudo-terminal
                break
            with self._credit_changed:
                self._credit -= 1
            self._tell({"shell": self._number, "text": text})
        self.close()
        self._process.wait()
        with self._credit_changed:
            os.close(self._master_end)
            self._master_end = -1
        self._ended(self._number)
        self._tell({"shell": self._number, "ended": True})


class Shells:
    """All open shells of a page server.

    Parameters
    ----------
    enter : callable
        Returns a server's `LabEntrance`: its namespaces and control group.
    tell : callable
        Callback for the output of shells, ``{"shell": 3, "text": ...}``, and for the end of one.
    """

    def __init__(self, enter: Callable[[str], LabEntrance], tell: Tell) -> None:
        self._enter, self._tell = enter, tell
        self._shells: dict[int, ServerShell] = {}
        self._lock = threading.Lock()

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Open a shell, or execute a request for an open shell."""
        number = request.get("shell")
        require(isinstance(number, int), "name the shell by a number")
        assert isinstance(number, int)
        if request["ask"] == "shell":
            self._open_shell(number, request)
        elif number in self._shells:
            self._shells[number].do(request)
        return {}

    def _open_shell(self, number: int, request: dict[str, Any]) -> None:
        require(isinstance(request.get("server"), str), "name the server of the shell")
        with self._lock:
            require(number not in self._shells, f"shell {number} is already open: use a new number")
            require(len(self._shells) < MOST_SHELLS, f"{MOST_SHELLS} terminals are open: close one")
            entrance = self._enter(request["server"])
            made = ServerShell(
                number, entrance, self._tell, lambda one: self._shells.pop(one, None)
            )
            self._shells[number] = made
        made.do({**request, "ask": "resize"})

    def close(self) -> None:
        """Kill all shells of the page server."""
        for shell in list(self._shells.values()):
            shell.close()
