"""Standard output and standard error of the command line: the one way for text to a terminal.

Whatever the command line prints, errors and tracebacks included, passes through `Output`. Text of
others (a student's message, a foreign file's name, a line of a log) can be part of any of it, and
is shown without control characters even where a caller forgot to ask for that. Programs that run on
servers write to the terminal themselves, as in a shell.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from experiments.text import printable_lines

CANNOT_WRITE = 1  # exit code


class OutputLost(Exception):  # noqa: N818 - the medium's failure, which is no error of a caller
    """Standard output takes no more: its disk is full, its reader has ended, or it was closed."""


class Output(io.TextIOWrapper):
    """A standard stream that shows control characters instead of sending them to a terminal.

    Parameters
    ----------
    unfiltered : file
        The stream in whose place this one stands.
    needed : bool
        Whether text that cannot be written is an error; otherwise it is dropped.
    """

    def __init__(self, unfiltered: TextIO, *, needed: bool) -> None:
        self.unfiltered, self._needed = unfiltered, needed
        ascii_only = codecs.lookup(unfiltered.encoding).name == "ascii"
        super().__init__(
            unfiltered.buffer,
            encoding="utf-8" if ascii_only else unfiltered.encoding,
            errors="backslashreplace",
            newline="",
            line_buffering=getattr(unfiltered, "line_buffering", False),
            write_through=True,
        )

    def write(self, text: str) -> int:
        """Write text, with visible escapes in place of control characters."""
        with self._loss():
            super().write(printable_lines(text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._loss():
            super().flush()

    @contextmanager
    def _loss(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._needed:
                raise OutputLost(error.errno, error.strerror) from None

    def close_filter(self) -> None:
        """Leave the unfiltered stream as it was, and drop what it cannot write.

        Python would try to write it again when it ends, and say so.
        """
        self._needed = False  # nobody is left to be told
        buffer = self.detach()
        try:
            buffer.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self.unfiltered.fileno())
            os.close(nothing)


def styled(stream: TextIO) -> TextIO:
    """Return the stream for a program part that writes terminal escapes, and no foreign text."""
    return stream.unfiltered if isinstance(stream, Output) else stream


@contextmanager
def standard_streams() -> Iterator[None]:
    """Let `Output` stand for standard output and standard error as long as the block lasts.

    Text that cannot be written to standard output ends the process: with a sentence or, where the
    reader of a pipe has ended, as `head` does, without.
    """
    _open_closed()
    before = sys.stdout, sys.stderr
    out, err = _output(sys.stdout, 1, needed=True), _output(sys.stderr, 2, needed=False)
    sys.stdout, sys.stderr = out, err
    try:
        try:
            yield
        finally:
            out.flush()
    except OutputLost as lost:
        code, why = lost.args
        if code != errno.EPIPE:
            err.write(f"pillarbox: standard output cannot be written ({why}): redirect it\n")
        sys.exit(CANNOT_WRITE)
    finally:
        sys.stdout, sys.stderr = before
        for stream in (out, err):
            if isinstance(stream, Output):
                stream.close_filter()


def _output(stream: TextIO | None, descriptor: int, *, needed: bool) -> TextIO:
    stream = stream or open(descriptor, "w", closefd=False)  # noqa: SIM115
    return Output(stream, needed=needed) if hasattr(stream, "buffer") else stream


def _open_closed() -> None:
    """Open standard streams that the caller closed, lest other files get their numbers.

    Standard output then refuses to be written, as a closed one does.
    """
    for descriptor, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
