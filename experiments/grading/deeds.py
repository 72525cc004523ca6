"""What a sealed child must not be able to do: each deed is tried, before it reads a student's file.

A layer that says that it is there proves nothing. So a child does what a hostile file would begin
with, to no one's harm, and reports what succeeds.
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
UNSHARE_NOTHING = 1  # no flag of it: EINVAL where the call can be made
DISCARD_PORT = 9
# One of this machine, and one that leads nowhere (RFC 5737).
ADDRESSES = ("127.0.0.1", "192.0.2.1")

_libc = ctypes.CDLL(None, use_errno=True)


class Before(NamedTuple):
    """What was so before a child was sealed."""

    user: int
    keeper: int
    file: str  # that the grader may read, and a student's file has no use for
    memory_bytes: int


def opens(before: Before) -> None:
    """Open a file to read it, or one to write to."""
    for place, flags in (
        (before.file, os.O_RDONLY),
        ("/", os.O_RDONLY),
        ("/dev/null", os.O_WRONLY),
    ):
        if _succeeds(os.open, place, flags):
            return
    raise PermissionError


def changes(before: Before) -> None:
    """Change a file that the grading user has; no file has the empty name."""
    if os.geteuid() != before.user:
        raise PermissionError  # it has none
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
    """Send packets to this machine, or out of it; none is sent here."""
    for address in ADDRESSES:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            if _succeeds(udp.connect, (address, DISCARD_PORT)):
                return
    raise PermissionError


def connects(_: Before) -> None:
    """Have a socket that can be connected to other programs' paths."""
    socket.socket(socket.AF_UNIX).close()


def disturbs(before: Before) -> None:
    """Signal, slow down or limit the keeper: as it is, so that nothing changes."""
    for deed in (
        # Of a user whom other children are as well, itself is an example.
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
    """Take more memory than its share, of its own or of the kernel's."""
    if _succeeds(lambda: mmap.mmap(-1, 2 * before.memory_bytes).close()):
        return
    if _succeeds(lambda: os.close(os.memfd_create("more"))):
        return
    segment = _libc.shmget(IPC_PRIVATE, A_PAGE, 0o600)
    if segment < 0:
        raise PermissionError
    _libc.shmctl(segment, IPC_RMID, None)


def unshares(_: Before) -> None:
    """Make namespaces, in which it would have root's rights."""
    _libc.unshare(UNSHARE_NOTHING)
    if ctypes.get_errno() != errno.EINVAL:
        raise PermissionError


def never_ends(_: Before) -> None:
    """Use processor time without an end."""
    if resource.getrlimit(resource.RLIMIT_CPU)[1] != resource.RLIM_INFINITY:
        raise PermissionError


# What the report says that a file could do.
DEEDS: dict[str, Callable[[Before], None]] = {
    "open other files": opens,
    "change files of the grading user": changes,
    "use the network": networks,
    "connect to other programs": connects,
    "signal or slow down other processes": disturbs,
    "start processes": forks,
    "take memory beyond its share": hoards,
    "make namespaces": unshares,
    "use processor time without an end": never_ends,
}


def possible(before: Before) -> list[str]:
    """Return which deeds succeed."""
    return [name for name, deed in DEEDS.items() if _succeeds(deed, before)]


def _succeeds(deed: Callable[..., object], *arguments: object) -> bool:
    try:
        deed(*arguments)
    except (OSError, MemoryError, ValueError, OverflowError):
        return False
    return True
