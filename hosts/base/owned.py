"""Who may change a file: its owner, its group, and whoever may write to a directory above it.

A path is resolved component by component from the root directory. Every directory on the way has
to be safe before the next component is looked up, so nobody else can exchange it meanwhile.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections import deque
from collections.abc import Iterable, Set
from pathlib import Path

ACCESS_LIST = "system.posix_acl_access"  # with one, the group's bits are those of all listed users
MOST_LINKS = 40  # symbolic links on one path, as in the kernel


def callers() -> set[int]:
    """Return the user who called sudo, whose files this root process may run; empty without."""
    caller = os.environ.get("SUDO_UID", "")
    return {int(caller)} if caller.isdecimal() else set()


def foreign_writer(path: Path, users: Iterable[int] = ()) -> str:
    """Return who else may change a path, and the command that prevents it; empty if nobody.

    Parameters
    ----------
    path : Path
        What exists; for a missing file the answer is about the directories above.
    users : iterable of int
        The users who may change it besides root.
    """
    waiting = deque(path.absolute().parts[1:])
    at, links, trusted = Path("/"), 0, {0, *users}
    found = _writer_of(at, os.lstat(at), trusted)
    while waiting and not found:
        name = waiting.popleft()
        if name == "..":
            at = at.parent
            continue
        status = _status(at / name)
        if status is None:
            return ""
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MOST_LINKS:
                return f"{path} has too many symbolic links: name the file itself"
            found = _owner_of(at / name, status, trusted)
            target = (at / name).readlink()
            waiting.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
            at = Path("/") if target.is_absolute() else at
        else:
            at /= name
            found = _writer_of(at, status, trusted)
    return found


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _writer_of(path: Path, status: os.stat_result, trusted: Set[int]) -> str:
    """Return who else may write to a file or directory itself."""
    found = _owner_of(path, status, trusted)
    # In a sticky directory, such as /tmp, only its owner may remove or rename an entry.
    if found or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return found
    quoted = shlex.quote(str(path))
    if status.st_mode & stat.S_IWOTH:
        return f"every user may write to {path}: chmod o-w {quoted}"
    if status.st_mode & stat.S_IWGRP:
        if _has_access_list(path):
            return f"an access control list lets others write to {path}: setfacl -b {quoted}"
        if not _is_private_group(status.st_gid, trusted):
            name = _group_name(status.st_gid)
            return f"group {name} may write to {path}: chmod g-w {quoted}"
    return ""


def _owner_of(path: Path, status: os.stat_result, trusted: Set[int]) -> str:
    if status.st_uid in trusted:
        return ""
    owner, own = _user_name(status.st_uid), _user_name(max(trusted))
    return f"{path} belongs to {owner}: chown -h {own} {shlex.quote(str(path))}"


def _has_access_list(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, ACCESS_LIST))
    except (OSError, AttributeError):  # the file system or the system has no such lists
        return False


def _is_private_group(group: int, trusted: Set[int]) -> bool:
    """Return True if only trusted users are members of a group."""
    if group == 0:
        return True
    names = {_user_name(user) for user in trusted}
    try:
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        members = set()
    users = {one.pw_uid for one in pwd.getpwall() if one.pw_gid == group}
    return members <= names and users <= trusted


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _group_name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
