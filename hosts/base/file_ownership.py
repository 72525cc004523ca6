"""Users that can modify a file: its owner, its group, and those with write access to a parent.

A path is resolved component by component from the root directory. Every directory of the path must
be safe before the next component is looked up, so that no other user can replace a component
during the check.
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

# Extended attribute of an access control list; group permission bits then apply to listed users.
ACCESS_LIST = "system.posix_acl_access"
# Owner of files whose owner does not exist in this user namespace (kernel.overflowuid).
NO_USER = 65534
MOST_LINKS = 40  # maximum number of symbolic links on a path, as in the kernel


def is_machine_root() -> bool:
    """Return True if this process is root of the machine or container, and not only of a sandbox.

    In a user namespace of an ordinary user (`pillarbox.hosts.linux.user_namespace`) the root
    directory belongs to a user who does not exist there.
    """
    return os.geteuid() == 0 and os.lstat("/").st_uid != NO_USER


def callers() -> set[int]:
    """Return the user id that called sudo, whose files root may process; empty without sudo."""
    caller = os.environ.get("SUDO_UID", "")
    return {int(caller)} if caller.isdecimal() else set()


def foreign_writer(path: Path, users: Iterable[int] = ()) -> str:
    """Return a description of other users who can modify a path, and the command that prevents it.

    The result is empty if no other user can modify the path.

    Parameters
    ----------
    path : Path
        Path of a file; if the file is missing, only its parent directories are checked.
    users : iterable of int
        User ids that are trusted in addition to root.
    """
    components = deque(path.absolute().parts[1:])
    current, links, trusted = Path("/"), 0, {0, *users}
    problem = _write_problem(current, os.lstat(current), trusted)
    while components and not problem:
        name = components.popleft()
        if name == "..":
            current = current.parent
            continue
        status = _status(current / name)
        if status is None:
            return ""
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MOST_LINKS:
                return f"{path} has too many symbolic links: name the file itself"
            problem = _owner_problem(current / name, status, trusted)
            target = (current / name).readlink()
            components.extendleft(
                reversed(target.parts[1:] if target.is_absolute() else target.parts)
            )
            current = Path("/") if target.is_absolute() else current
        else:
            current /= name
            problem = _write_problem(current, status, trusted)
    return problem


def _status(path: Path) -> os.stat_result | None:
    """Return the lstat result of a path, None if it cannot be read."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _write_problem(path: Path, status: os.stat_result, trusted: Set[int]) -> str:
    """Return a description of untrusted users with write access to this file or directory."""
    problem = _owner_problem(path, status, trusted)
    # In a sticky directory such as /tmp, only the owner of an entry can remove or rename it.
    if problem or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return problem
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


def _owner_problem(path: Path, status: os.stat_result, trusted: Set[int]) -> str:
    """Return an error text that names a file's untrusted owner; empty if the owner is trusted."""
    if status.st_uid in trusted:
        return ""
    owner, own = _user_name(status.st_uid), _user_name(max(trusted))
    return f"{path} belongs to {owner}: chown -h {own} {shlex.quote(str(path))}"


def _has_access_list(path: Path) -> bool:
    """Return True if the path has a POSIX access control list."""
    try:
        return bool(os.getxattr(path, ACCESS_LIST))
    except (OSError, AttributeError):  # the file system or the system has no access control lists
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
    users = {entry.pw_uid for entry in pwd.getpwall() if entry.pw_gid == group}
    return members <= names and users <= trusted


def _user_name(user: int) -> str:
    """Return the name of a user id."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _group_name(group: int) -> str:
    """Return the name of a group id."""
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
