"""Output files and folders: creation, ownership, locking, and reading of TOML."""

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

from pillarbox.hosts.base.file_ownership import is_machine_root
from pillarbox.hosts.linux.user_namespace import outside_user
from pillarbox.topos.base.errors import PillarboxError, require

CHECKOUT = Path(__file__).resolve().parents[2]  # Folder of the packages topos, hosts, experiments.
IMPORT_FOLDER = Path(str(sys.modules["pillarbox"].__file__)).parents[1]  # For Python's path.
PRIVATE_FOLDER = 0o700  # Mode of a folder that only its owner may open.
SESSION_FOLDER = "XDG_RUNTIME_DIR"  # Environment variable with the folder of a user's session.
TEMPORARY = Path("/tmp")  # Used without a session, as all processes of a user must agree.
LONGEST_TOML = 1 << 20  # Upper bound for the size of a TOML file, in bytes.
_IN_CHECKOUT = CHECKOUT / "vagrant" / "labs"
_INSTALLED = CHECKOUT / "experiments" / "apps" / "teaching" / "sheets"
SHEETS = _IN_CHECKOUT if _IN_CHECKOUT.is_dir() else _INSTALLED


def output_folder(path: Path) -> Path:
    """Create the folder for a command's files, or raise PillarboxError with the reason."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PillarboxError(
            f"{path} cannot be created ({error.strerror}); choose another folder with --out"
        ) from None
    for folder in missing:
        give_to_user(folder)
    return path


def private_folder(path: Path) -> Path:
    """Create a folder that only this user may open; an existing folder gets this mode (0700).

    Raises PillarboxError if the path belongs to another user, or if it is not a folder (symbolic
    links included).
    """
    with suppress(FileExistsError):
        path.mkdir(mode=PRIVATE_FOLDER)
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise PillarboxError(
            f"{path} is not a folder ({error.strerror}): {foreign_path_advice(path)}"
        ) from None
    try:
        status = os.fstat(opened)
        require(
            status.st_uid == os.geteuid(),
            f"{path} belongs to another user: {foreign_path_advice(path)}",
        )
        if not is_private(status):
            os.fchmod(opened, PRIVATE_FOLDER)
    finally:
        os.close(opened)
    return path


def foreign_path_advice(path: Path) -> str:
    """Return the advice for a path that is not a folder of this user."""
    if path.parent == TEMPORARY:  # there only root and the owner may remove a file
        return f"set {SESSION_FOLDER} to a folder of your own, or let root remove the path"
    return "remove it, or chown it"


def is_private(status: os.stat_result) -> bool:
    """Return True if only this process's user may open a file or folder."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def runtime_folder() -> Path:
    """Return the folder of running labs' files: /run/pillarbox for root, else one of the user.

    It is the same inside and outside the user namespace of an ordinary user's lab.
    """
    if is_machine_root():
        return Path("/run/pillarbox")
    user = outside_user()
    usual = f"/run/user/{user}"  # the systemd session's; a container has none
    # After `su` the variable may name the folder of the former user.
    for session in (Path(os.environ.get(SESSION_FOLDER) or usual), Path(usual)):
        if session.is_absolute() and session.is_dir() and session.stat().st_uid == os.geteuid():
            return session / "pillarbox"
    return TEMPORARY / f"pillarbox-{user}"


def file_text(path: Path | str) -> str:
    """Return the stripped text of a file; empty if it is missing or cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def toml_in(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file, or raise PillarboxError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LONGEST_TOML + 1)
        require(len(data) <= LONGEST_TOML, f"{file} has more than {LONGEST_TOML} bytes")
        return toml_of(data.decode("utf-8"), str(file))
    except OSError as error:
        raise PillarboxError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PillarboxError(f"{file} is not TOML: {error}") from None


def toml_of(text: str, name: str) -> dict[str, Any]:
    """Parse a TOML text, or raise PillarboxError with the name of its file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return dict(tomllib.loads(text))
    # TOMLDecodeError is a ValueError, as is a number of thousands of digits; deeply nested
    # brackets raise RecursionError.
    except (ValueError, RecursionError) as error:
        raise PillarboxError(f"{name} is not TOML: {error}") from None


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock a folder of results, or raise PillarboxError if another process writes to it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PillarboxError(
                f"{folder} is being written by another process: wait for its end, or choose "
                "another folder"
            ) from None
        yield
    finally:
        os.close(descriptor)


def give_to_user(path: Path) -> None:
    """Change the owner of a file or folder from root to the user who called sudo.

    Devices, such as /dev/null, stay the machine's.
    """
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if is_machine_root() and user.isdecimal() and group.isdecimal():
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            os.chown(path, int(user), int(group), follow_symlinks=False)


def _is_written_in_place(path: Path) -> bool:
    """Return True for a device, pipe or link (/dev/stdout) of root or this user: not replaced.

    Others can place links to a device, and pipes that block, into a folder such as /tmp.
    """
    if not path.exists() or (path.is_file() and not path.is_symlink()):
        return False
    return path.lstat().st_uid in (0, os.geteuid())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: write a temporary file in the same folder, then rename it.

    Devices, pipes and links of root and of this user, such as /dev/stdout, are not replaced but
    written to.
    """
    temporary = path.with_name(f".pillarbox-{secrets.token_hex(6)}")
    try:
        if _is_written_in_place(path):
            with path.open("wb") as stream:
                stream.write(content)
            return
        try:
            # The umask sets the mode; files of tempfile would be unreadable for other users.
            with temporary.open("xb") as stream:
                stream.write(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise PillarboxError(
            f"{str(path)!r} cannot be written ({error.strerror}): name a file in a writable "
            "directory"
        ) from error
