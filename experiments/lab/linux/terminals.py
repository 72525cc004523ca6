"""A terminal between a user and a program: raw input, window size, and bytes in both directions."""

from __future__ import annotations

import fcntl
import os
import signal
import termios
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pillarbox.hosts.linux.calls import readable

CHUNK = 1 << 16


@contextmanager
def raw(terminal: int) -> Iterator[None]:
    """Put a terminal into raw mode for a block; restore its settings afterwards."""
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def same_size(terminal: int, other: int) -> Iterator[None]:
    """Copy this terminal's window size to another terminal, now and at every change."""

    def resize(*_: object) -> None:
        fcntl.ioctl(other, termios.TIOCSWINSZ, fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))

    resize()
    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def copy(program: int, moves: Mapping[int, int]) -> None:
    """Copy bytes from files to other files until a program ends and its output has been copied.

    Parameters
    ----------
    program : int
        Process id of a child of this process.
    moves : mapping
        Target by source. The first source is the program's output.
    """
    moves, output = dict(moves), next(iter(moves), None)
    ended = os.pidfd_open(program)
    try:
        with _wake_up_by_signals() as woken:
            while True:
                ready = readable([*moves, ended, woken], None)
                if ended in ready and output not in ready:
                    return
                if woken in ready:
                    os.read(woken, CHUNK)
                for source in [source for source in moves if source in ready]:
                    if not _copy_ready_bytes(source, moves[source]):
                        del moves[source]
    finally:
        os.close(ended)


@contextmanager
def _wake_up_by_signals() -> Iterator[int]:
    """Yield a file that becomes readable with each signal.

    Without the file, the handler of a signal that arrives just before a system call runs after the
    call.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)


def _copy_ready_bytes(source: int, target: int) -> bool:
    """Copy the bytes that a file has ready to another file; return False at end of file."""
    try:
        data = os.read(source, CHUNK)
    except OSError:  # EIO: the other end of the pseudo-terminal is closed
        data = b""
    if not data:
        return False
    while data:
        try:
            data = data[os.write(target, data) :]
        except BlockingIOError:  # the program does not read its full input buffer
            return True
        except OSError:
            return False
    return True
