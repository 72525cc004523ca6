"""The only reader of students' files: no links, regular files of bounded size, read once.

A student may hand in a symbolic link to the teacher's secret, a FIFO that blocks its reader, a
device, a file of terabytes, or change a file while it is read. Every component below the folder
that the teacher names is therefore opened without following links, checked after it is open, and
read into memory once. All later steps use that copy.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from pillarbox.experiments.base.text import printable
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require

MOST_SOURCE_BYTES = 200_000
MOST_BYTES = 32 << 20  # maximum total size of a submission's files, in bytes
MOST_ENTRIES = 1000  # maximum number of entries in a student's folder
LONGEST_NAME = 80  # characters of a file name in messages
STANDARD_INPUT = "-"
PYTHON = ".py"
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# file content by path; text instead of bytes is the reading error
Files = Mapping[str, "bytes | str"]


@dataclass
class Submission:
    """The submitted files of one student, in memory."""

    name: str  # name of the submitted file or folder
    source: str
    changed_s: float  # newest modification time, in seconds since the epoch
    # file content by path, or the error as text
    files: dict[str, bytes | str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Return a hash of the submission's name and of the content of all its files."""
        hashes = {
            place: hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else content
            for place, content in self.files.items()
        }
        read = (self.name, self.source, sorted(hashes.items()))
        return hashlib.sha256(repr(read).encode()).hexdigest()


class Folder:
    """An open folder of submissions (context manager); paths inside are relative to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._left_bytes = MOST_BYTES

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def names(self, most: int | None = None) -> list[str]:
        """Return the sorted names in the folder; raise PillarboxError for more than `most`."""
        with os.scandir(self._descriptor) as entries:
            found = [entry.name for entry in islice(entries, most and most + 1)]
        require(
            most is None or len(found) <= most,
            f"the submission folder has more than {most} entries",
        )
        return sorted(found)

    def status(self, name: str) -> os.stat_result:
        """Return the file status of a folder's entry; symbolic links are not followed."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def folder(self, name: str) -> Folder:
        """Open a subfolder; symbolic links are not followed."""
        return Folder(os.open(name, FLAGS | os.O_DIRECTORY, dir_fd=self._descriptor))

    def read(self, place: str, most_bytes: int) -> bytes:
        """Return a file's content; raise PillarboxError if it cannot be read or is too long."""
        found = self.contents([(place, most_bytes)]).get(place, f"there is no file {place}")
        if isinstance(found, str):
            raise PillarboxError(found)
        return found

    def contents(self, places: Iterable[tuple[str, int]]) -> dict[str, bytes | str]:
        """Return the content of files in the folder, or the reason why a file cannot be read.

        Each place is a path with its bound in bytes. Missing files are left out of the result.
        """
        found: dict[str, bytes | str] = {}
        for place, most_bytes in places:
            name = printable(place, LONGEST_NAME)
            try:
                found[place] = self._content(place, name, most_bytes)
            except FileNotFoundError:
                continue
            except OSError as error:
                found[place] = f"{name} cannot be read: {error.strerror}"
            except PillarboxError as error:
                found[place] = str(error)
        return found

    def _content(self, place: str, name: str, most_bytes: int) -> bytes:
        *folders, last = place.split("/")
        at = os.dup(self._descriptor)
        try:
            for part in folders:
                inner = os.open(part, FLAGS | os.O_DIRECTORY, dir_fd=at)
                os.close(at)
                at = inner
            # The file type is checked before open() as well: opening a device runs its driver.
            self._check(os.stat(last, dir_fd=at, follow_symlinks=False), name)
            with os.fdopen(os.open(last, FLAGS, dir_fd=at), "rb") as stream:
                self._check(os.fstat(stream.fileno()), name)
                data = stream.read(min(most_bytes, self._left_bytes) + 1)
        finally:
            os.close(at)
        require(len(data) <= most_bytes, f"the file {name} is longer than {most_bytes} bytes")
        require(
            len(data) <= self._left_bytes,
            f"the submission's files are together longer than {MOST_BYTES} bytes",
        )
        self._left_bytes -= len(data)
        return data

    @staticmethod
    def _check(status: os.stat_result, name: str) -> None:
        is_link = stat.S_ISLNK(status.st_mode)
        require(not is_link, f"the file {name} is a link, and links are not followed")
        require(stat.S_ISREG(status.st_mode), f"the file {name} is not a regular file")


def open_submissions(folder: Path) -> Folder:
    """Open a folder that the teacher names; links in its path are followed."""
    try:
        return Folder(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        raise PillarboxError(f"the folder {folder} cannot be opened: {error.strerror}") from None


def read_submission(
    folder: Folder,
    name: str,
    others: Sequence[tuple[str, int]] = (),
    *,
    alone: bool = True,
    suffix: str = PYTHON,
) -> Submission:
    """Return a submission: a file with the lab's suffix, or a folder with one such file.

    Parameters
    ----------
    folder : Folder
        The folder that holds the submission.
    name : str
        Name of the submission in that folder.
    others : sequence of (str, int)
        Further files that the lab needs: path in the submission's folder, and bound in bytes.
    alone : bool
        Read no `others` for a submission that is a file; otherwise they are read from `folder`.
    suffix : str
        Suffix of the submitted file's name.

    Raises
    ------
    PillarboxError
        If the submission is a link, not a regular file, too long, or cannot be read.
    """
    try:
        status = folder.status(name)
        require(
            not stat.S_ISLNK(status.st_mode), "the submission is a link, and links are not followed"
        )
        if not stat.S_ISDIR(status.st_mode):
            source = _source(folder, name, suffix)
            return Submission(
                name, source, status.st_mtime, folder.contents(() if alone else others)
            )
        with folder.folder(name) as inner:
            names = inner.names(MOST_ENTRIES)
            files = [file for file in names if file.endswith(suffix)]
            require(
                len(files) == 1,
                f"the submission folder has {len(files)} {_kind(suffix)} files, not one",
            )
            newest_s = max(inner.status(file).st_mtime for file in names)
            return Submission(
                name, _source(inner, files[0], suffix), newest_s, inner.contents(others)
            )
    except OSError as error:
        raise PillarboxError(f"the submission cannot be read: {error.strerror}") from None


def submission_reader(
    file: Path, others: Sequence[tuple[str, int]] = (), suffix: str = PYTHON
) -> Callable[[], Submission]:
    """Return a function that reads the submission at a path; ``-`` is standard input.

    Links in the path of the folder around it are followed, since the caller wrote that path.
    """
    if str(file) == STANDARD_INPUT:
        data = sys.stdin.buffer.read(MOST_SOURCE_BYTES + 1)
        require(
            len(data) <= MOST_SOURCE_BYTES,
            f"the submission is longer than {MOST_SOURCE_BYTES} bytes",
        )
        given = Submission(STANDARD_INPUT, data.decode("utf-8", errors="replace"), 0.0)
        return lambda: given
    place = Path(os.path.abspath(file))  # noqa: PTH100 - unlike resolve(), it follows no link
    require(os.path.lexists(place), f"there is no file {file}", UnknownNameError)

    def read_it() -> Submission:
        try:
            with open_submissions(place.parent) as folder:
                return read_submission(folder, place.name, others, alone=False, suffix=suffix)
        except PillarboxError as error:
            raise PillarboxError(f"{file}: {error}") from None

    return read_it


def _source(folder: Folder, name: str, suffix: str) -> str:
    """Return the text of a file, which must have the suffix."""
    shown = printable(name, LONGEST_NAME)
    require(name.endswith(suffix), f"{shown} is not a {_kind(suffix)} file")
    return folder.read(name, MOST_SOURCE_BYTES).decode("utf-8", errors="replace")


def _kind(suffix: str) -> str:
    """Return the kind of files with a suffix, for messages."""
    return "Python" if suffix == PYTHON else suffix
