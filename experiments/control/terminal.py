"""A program on a server, with this terminal.

It gets a terminal of its own, to and from which what is typed and printed is copied: so Ctrl-C and
all else that is typed is the program's as long as it runs, and what it has not read is the prompt's
afterwards. It ends with its server, and then so does the waiting for it.
"""

from __future__ import annotations

import os
import pty
import subprocess
import termios
from contextlib import suppress
from typing import IO, Any, NamedTuple

from experiments.emulation.nodes import OWN_SYS
from experiments.linux.terminals import CHUNK, copy, raw, same_size

ADOPT_TERMINAL = ["setsid", "--ctty"]
# A program in the background outlives the terminal of the line that started it.
UNHANGED = 'trap "" HUP\n'


class ProgramEnd(NamedTuple):
    """How a program ended: its exit code, or less than 0 for a signal; and lines that it left."""

    code: int
    unread: tuple[str, ...] = ()


def run_line(
    node: Any, line: str, typed: IO[str], shown: IO[str], *, interactive: bool
) -> ProgramEnd:
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
            return ProgramEnd(program.wait())


def in_background(line: str) -> bool:
    """Tell whether a line leaves its last program in the background.

    >>> in_background("iperf3 -s &"), in_background("true && true")
    (True, False)
    """
    return line.rstrip().endswith("&")


def _at_terminal(node: Any, command: list[str], typed: int, shown: int) -> ProgramEnd:
    ours, theirs = pty.openpty()
    try:
        os.set_blocking(ours, False)
        with suppress(termios.error):
            termios.tcsetattr(theirs, termios.TCSANOW, termios.tcgetattr(typed))
        program = node.program(
            command, by=ADOPT_TERMINAL, stdin=theirs, stdout=theirs, stderr=theirs
        )
        with raw(typed), same_size(typed, ours):
            copy(program.pid, {ours: shown, typed: ours})
        return ProgramEnd(program.wait(), _unread(theirs))
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
