"""A program on a server, connected to the user's terminal.

The program gets its own pseudo-terminal, to and from which input and output are copied: while the
program runs, it receives Ctrl-C and all other input; unread input goes to the prompt afterwards.
The program ends with its server, which also ends the wait for it.
"""

from __future__ import annotations

import os
import pty
import subprocess
import termios
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from pillarbox.experiments.base.interpreter import script_command
from pillarbox.experiments.lab.emulation.nodes import OWN_SYS
from pillarbox.experiments.lab.linux.terminals import CHUNK, copy, raw, same_size
from pillarbox.experiments.runs.control import session_leader

ADOPT_TERMINAL = ["setsid", "--ctty"]
# Commands whose program continues in the background when its terminal is closed.
UNHANGED = 'trap "" HUP\n'
LEADER = script_command(Path(session_leader.__file__))


class ProgramEnd(NamedTuple):
    """How a program on a node ended: exit code (negative: signal), and unread input lines."""

    code: int
    unread: tuple[str, ...] = ()


def run_line(
    node: Any, line: str, typed: IO[str], shown: IO[str], *, interactive: bool
) -> ProgramEnd:
    """Run a shell command line on a node until it ends.

    Parameters
    ----------
    node : LabNode
        Node in whose namespace the line runs.
    line : str
        Command line for bash. Programs left in the background continue, without input.
    typed, shown : file
        Input from the user, and output to the user.
    interactive : bool
        Whether `typed` is a terminal with a user.
    """
    shown.flush()
    if interactive and not runs_in_background(line):
        leader = [*OWN_SYS, *LEADER, line]
        return _at_terminal(node, leader, typed.fileno(), shown.fileno())
    program = node.program(
        [*OWN_SYS, "bash", "-c", UNHANGED + line],
        stdin=subprocess.DEVNULL,
        stdout=shown,
        stderr=subprocess.STDOUT,
        # The terminal sends Ctrl-C only to programs in the foreground.
        start_new_session=runs_in_background(line),
    )
    while True:
        with suppress(KeyboardInterrupt):  # the program also receives the signal, and handles it
            return ProgramEnd(program.wait())


def runs_in_background(line: str) -> bool:
    """Return True if a shell command line ends in ``&``: its last program runs on.

    >>> runs_in_background("iperf3 -s &"), runs_in_background("true && true")
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
        return ProgramEnd(program.wait(), _unread_lines(theirs))
    finally:
        os.close(ours)
        os.close(theirs)


def _unread_lines(terminal: int) -> tuple[str, ...]:
    """Return the lines typed at a terminal that no program has read."""
    os.set_blocking(terminal, False)
    lines = b""
    with suppress(BlockingIOError):
        while line := os.read(terminal, CHUNK):  # a terminal returns a single line for each read
            lines += line
    return tuple(lines.decode(errors="replace").splitlines())
