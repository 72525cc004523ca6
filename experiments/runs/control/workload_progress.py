"""Progress display of a workload at the prompt, and its handling of Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from pillarbox.experiments.base.output import styled
from pillarbox.experiments.base.text import printable

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

SHOW_S = 0.5
CLEAR = "\r\x1b[K"  # clears the current line of a terminal
HINT = "(Ctrl-C ends it)"


@contextmanager
def progress_shown(lab: Lab, terminal: TextIO) -> Iterator[None]:
    """Show the progress of the lab's workload in one line of a terminal until the block ends."""
    from pillarbox.experiments.runs.control.active_workload import progress_line_of

    over = threading.Event()
    screen = styled(terminal)

    def show() -> None:
        while not over.wait(SHOW_S):
            line = progress_line_of(lab)
            if line:
                print(f"{CLEAR}{printable(line)} {HINT}", end="", file=screen, flush=True)

    showing = threading.Thread(target=show, daemon=True)
    showing.start()
    try:
        yield
    finally:
        over.set()
        showing.join()
        print(CLEAR, end="", file=screen, flush=True)


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C end a workload; ignore further ones while its programs are ended."""

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
