"""Registry of the labs running on this machine, with their folders.

A lab has a folder ``/run/pillarbox/labs/<number>``, accessible only to root. The lab holds a lock
on a file in it until it ends; the kernel releases the lock even if the lab is killed. A folder
with a free lock belongs to a dead lab, and the next lab takes it over. An ordinary user's labs have
their folders in a directory of the user (`runtime_folder`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from pillarbox.experiments.base.files import foreign_path_advice, private_folder, runtime_folder
from pillarbox.hosts.base.file_ownership import is_machine_root
from pillarbox.hosts.linux.user_namespace import require_root_or_user_namespace
from pillarbox.topos.base.errors import PillarboxError, require

LABS = runtime_folder() / "labs"
MOST_LABS = 1000
LOCK = "lock"


class LabFolder(NamedTuple):
    """Folder of a running lab in /run/pillarbox; its owner is the process that holds `lock`."""

    number: int
    folder: Path
    lock: IO[str]


def create_lab_folder() -> LabFolder:
    """Return an empty, locked folder for a new lab."""
    require_root_or_user_namespace("a lab")
    private_folder(LABS.parent)
    private_folder(LABS)
    for number in range(1, MOST_LABS):
        folder = LABS / str(number)
        lock = _locked(folder)
        if lock:
            for old in folder.iterdir():
                if old.name != LOCK:
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
            return LabFolder(number, folder, lock)
    raise PillarboxError(f"{MOST_LABS} labs are running: end one first")


def remove_lab_folder(place: LabFolder) -> None:
    """Remove a lab's folder."""
    shutil.rmtree(place.folder, ignore_errors=True)
    place.lock.close()


def wait_for_end(folder: Path) -> None:
    """Wait until the lab with a given folder has ended."""
    with suppress(FileNotFoundError), (folder / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


def _exists() -> bool:
    """Return True if this user has a folder of labs; raise PillarboxError if it is another user's.

    Clients trust the control sockets in it, and every user can create a folder in /tmp.
    """
    if not os.path.lexists(LABS.parent):
        return False
    owner = LABS.parent.lstat().st_uid
    require(
        owner == os.geteuid(),
        f"{LABS.parent} belongs to another user: {foreign_path_advice(LABS.parent)}",
    )
    return LABS.exists()


def living_labs() -> list[int]:
    """Return the numbers of the labs that are alive."""
    if not _exists():
        return []
    numbers = sorted(int(folder.name) for folder in LABS.iterdir() if folder.name.isdecimal())
    return [number for number in numbers if _is_alive(LABS / str(number))]


def remove_dead(*, remove: bool = True) -> list[int]:
    """Remove the folders of dead labs, unless `remove` is False; return the labs' numbers."""
    if not _exists():
        return []
    dead = sorted({int(one.name) for one in LABS.iterdir() if one.name.isdecimal()})
    dead = [number for number in dead if number not in living_labs()]
    for number in dead if remove else ():
        lock = _locked(LABS / str(number))
        if lock:  # None: a new lab has reused the dead lab's folder
            remove_lab_folder(LabFolder(number, LABS / str(number), lock))
    return dead


def folder_of(number: int | None = None) -> Path:
    """Return the folder of a running lab; without a number, the folder of the only lab."""
    numbers = living_labs()
    if number is not None:
        require(number in numbers, f"lab {number} is not running: {_lab_numbers_text(numbers)}")
        return LABS / str(number)
    others = "" if is_machine_root() else " of this user (those of root: use sudo)"
    require(len(numbers) > 0, f"no lab{others} is running: start one with `pillarbox up SPEC`")
    require(len(numbers) == 1, f"{_lab_numbers_text(numbers)}: choose one with --lab NUMBER")
    return LABS / str(numbers[0])


def _lab_numbers_text(numbers: list[int]) -> str:
    if not numbers:
        return "none is"
    if len(numbers) == 1:
        return f"only lab {numbers[0]} is"
    return f"labs {', '.join(map(str, numbers))} are running"


def _locked(folder: Path) -> IO[str] | None:
    """Return the lock file of a lab's folder, locked; None if another process holds the lock."""
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = (folder / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    # the lab has removed its lock file since it was opened
    if not os.fstat(lock.fileno()).st_nlink:
        lock.close()
        return None
    return lock


def _is_alive(folder: Path) -> bool:
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
