"""A program on a server, with this terminal.

It gets a terminal of its own, to and from which what is typed and printed is copied: so Ctrl-C and
all else that is typed is the program's as long as it runs, and what it has not read is the prompt's
afterwards. It ends with its server, and then so does the waiting for it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple

from experiments.emulation.nodes import OWN_SYS

CHUNK = 1 << 16
ADOPT_TERMINAL = ["setsid", "--ctty"]
# A program in the background outlives the terminal of the line that started it.
UNHANGED = 'trap "" HUP\n'


class Ended(NamedTuple):
    """How a program ended: its exit code, or less than 0 for a signal; and lines that it left."""

    code: int
    unread: tuple[str, ...] = ()


def run_line(node: Any, line: str, typed: IO[str], shown: IO[str], *, interactive: bool) -> Ended:
    """Run a shell's line on a node until it ends.

    Parameters
    ----------
    node : LabNode
        In whose namespace.
    line : str
        For bash. What it leaves in the background goes on, with nothing to read.
    typed, shown : file
        From and to the user.
    interactive : bool
        Whether `typed` is a terminal that a user sits at.
    """
    shown.flush()
    command = [*OWN_SYS, "bash", "-c", UNHANGED + line]
    if interactive and not in_background(line):
        return _at_terminal(node, command, typed.fileno(), shown.fileno())
    program = node.program(
        command,
        stdin=subprocess.DEVNULL,
        stdout=shown,
        stderr=subprocess.STDOUT,
        # Ctrl-C is for what is in the foreground.
        start_new_session=in_background(line),
    )
    while True:
        with suppress(KeyboardInterrupt):  # the program got it as well, and decides
            return Ended(program.wait())


def in_background(line: str) -> bool:
    """Tell whether a line leaves its last program in the background.

    >>> in_background("iperf3 -s &"), in_background("true && true")
    (True, False)
    """
    return line.rstrip().endswith("&")


def _at_terminal(node: Any, command: list[str], typed: int, shown: int) -> Ended:
    ours, theirs = pty.openpty()
    try:
        os.set_blocking(ours, False)
        with suppress(termios.error):
            termios.tcsetattr(theirs, termios.TCSANOW, termios.tcgetattr(typed))
        program = node.program(
            command, by=ADOPT_TERMINAL, stdin=theirs, stdout=theirs, stderr=theirs
        )
        with _raw(typed), _same_size(typed, ours):
            _copy(program, ours, typed, shown)
        return Ended(program.wait(), _unread(theirs))
    finally:
        os.close(ours)
        os.close(theirs)


def _unread(terminal: int) -> tuple[str, ...]:
    """Return the lines that no program has read."""
    os.set_blocking(terminal, False)
    lines = b""
    with suppress(BlockingIOError):
        while line := os.read(terminal, CHUNK):  # one at a time
            lines += line
    return tuple(lines.decode(errors="replace").splitlines())


@contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Let a terminal hand on each key as it is."""
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _same_size(terminal: int, other: int) -> Iterator[None]:
    """Keep the other terminal as large as this one."""

    def resize(*_: object) -> None:
        fcntl.ioctl(other, termios.TIOCSWINSZ, fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))

    resize()
    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _copy(program: subprocess.Popen[bytes], ours: int, typed: int, shown: int) -> None:
    """Copy what is typed to a program and what it prints from it, until it ends."""
    ended = os.pidfd_open(program.pid)
    waiting = [ours, typed, ended]
    try:
        while True:
            ready = select.select(waiting, [], [])[0]
            if ours in ready and not _moved(ours, shown):
                waiting.remove(ours)  # no program has it open any more
            elif typed in ready and not _moved(typed, ours):
                waiting.remove(typed)  # the user's terminal is gone
            elif ended in ready and ours not in ready:
                return  # what it printed last has been shown
    finally:
        os.close(ended)


def _moved(source: int, target: int) -> bool:
    """Hand on what is there; tell whether more can come."""
    try:
        data = os.read(source, CHUNK)
    except OSError:  # EIO: the other side of a terminal is closed
        data = b""
    if not data:
        return False
    while data:
        try:
            data = data[os.write(target, data) :]
        except BlockingIOError:  # a program that does not read has missed it
            return True
        except OSError:
            return False
    return True
