"""System calls through the C library that Python does not offer, or not in every version.

A failed call raises OSError with the kernel's reason.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.topos.base.errors import NotPermittedError

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID_NODEV, MS_NOSUID_NODEV_NOEXEC, MS_REC, MS_PRIVATE = 0x6, 0xE, 0x4000, 1 << 18
MS_BIND = 0x1000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_TIMERSLACK, PR_SET_NO_NEW_PRIVS = 1, 4, 29, 38
KEYCTL_JOIN_SESSION_KEYRING = 1
# Numbers of Linux system calls that are the same on every processor.
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_CLOSE_RANGE, SYS_PIDFD_GETFD = 428, 429, 436, 438
SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC, MOVE_MOUNT_F_EMPTY_PATH = 0x1, os.O_CLOEXEC, 0x4
SIOCETHTOOL, SO_ATTACH_FILTER = 0x8946, 26
F_SETSIG = 10  # command of fcntl(2) that chooses the signal for a ready file (linux/fcntl.h)
CLASSIC_INSTRUCTION_BYTES = 8

_libc = ctypes.CDLL(None, use_errno=True)


class HasFileno(Protocol):
    """An object with a file descriptor: socket, pipe or other file."""

    def fileno(self) -> int:
        """Return the file descriptor of the open file."""


AFile = TypeVar("AFile", bound="int | HasFileno")


def checked_result(result: int, action: str) -> int:
    """Return a C function's result, or raise OSError with the failed `action` if it is negative."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot {action}: {os.strerror(code)}")
    return result


def system_call(number: int, action: str, *arguments: Any) -> int:
    """Execute a system call by its number and return its checked result."""
    return checked_result(int(_libc.syscall(ctypes.c_long(number), *arguments)), action)


# -- namespaces and processes ------------------------------------------------------------------


def enter(namespace: int, *, any_kind: bool = False) -> None:
    """Move this thread into a network namespace, or with `any_kind` into any namespace."""
    checked_result(_libc.setns(namespace, 0 if any_kind else CLONE_NEWNET), "enter the namespace")


def unshare(flags: int) -> None:
    """Move this process into new namespaces (CLONE_NEW flags)."""
    if _libc.unshare(flags):
        why = os.strerror(ctypes.get_errno())
        raise NotPermittedError(
            f"this process may not create a namespace: {why}; {more_rights_hint()}"
        )


def more_rights_hint() -> str:
    """Return the hint for users whose process may not create namespaces or mount file systems."""
    if os.geteuid():
        return "run it as root"
    return (
        "root has no CAP_SYS_ADMIN here: start the container with --privileged, or see "
        "docs/install.md for what is enough"
    )


def current_namespace() -> int:
    """Return a file descriptor of the calling thread's network namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def current_host_name() -> int:
    """Return a file descriptor of the calling thread's UTS namespace, which holds its host name."""
    return os.open("/proc/thread-self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)


def new_host_name(name: str) -> int:
    """Create a UTS namespace with a host name; return its file descriptor without entering it."""
    home = current_host_name()
    try:
        unshare(CLONE_NEWUTS)
        try:
            socket.sethostname(name)
            return current_host_name()
        finally:
            enter(home, any_kind=True)
    finally:
        os.close(home)


@contextmanager
def _namespace_context(go: Callable[[], None]) -> Iterator[None]:
    """Context manager: enter other namespaces by calling `go`, and leave them afterwards."""
    home = current_namespace()
    try:
        go()
        try:
            yield
        finally:
            enter(home)
    finally:
        os.close(home)


@contextmanager
def inside(namespace: int, host_name: int | None = None) -> Iterator[None]:
    """Context manager: run code in a network and a UTS namespace; its sockets stay in them."""
    with _namespace_context(partial(enter, namespace)):
        if host_name is None:
            yield
            return
        home = current_host_name()
        try:
            enter(host_name, any_kind=True)
            yield
        finally:
            enter(home, any_kind=True)
            os.close(home)


def in_new_namespace() -> AbstractContextManager[None]:
    """Return a context inside a new unnamed network namespace, freed after its last use."""
    return _namespace_context(partial(unshare, CLONE_NEWNET))


def die_with_parent(number: int) -> None:
    """Let the kernel send this process the signal `number` when its parent process ends."""
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def die_with_last_writer(lifeline: int) -> None:
    """Let the kernel kill this process when the last writer of the pipe `lifeline` ends.

    Unlike `die_with_parent` it works for any process that holds the pipe's reading end, whatever
    its parent, and even if this process is busy or stopped.
    """
    flags = os.O_NONBLOCK | os.O_CLOEXEC
    # The pipe is opened again, since signal settings belong to the open file, not the descriptor.
    own = os.open(f"/proc/self/fd/{lifeline}", flags)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, flags | os.O_ASYNC)
    ended = select.poll()
    ended.register(own, 0)
    if ended.poll(0):  # the last writer of the lifeline ended before the signal was set
        os.kill(os.getpid(), signal.SIGKILL)


def forbid_new_rights() -> None:
    """Prevent this process from gaining rights, and other processes from reading its memory."""
    checked_result(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "renounce new rights")
    checked_result(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "hide the process's memory")


def close_files(first: int) -> None:
    """Close all file descriptors of this process from number `first` on."""
    last = ctypes.c_ulong(0xFFFFFFFF)
    try:
        system_call(SYS_CLOSE_RANGE, "close files", ctypes.c_ulong(first), last, ctypes.c_ulong(0))
    except OSError:  # Linux older than 5.9 has no close_range
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def leave_session_keyring() -> None:
    """Give this process an empty session keyring, so that it has none of its parent's keys."""
    number = SYS_KEYCTL.get(platform.machine())
    if number is not None:  # errors are ignored: some kernels have no keyrings
        _libc.syscall(ctypes.c_long(number), KEYCTL_JOIN_SESSION_KEYRING, None)


def minimise_timer_slack() -> None:
    """Reduce this thread's timer slack (wake-up delay) to the minimum; default: 50 us."""
    _libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def request_short_time_slices(turn_s: float = 1e-4) -> None:
    """Request short scheduler time slices, which reduce the wake-up latency of this process.

    Among waiting processes, the kernel first runs the process whose slice ends first (Linux 6.12).
    With older kernels or without permission, slices stay some milliseconds long.
    """
    number = SYS_SCHED_SETATTR.get(platform.machine())
    if number is not None:
        attributes = struct.pack(
            "=IIQiIQQQ", 48, 0, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, int(turn_s * 1e9), 0, 0
        )
        _libc.syscall(ctypes.c_long(number), 0, attributes, 0)


def duplicate_from_process(pidfd: int, descriptor: int) -> int:
    """Duplicate the file descriptor of another process (pidfd_getfd, Linux 5.6)."""
    return system_call(SYS_PIDFD_GETFD, "share an open file", pidfd, descriptor, 0)


class _PollFd(ctypes.Structure):
    """The C structure pollfd of the system call poll(2)."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _TimeSpec(ctypes.Structure):
    """The C structure timespec: a time in seconds and nanoseconds."""

    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


def readable(files: Sequence[AFile], wait_s: float | None = 0.0) -> list[AFile]:
    """Wait until any of these files is readable or at its end; return all such files.

    The wait is limited to `wait_s` seconds (None: no limit). Unlike this function, `select.select`
    rejects descriptors above 1023, and `select.poll` has a resolution of a millisecond.
    """
    descriptors = [each if isinstance(each, int) else each.fileno() for each in files]
    if min(descriptors, default=0) < 0:
        raise ValueError("a file to wait for is closed")
    polled = (_PollFd * len(files))(*(_PollFd(each, select.POLLIN, 0) for each in descriptors))
    end_s = None if wait_s is None else time.monotonic() + wait_s
    while True:
        left = None
        if end_s is not None:
            left_s = max(0.0, end_s - time.monotonic())
            left = ctypes.byref(_TimeSpec(int(left_s), int(left_s % 1 * 1e9)))
        ready = _libc.ppoll(polled, ctypes.c_ulong(len(files)), left, None)
        if ready >= 0:
            return [file for file, entry in zip(files, polled, strict=True) if entry.revents]
        if ctypes.get_errno() != errno.EINTR:  # EINTR: a signal interrupted poll(2)
            checked_result(ready, "wait for a file")


# -- mounts ------------------------------------------------------------------------------------


def mount(source: str, place: str, kind: str, flags: int, data: bytes | None = None) -> None:
    """Mount a file system at a path (mount(2))."""
    names = source.encode(), place.encode(), kind.encode() or None
    checked_result(_libc.mount(*names, ctypes.c_ulong(flags), data), f"mount {place}")


def copy_mount_tree(place: str) -> int:
    """Copy the mount tree at a path (open_tree(2)); return the copy's file descriptor."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE
    return system_call(SYS_OPEN_TREE, f"keep {place}", AT_FDCWD, place.encode(), flags)


def attach_mount_tree(tree: int, place: str) -> None:
    """Mount a tree returned by `copy_mount_tree` at a path (move_mount(2))."""
    arguments = tree, b"", AT_FDCWD, place.encode(), MOVE_MOUNT_F_EMPTY_PATH
    system_call(SYS_MOVE_MOUNT, f"keep {place}", *arguments)


# -- sockets -----------------------------------------------------------------------------------


def bind_to_interface(port: socket.socket, index: int, ethertype: int) -> None:
    """Bind a packet socket to an interface by index; Python can bind only by name."""
    family, protocol = socket.AF_PACKET, socket.htons(ethertype)
    address = struct.pack("=HHiHBB8s", family, protocol, index, 0, 0, 0, b"")
    checked_result(_libc.bind(port.fileno(), address, len(address)), f"bind to interface {index}")


def attach_filter(port: socket.socket, program: bytes) -> None:
    """Attach a classic BPF program as the receive filter of a socket."""
    code = ctypes.create_string_buffer(program, len(program))
    length = len(program) // CLASSIC_INSTRUCTION_BYTES
    where = struct.pack("@HP", length, ctypes.addressof(code))
    port.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, where)


def set_buffer_bytes(taker: socket.socket, size: int, *, sending: bool = True) -> None:
    """Set the size of a socket's receive buffer, and with `sending` of its send buffer, in bytes.

    Only root of the machine may exceed the limits net.core.rmem_max and wmem_max.
    """
    options = [(nl.SO_RCVBUFFORCE, socket.SO_RCVBUF)]
    options += [(nl.SO_SNDBUFFORCE, socket.SO_SNDBUF)] if sending else []
    for by_root, limited in options:
        try:
            taker.setsockopt(socket.SOL_SOCKET, by_root, size)
        except PermissionError:
            taker.setsockopt(socket.SOL_SOCKET, limited, size)


def ethtool(any_socket: socket.socket, interface: str, request: bytes) -> bytes:
    """Execute an ethtool request for an interface; return the kernel's answer."""
    value = ctypes.create_string_buffer(request, len(request))
    where = struct.pack("@16sP16x", interface.encode(), ctypes.addressof(value))
    fcntl.ioctl(any_socket, SIOCETHTOOL, where)
    return value.raw
