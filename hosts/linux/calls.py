"""System calls, by the C library: those that Python itself does not offer, or not in every version.

Where the kernel refuses, its reason is raised.
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

from topos.base.errors import PillarboxError

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_NOSUID_NODEV, MS_NOSUID_NODEV_NOEXEC, MS_REC, MS_PRIVATE = 0x6, 0xE, 0x4000, 1 << 18
MS_BIND = 0x1000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_TIMERSLACK, PR_SET_NO_NEW_PRIVS = 1, 4, 29, 38
KEYCTL_JOIN_SESSION_KEYRING = 1
# System calls with the same number on every processor.
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_CLOSE_RANGE, SYS_PIDFD_GETFD = 428, 429, 436, 438
SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC, MOVE_MOUNT_F_EMPTY_PATH = 0x1, os.O_CLOEXEC, 0x4
SIOCETHTOOL, SO_ATTACH_FILTER = 0x8946, 26
F_SETSIG = 10  # of linux/fcntl.h
CLASSIC_INSTRUCTION_BYTES = 8

_libc = ctypes.CDLL(None, use_errno=True)


class HasFileno(Protocol):
    """What has a descriptor: sockets, pipes and other files."""

    def fileno(self) -> int:
        """Return it."""


AFile = TypeVar("AFile", bound="int | HasFileno")


def checked(result: int, deed: str) -> int:
    """Return what a call gave, or raise OSError for what was asked of the kernel."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot {deed}: {os.strerror(code)}")
    return result


def system_call(number: int, deed: str, *arguments: Any) -> int:
    """Make a system call by its number."""
    return checked(int(_libc.syscall(ctypes.c_long(number), *arguments)), deed)


# -- namespaces and processes ------------------------------------------------------------------


def enter(namespace: int, *, any_kind: bool = False) -> None:
    """Move this thread into a network namespace, or into one of any kind."""
    checked(_libc.setns(namespace, 0 if any_kind else CLONE_NEWNET), "enter the namespace")


def unshare(flags: int) -> None:
    """Leave namespaces shared with others for new ones."""
    if _libc.unshare(flags):
        why = os.strerror(ctypes.get_errno())
        raise PillarboxError(f"a namespace cannot be made: {why}; {more_rights()}")


def more_rights() -> str:
    """Return what to do if the kernel does not let this process make namespaces or mounts."""
    if os.geteuid():
        return "run it as root"
    return (
        "root has no CAP_SYS_ADMIN here: start the container with --privileged, or see "
        "docs/install.md for what is enough"
    )


def current_namespace() -> int:
    """Return an open file that stands for the calling thread's network namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def current_host_name() -> int:
    """Return an open file that stands for the calling thread's UTS namespace: its host name."""
    return os.open("/proc/thread-self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)


def new_host_name(name: str) -> int:
    """Return a new UTS namespace with that host name, as an open file; the thread stays outside."""
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
def _elsewhere(go: Callable[[], None]) -> Iterator[None]:
    """Be where `go` leads, and come back: a thread that could not leave has no way back to go."""
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
    """Be in a network namespace, and a UTS namespace: sockets made meanwhile stay there."""
    with _elsewhere(partial(enter, namespace)):
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


def nowhere() -> AbstractContextManager[None]:
    """Be in a new network namespace, which has no name and is gone when nothing holds it."""
    return _elsewhere(partial(unshare, CLONE_NEWNET))


def die_with_parent(number: int) -> None:
    """Ask the kernel for that signal when the parent process ends."""
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def end_with(lifeline: int) -> None:
    """Ask the kernel to kill this process when the last writer of a pipe ends.

    Unlike `die_with_parent` it works for any process that holds the pipe's reading end, whoever
    its parent is, and however this process is occupied or stopped by then.
    """
    flags = os.O_NONBLOCK | os.O_CLOEXEC
    own = os.open(f"/proc/self/fd/{lifeline}", flags)  # each process needs an open file of its own
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, flags | os.O_ASYNC)
    ended = select.poll()
    ended.register(own, 0)
    if ended.poll(0):  # the writer ended before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def confine() -> None:
    """Let this process gain no rights by any program, and no other of its user look into it."""
    checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "renounce new rights")
    checked(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "hide the process's memory")


def close_files(first: int) -> None:
    """Close all open files from that number on."""
    last = ctypes.c_ulong(0xFFFFFFFF)
    try:
        system_call(SYS_CLOSE_RANGE, "close files", ctypes.c_ulong(first), last, ctypes.c_ulong(0))
    except OSError:  # before Linux 5.9
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def leave_session_keyring() -> None:
    """Give this process an empty session keyring, so that it has none of its parent's keys."""
    number = SYS_KEYCTL.get(platform.machine())
    if number is not None:  # a kernel without keyrings has none to leave
        _libc.syscall(ctypes.c_long(number), KEYCTL_JOIN_SESSION_KEYRING, None)


def wake_punctually() -> None:
    """Let this thread's timers be late by no more than the kernel needs; 50 us are usual."""
    _libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def run_in_short_turns(turn_s: float = 1e-4) -> None:
    """Let this process have its share of the processors in short turns, and so have them sooner.

    Among processes that wait, the kernel runs the one first whose turn would end first (Linux 6.12;
    before, and where it does not let us, turns stay some milliseconds long).
    """
    number = SYS_SCHED_SETATTR.get(platform.machine())
    if number is not None:
        asked = struct.pack(
            "=IIQiIQQQ", 48, 0, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, int(turn_s * 1e9), 0, 0
        )
        _libc.syscall(ctypes.c_long(number), 0, asked, 0)


def shared_file(pidfd: int, descriptor: int) -> int:
    """Return another process's open file as one of this process (Linux 5.6)."""
    return system_call(SYS_PIDFD_GETFD, "share an open file", pidfd, descriptor, 0)


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _TimeSpec(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


def readable(files: Sequence[AFile], wait_s: float | None = 0.0) -> list[AFile]:
    """Wait until a file can be read or has ended, None: without limit; return those that can.

    `select.select` refuses descriptors above 1023, and `select.poll` counts in milliseconds.
    """
    descriptors = [each if isinstance(each, int) else each.fileno() for each in files]
    if min(descriptors, default=0) < 0:
        raise ValueError("a file to wait for is closed")
    asked = (_PollFd * len(files))(*(_PollFd(each, select.POLLIN, 0) for each in descriptors))
    end_s = None if wait_s is None else time.monotonic() + wait_s
    while True:
        left = None
        if end_s is not None:
            left_s = max(0.0, end_s - time.monotonic())
            left = ctypes.byref(_TimeSpec(int(left_s), int(left_s % 1 * 1e9)))
        ready = _libc.ppoll(asked, ctypes.c_ulong(len(files)), left, None)
        if ready >= 0:
            return [file for file, one in zip(files, asked, strict=True) if one.revents]
        if ctypes.get_errno() != errno.EINTR:  # a signal's handler has run by now
            checked(ready, "wait for a file")


# -- mounts ------------------------------------------------------------------------------------


def mount(source: str, place: str, kind: str, flags: int, data: bytes | None = None) -> None:
    """Mount a file system."""
    names = source.encode(), place.encode(), kind.encode() or None
    checked(_libc.mount(*names, ctypes.c_ulong(flags), data), f"mount {place}")


def mounted_tree(place: str) -> int:
    """Return an open file that stands for a copy of what is mounted at a place and below."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE
    return system_call(SYS_OPEN_TREE, f"keep {place}", AT_FDCWD, place.encode(), flags)


def mount_tree(tree: int, place: str) -> None:
    """Mount at a place what `mounted_tree` returned."""
    arguments = tree, b"", AT_FDCWD, place.encode(), MOVE_MOUNT_F_EMPTY_PATH
    system_call(SYS_MOVE_MOUNT, f"keep {place}", *arguments)


# -- sockets -----------------------------------------------------------------------------------


def bind_to_interface(port: socket.socket, index: int, ethertype: int) -> None:
    """Bind a packet socket to an interface by its index: Python knows only names, which change."""
    family, protocol = socket.AF_PACKET, socket.htons(ethertype)
    address = struct.pack("=HHiHBB8s", family, protocol, index, 0, 0, 0, b"")
    checked(_libc.bind(port.fileno(), address, len(address)), f"bind to interface {index}")


def attach_filter(port: socket.socket, program: bytes) -> None:
    """Let a socket keep only what a program of classic BPF keeps."""
    code = ctypes.create_string_buffer(program, len(program))
    length = len(program) // CLASSIC_INSTRUCTION_BYTES
    where = struct.pack("@HP", length, ctypes.addressof(code))
    port.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, where)


def ethtool(any_socket: socket.socket, interface: str, request: bytes) -> bytes:
    """Make a request of ethtool's about an interface; return it with the kernel's answer in it."""
    value = ctypes.create_string_buffer(request, len(request))
    where = struct.pack("@16sP16x", interface.encode(), ctypes.addressof(value))
    fcntl.ioctl(any_socket, SIOCETHTOOL, where)
    return value.raw
