"""Forbidden actions of a sealed child, each tried before the child reads a student's file.

The presence of a layer does not prove its effect. So a child tries the first steps of an attack, in
harmless form, and reports those that succeed.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import socket
from collections.abc import Callable
from typing import NamedTuple

NOBODY = 65534
IPC_PRIVATE, IPC_RMID, A_PAGE = 0, 0, 4096
UNSHARE_NOTHING = 1  # no flags: EINVAL if the system call is allowed
DISCARD_PORT = 9
# The local machine, and an unreachable address (RFC 5737).
ADDRESSES = ("127.0.0.1", "192.0.2.1")

_libc = ctypes.CDLL(None, use_errno=True)


class Before(NamedTuple):
    """State of the process before the child was sealed, which the tests of actions need."""

    user: int
    keeper: int
    file: str  # a file that the grader may read and a student's file does not need
    memory_bytes: int


def opens(before: Before) -> None:
    """Open a file for reading or for writing."""
    for place, flags in (
        (before.file, os.O_RDONLY),
        ("/", os.O_RDONLY),
        ("/dev/null", os.O_WRONLY),
    ):
        if _succeeds(os.open, place, flags):
            return
    raise PermissionError


def changes(before: Before) -> None:
    """Change a file of the grading user; the empty name refers to no file."""
    if os.geteuid() != before.user:
        raise PermissionError  # children run as another user, who owns no such file
    deeds: tuple[Callable[[], None], ...] = (
        lambda: os.chmod("", 0),  # noqa: PTH101
        lambda: os.utime(""),
        lambda: os.setxattr("", "user.mark", b""),
    )
    for deed in deeds:
        try:
            deed()
        except FileNotFoundError:
            return
        except OSError:
            continue
    raise PermissionError


def networks(_: Before) -> None:
    """Reserve a UDP route to this machine or out of it, without sending a packet."""
    for address in ADDRESSES:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            if _succeeds(udp.connect, (address, DISCARD_PORT)):
                return
    raise PermissionError


def connects(_: Before) -> None:
    """Create a Unix socket, which could connect to other programs."""
    socket.socket(socket.AF_UNIX).close()


def disturbs(before: Before) -> None:
    """Signal, slow down or limit the keeper, without changing its current values."""
    for deed in (
        # The unprivileged fallback account may run other children: then the target is this process.
        lambda: os.kill(os.getpid() if os.geteuid() == NOBODY else before.keeper, 0),
        lambda: os.setpriority(
            os.PRIO_PROCESS, before.keeper, os.getpriority(os.PRIO_PROCESS, before.keeper)
        ),
        lambda: os.sched_setaffinity(before.keeper, os.sched_getaffinity(before.keeper)),
        lambda: resource.prlimit(before.keeper, resource.RLIMIT_CORE),
    ):
        if _succeeds(deed):
            return
    raise PermissionError


def forks(_: Before) -> None:
    """Start a process."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def hoards(before: Before) -> None:
    """Allocate more memory than allowed, in user space or in the kernel."""
    if _succeeds(lambda: mmap.mmap(-1, 2 * before.memory_bytes).close()):
        return
    if _succeeds(lambda: os.close(os.memfd_create("more"))):
        return
    segment = _libc.shmget(IPC_PRIVATE, A_PAGE, 0o600)
    if segment < 0:
        raise PermissionError
    _libc.shmctl(segment, IPC_RMID, None)


def unshares(_: Before) -> None:
    """Create namespaces, which would give root's rights inside."""
    _libc.unshare(UNSHARE_NOTHING)
    if ctypes.get_errno() != errno.EINVAL:
        raise PermissionError


def never_ends(_: Before) -> None:
    """Consume processor time without a limit, which the seal has to prevent."""
    if resource.getrlimit(resource.RLIMIT_CPU)[1] != resource.RLIM_INFINITY:
        raise PermissionError


# Names of the actions in the report.
DEEDS: dict[str, Callable[[Before], None]] = {
    "open other files": opens,
    "change files of the grading user": changes,
    "use the network": networks,
    "connect to other programs": connects,
    "signal or slow down other processes": disturbs,
    "start processes": forks,
    "exceed its memory limit": hoards,
    "create namespaces": unshares,
    "use unlimited processor time": never_ends,
}


def possible(before: Before) -> list[str]:
    """Return the names of the actions that succeed."""
    return [name for name, deed in DEEDS.items() if _succeeds(deed, before)]


def _succeeds(deed: Callable[..., object], *arguments: object) -> bool:
    try:
        deed(*arguments)
    except (OSError, MemoryError, ValueError, OverflowError):
        return False
    return True
