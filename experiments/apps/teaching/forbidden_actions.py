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
UNSHARE_NOTHING = 1  # empty unshare() flags: EINVAL if the system call is allowed
DISCARD_PORT = 9
# Addresses to which a sealed child tries UDP connect(): this machine, and one of RFC 5737.
ADDRESSES = ("127.0.0.1", "192.0.2.1")

_libc = ctypes.CDLL(None, use_errno=True)


class StateBeforeSeal(NamedTuple):
    """A child process's user, keeper and limits before sealing, for trying forbidden actions."""

    user: int
    keeper: int
    file: str  # a file that the grader may read but a sealed child may not
    memory_bytes: int


def try_to_open_files(before: StateBeforeSeal) -> None:
    """Try to open a file, which the seal has to prevent."""
    for place, flags in (
        (before.file, os.O_RDONLY),
        ("/", os.O_RDONLY),
        ("/dev/null", os.O_WRONLY),
    ):
        if _succeeds(os.open, place, flags):
            return
    raise PermissionError


def try_to_change_file_attributes(before: StateBeforeSeal) -> None:
    """Try to change a file's attributes, which the seal has to prevent; no file is changed."""
    if os.geteuid() != before.user:
        raise PermissionError  # sealed children run as a user who owns no file
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


def try_to_connect_udp(_: StateBeforeSeal) -> None:
    """Try to connect a UDP socket, which the seal has to prevent; no packet is sent."""
    for address in ADDRESSES:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            if _succeeds(udp.connect, (address, DISCARD_PORT)):
                return
    raise PermissionError


def try_to_create_unix_socket(_: StateBeforeSeal) -> None:
    """Try to create a Unix socket, which the seal has to prevent."""
    socket.socket(socket.AF_UNIX).close()


def try_to_control_keeper(before: StateBeforeSeal) -> None:
    """Try to signal, slow down or limit the keeper process, without changing its values."""
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


def try_to_fork(_: StateBeforeSeal) -> None:
    """Try to start a process, which the seal has to prevent."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def try_to_exceed_memory_limit(before: StateBeforeSeal) -> None:
    """Try to exceed a sealed child's memory limit, in user space or in the kernel."""
    if _succeeds(lambda: mmap.mmap(-1, 2 * before.memory_bytes).close()):
        return
    if _succeeds(lambda: os.close(os.memfd_create("more"))):
        return
    segment = _libc.shmget(IPC_PRIVATE, A_PAGE, 0o600)
    if segment < 0:
        raise PermissionError
    _libc.shmctl(segment, IPC_RMID, None)


def try_to_create_namespaces(_: StateBeforeSeal) -> None:
    """Try to create namespaces, which give root's rights inside; the seal has to prevent this."""
    _libc.unshare(UNSHARE_NOTHING)
    if ctypes.get_errno() != errno.EINVAL:
        raise PermissionError


def check_cpu_time_limit(_: StateBeforeSeal) -> None:
    """Raise PermissionError if the seal limits the CPU time of this process."""
    if resource.getrlimit(resource.RLIMIT_CPU)[1] != resource.RLIM_INFINITY:
        raise PermissionError


# Functions that try the forbidden actions, by the action's name in the grading report.
FORBIDDEN_ACTIONS: dict[str, Callable[[StateBeforeSeal], None]] = {
    "open other files": try_to_open_files,
    "change files of the grading user": try_to_change_file_attributes,
    "use the network": try_to_connect_udp,
    "connect to other programs": try_to_create_unix_socket,
    "signal or slow down other processes": try_to_control_keeper,
    "start processes": try_to_fork,
    "exceed its memory limit": try_to_exceed_memory_limit,
    "create namespaces": try_to_create_namespaces,
    "use unlimited processor time": check_cpu_time_limit,
}


def possible_actions(before: StateBeforeSeal) -> list[str]:
    """Try all forbidden actions; return the names of those that the seal does not prevent."""
    return [name for name, deed in FORBIDDEN_ACTIONS.items() if _succeeds(deed, before)]


def _succeeds(deed: Callable[..., object], *arguments: object) -> bool:
    try:
        deed(*arguments)
    except (OSError, MemoryError, ValueError, OverflowError):
        return False
    return True
