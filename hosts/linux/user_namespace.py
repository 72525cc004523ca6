"""A user namespace of an ordinary user, in which labs run without root (user_namespaces(7)).

Inside, the process is user 0 and has all capabilities over the namespaces that it creates there:
the lab's networks, mounts and processes. Everything else on the machine sees the user who created
the namespace, with that user's rights and no capability.

User 0 is the only user inside. If newuidmap(1) is installed and /etc/subuid assigns subordinate IDs
to the caller, the users from 1 on exist too, so that a program inside can change its user.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pillarbox.hosts.linux.calls import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    enter,
    unshare,
)
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require


class Setting(NamedTuple):
    """A sysctl that can forbid user namespaces: its name, forbidding value and permitting value."""

    name: str
    forbids: str
    permits: str


SETTINGS = (
    Setting("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),  # Ubuntu since 23.10
    Setting("kernel.unprivileged_userns_clone", "0", "1"),  # Debian until 10
    Setting("user.max_user_namespaces", "0", "10000"),
)
# Kinds of IDs: map file of the kernel, assignments of subordinate IDs, and tool that maps them.
KINDS = (
    ("gid_map", "/etc/subgid", "newgidmap"),
    ("uid_map", "/etc/subuid", "newuidmap"),
)


def require_root_or_user_namespace(what: str) -> None:
    """Raise NotPermittedError if this process is not root and may not create a user namespace.

    `what` names the request in the error: "a lab", "an experiment runs live networks, which".
    """
    refused = refusal()
    require(not refused, f"{what} needs root: use sudo ({refused})", NotPermittedError)


@cache
def refusal() -> str:
    """Return why this process can be neither root nor root of a user namespace, "" if it can.

    A forked process tries: some machines permit user namespaces, but no rights inside.
    """
    if os.geteuid() == 0:
        return ""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with suppress(PillarboxError):
                unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS)
                code = 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1] == 0:
        return ""
    setting = forbidding_setting()
    if setting:
        change = f"sudo sysctl -w {setting.name}={setting.permits}"
        return f"or let users create user namespaces: {change}"
    return "this machine or container lets no user create a user namespace"


def forbidding_setting() -> Setting | None:
    """Return the sysctl that forbids user namespaces of ordinary users, None if none does."""
    for setting in SETTINGS:
        with suppress(OSError):  # this kernel does not have the sysctl
            value = Path("/proc/sys", setting.name.replace(".", "/")).read_text().strip()
            if value == setting.forbids:
                return setting
    return None


def create() -> None:
    """Move this process into a new user namespace, as its user 0.

    The process must have a single thread.
    """
    uid, gid = os.geteuid(), os.getegid()
    waits, begins = os.pipe()
    # A process outside maps subordinate IDs, since newuidmap needs the rights of its file's owner.
    mapper = os.fork()
    if mapper == 0:
        try:
            os.close(begins)
            os.read(waits, 1)  # returns when the namespace exists, or when the parent has ended
            with suppress(OSError, ValueError):  # /etc/subuid cannot be read, or is not text
                _map_subordinate_ids(os.getppid(), {"uid_map": uid, "gid_map": gid})
        finally:
            os._exit(0)
    os.close(waits)
    try:
        unshare(CLONE_NEWUSER)
    finally:
        os.close(begins)
        os.waitpid(mapper, 0)
    for name, own in (("gid_map", gid), ("uid_map", uid)):
        path = Path("/proc/self", name)
        if not path.read_text().strip():
            if name == "gid_map":  # the kernel requires it for a map without newgidmap
                Path("/proc/self/setgroups").write_text("deny")
            path.write_text(f"0 {own} 1")


def _map_subordinate_ids(process: int, own: dict[str, int]) -> None:
    """Map a process's own IDs to 0, and the user's subordinate IDs to the IDs from 1 on."""
    for name, assignments, tool in KINDS:
        found = next(_subordinate_ranges(Path(assignments)), None)
        if found is None or not shutil.which(tool):
            return
        words = [tool, process, 0, own[name], 1, 1, *found]
        if os.spawnvp(os.P_WAIT, tool, [str(word) for word in words]):
            return


def _subordinate_ranges(assignments: Path) -> Iterator[tuple[int, int]]:
    """Yield first ID and size of this user's ranges in /etc/subuid or /etc/subgid (subuid(5))."""
    user = os.getuid()
    names = {str(user)}
    with suppress(KeyError):
        names.add(pwd.getpwuid(user).pw_name)
    lines = assignments.read_text().splitlines() if assignments.exists() else []
    for line in lines:
        owner, _, numbers = line.partition(":")
        first, _, size = numbers.partition(":")
        if owner in names and first.isdecimal() and size.isdecimal():
            yield int(first), int(size)


def text_inside(function: Callable[[], str]) -> str:
    """Return the text of a function that needs root's rights over new namespaces.

    For an ordinary user, a forked process calls the function in a user namespace.
    """
    if os.geteuid() == 0:
        return function()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            create()
            unshare(CLONE_NEWNET | CLONE_NEWUTS)  # those to which the function can return
            os.write(writes, function().encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text


def join(namespace: int) -> None:
    """Move this process into a user namespace, an open file, unless it is in it already.

    The process also gets a network and a host name of its own: it could not return to its former
    ones, over which it has no rights inside.
    """
    own = Path("/proc/self/ns/user").stat()
    if os.fstat(namespace).st_ino != own.st_ino:
        enter(namespace, any_kind=True)
        unshare(CLONE_NEWNET | CLONE_NEWUTS)


def outside_user() -> int:
    """Return the number of this process's user outside its user namespace."""
    user = os.geteuid()
    for inside, outside, size in _id_ranges():
        if inside <= user < inside + size:
            return outside + user - inside
    return user


def has_user(user: int) -> bool:
    """Return True if a user other than 0 exists in this process's user namespace."""
    return any(first <= user < first + size for first, _, size in _id_ranges())


def _id_ranges() -> list[tuple[int, int, int]]:
    """Return this process's map of users: first ID inside, first ID outside, size."""
    found = (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
    return [(int(inside), int(outside), int(size)) for inside, outside, size in found]
