"""Files that a run leaves behind, and whose they are."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from topos.base.errors import PillarboxError, require

CHECKOUT = Path(__file__).resolve().parent.parent  # the folder of topos, hosts and experiments
PRIVATE_FOLDER = 0o700
LONGEST_TOML = 1 << 20  # bytes
_IN_CHECKOUT = CHECKOUT / "vagrant" / "labs"
SHEETS = _IN_CHECKOUT if _IN_CHECKOUT.is_dir() else Path(__file__).parent / "grading" / "sheets"


def output_folder(path: Path) -> Path:
    """Make the folder for a command's files, or raise PillarboxError saying why it cannot be."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PillarboxError(
            f"{path} cannot be made a folder ({error.strerror}); name another with --out"
        ) from None
    for folder in missing:
        give_to_user(folder)
    return path


def private_folder(path: Path) -> Path:
    """Make a folder that no other user may look into, or give one that exists that mode.

    Raises PillarboxError if it is another user's, or no folder but a symbolic link.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=PRIVATE_FOLDER)
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise PillarboxError(f"{path} is no folder ({error.strerror}): remove it") from None
    try:
        status = os.fstat(opened)
        require(
            status.st_uid == os.geteuid(), f"{path} belongs to another user: remove it, or chown it"
        )
        if not is_private(status):
            os.fchmod(opened, PRIVATE_FOLDER)
    finally:
        os.close(opened)
    return path


def is_private(status: os.stat_result) -> bool:
    """Return True if only this process's user may open a file or folder."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def toml_in(file: Path) -> dict[str, Any]:
    """Return what a file in TOML says, or raise PillarboxError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LONGEST_TOML + 1)
        require(len(data) <= LONGEST_TOML, f"{file} has more than {LONGEST_TOML} bytes")
        return toml_of(data.decode("utf-8"), str(file))
    except OSError as error:
        raise PillarboxError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PillarboxError(f"{file} is no TOML: {error}") from None


def toml_of(text: str, name: str) -> dict[str, Any]:
    """Return what a text in TOML says, or raise PillarboxError that names its file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return dict(tomllib.loads(text))
    # Besides its own error: brackets without end, numbers of thousands of digits.
    except (ValueError, RecursionError) as error:
        raise PillarboxError(f"{name} is no TOML: {error}") from None


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock a folder of results, or raise PillarboxError where another process writes to it."""
    held = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PillarboxError(
                f"{folder} is being written by another process: wait for its end, or name another"
            ) from None
        yield
    finally:
        os.close(held)


def give_to_user(path: Path) -> None:
    """Hand a file or folder that sudo made to the user who called sudo."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdecimal() and group.isdecimal():
        os.chown(path, int(user), int(group), follow_symlinks=False)


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the file, then rename: no reader ever sees half of it."""
    beside = path.with_name(f".pillarbox-{secrets.token_hex(6)}")
    try:
        try:
            # Not tempfile, whose files no other user may read: here the umask decides.
            with beside.open("xb") as stream:
                stream.write(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise PillarboxError(
            f"{str(path)!r} cannot be written ({error.strerror}): name a file in a writable "
            "directory"
        ) from error
