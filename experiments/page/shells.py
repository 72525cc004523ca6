"""Shells on servers, each at a terminal of its own, for who operates a page.

The gate holds the terminals' near ends. A shell is not root's: it is that of the user who called
sudo, or nobody's, and can gain no rights, as the page's server itself. What it prints is read only
as fast as the page takes it: a page that is gone stops its own shells, and nothing else.
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

from experiments.control.client import LabEntrance
from experiments.interpreter import module_command
from hosts.linux.calls import readable
from topos.base.errors import PillarboxError, require

MOST_SHELLS = 16
CHUNK = 2048
CREDIT = 32  # chunks that a page may leave untaken
LARGEST_SIDE = 500
LOOK_S = 0.5
KEYS = frozenset(["ask", "shell", "server", "rows", "columns", "text"])

DEEDS = frozenset(["shell", "type", "resize", "taken", "hang up"])

Tell = Callable[[dict[str, Any]], None]


class ServerShell:
    """One shell: a process on a server, and a thread that reads what it prints."""

    def __init__(
        self, number: int, entrance: LabEntrance, tell: Tell, ended: Callable[[int], object]
    ) -> None:
        self._number, self._tell, self._ended = number, tell, ended
        self._near, far = pty.openpty()
        namespaces, reach = entrance.files, entrance.reach
        command = module_command(
            "experiments.page.shell", entrance.prompt, *namespaces, *entrance.group
        )
        try:
            self._process = subprocess.Popen(
                # On another computer it runs without rights as well (`machines.within`), and who
                # stands for it here hears of the terminal's size.
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
        os.set_blocking(self._near, False)
        self._credit, self._more = CREDIT, threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def do(self, request: dict[str, Any]) -> None:
        """Type, change its size, note what was taken, or end it."""
        ask = request["ask"]
        if ask == "type":
            self._type(request.get("text", ""))
        elif ask == "resize":
            self._resize(request.get("rows"), request.get("columns"))
        elif ask == "taken":
            with self._more:
                self._credit = min(CREDIT, self._credit + 1)
                self._more.notify()
        else:
            self.close()

    def _type(self, text: Any) -> None:
        require(isinstance(text, str), "what is typed is a text")
        try:
            with self._more:
                os.write(self._near, text.encode())
        except BlockingIOError:
            raise PillarboxError("the program does not read what is typed") from None
        except OSError:  # it has ended
            return

    def _resize(self, rows: Any, columns: Any) -> None:
        sides = all(isinstance(one, int) and 0 < one <= LARGEST_SIDE for one in (rows, columns))
        require(sides, "a terminal has rows and columns")
        size = struct.pack("HHHH", rows, columns, 0, 0)
        with suppress(OSError), self._more:
            fcntl.ioctl(self._near, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        """End it, as when its window is closed."""
        with self._more:
            self._over = True
            self._more.notify()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while not self._over:
            with self._more:
                self._more.wait_for(lambda: self._credit > 0 or self._over, LOOK_S)
                waits = self._credit <= 0
            if waits and self._process.poll() is not None:  # its server died; nobody will take more
                break
            if waits or not readable([self._near], LOOK_S):
                continue
            try:
                text = decoder.decode(os.read(self._near, CHUNK))
            except OSError:  # nobody has the other end any more
                break
            with self._more:
                self._credit -= 1
            self._tell({"shell": self._number, "text": text})
        self.close()
        self._process.wait()
        with self._more:
            os.close(self._near)
            self._near = -1
        self._ended(self._number)
        self._tell({"shell": self._number, "ended": True})


class Shells:
    """All shells of a page.

    Parameters
    ----------
    enter : callable
        Returns the way into a server.
    tell : callable
        Told what shells print, as ``{"shell": 3, "text": ...}``, and that one has ended.
    """

    def __init__(self, enter: Callable[[str], LabEntrance], tell: Tell) -> None:
        self._enter, self._tell = enter, tell
        self._shells: dict[int, ServerShell] = {}
        self._lock = threading.Lock()

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Open a shell, or do something to one that is open."""
        number = request.get("shell")
        require(isinstance(number, int), "name the shell by a number")
        assert isinstance(number, int)
        if request["ask"] == "shell":
            self._open(number, request)
        elif number in self._shells:
            self._shells[number].do(request)
        return {}

    def _open(self, number: int, request: dict[str, Any]) -> None:
        require(isinstance(request.get("server"), str), "name the server of the shell")
        with self._lock:
            require(number not in self._shells, f"shell {number} is open already")
            require(len(self._shells) < MOST_SHELLS, f"{MOST_SHELLS} terminals are open: close one")
            entrance = self._enter(request["server"])
            made = ServerShell(
                number, entrance, self._tell, lambda one: self._shells.pop(one, None)
            )
            self._shells[number] = made
        made.do({**request, "ask": "resize"})

    def close(self) -> None:
        """End all of them."""
        for shell in list(self._shells.values()):
            shell.close()
