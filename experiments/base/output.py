"""Standard output and standard error of the command line, with control characters escaped.

All output of the command line, errors and tracebacks included, passes through `Output`. Any output
can contain foreign text (a student's message, a foreign file's name, a line of a log), which is
shown without control characters even if the caller did not escape it. Programs that run on servers
write to the terminal directly, as in a shell.
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

from pillarbox.experiments.base.text import printable_lines

CANNOT_WRITE = 1  # Exit code if standard output cannot be written.


class OutputLost(Exception):  # noqa: N818 - the medium's failure, which is no error of a caller
    """Error of standard output: the disk is full, the pipe's reader has ended, or it is closed."""


class Output(io.TextIOWrapper):
    """A standard stream that escapes control characters instead of sending them to a terminal.

    Parameters
    ----------
    unfiltered : file
        Stream that this stream replaces.
    needed : bool
        True raises OutputLost for text that cannot be written; False drops the text.
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
        with self._errors_as_lost():
            super().write(printable_lines(text))
        return len(text)

    def flush(self) -> None:
        """Write the buffered text to standard output or standard error."""
        with self._errors_as_lost():
            super().flush()

    @contextmanager
    def _errors_as_lost(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._needed:
                raise OutputLost(error.errno, error.strerror) from None

    def close_filter(self) -> None:
        """Detach from the unfiltered stream, and drop text that the stream cannot write.

        Otherwise Python would try to write the text again at its exit, and print an error.
        """
        self._needed = False  # Ignore later write errors of the stream.
        buffer = self.detach()
        try:
            buffer.flush()
        except OSError:
            null_device = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null_device, self.unfiltered.fileno())
            os.close(null_device)


def styled(stream: TextIO) -> TextIO:
    """Return the unfiltered stream, for code that writes terminal escapes and no foreign text."""
    return stream.unfiltered if isinstance(stream, Output) else stream


@contextmanager
def standard_streams() -> Iterator[None]:
    """Replace standard output and standard error by `Output` within a block.

    Text that cannot be written to standard output ends the process: with an error message, or
    silently if the reader of a pipe has ended, as `head` does.
    """
    _open_closed_streams()
    before = sys.stdout, sys.stderr
    out, err = _filtered(sys.stdout, 1, needed=True), _filtered(sys.stderr, 2, needed=False)
    sys.stdout, sys.stderr = out, err
    try:
        try:
            yield
        finally:
            out.flush()
    except OutputLost as lost:
        code, reason = lost.args
        if code != errno.EPIPE:
            err.write(f"pillarbox: standard output cannot be written ({reason}): redirect it\n")
        sys.exit(CANNOT_WRITE)
    finally:
        sys.stdout, sys.stderr = before
        for stream in (out, err):
            if isinstance(stream, Output):
                stream.close_filter()


def _filtered(stream: TextIO | None, descriptor: int, *, needed: bool) -> TextIO:
    stream = stream or open(descriptor, "w", closefd=False)  # noqa: SIM115
    return Output(stream, needed=needed) if hasattr(stream, "buffer") else stream


def _open_closed_streams() -> None:
    """Open standard streams that the caller closed, so that no other file gets their descriptors.

    Writing to standard output then fails, as to a closed stream.
    """
    for descriptor, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
