"""Layers of a child's seal: one function per layer, each irreversible.

========== ========================================================================
limits     processor time, address space, open files; no processes, files or dumps
user       as root: a separate user for each child
namespaces as root: no network, no mounts and no System V IPC of others (the keeper's)
landlock   only Python's own library can be opened
calls      only the system calls that a computing program needs (libseccomp)
========== ========================================================================

A judge (judge.py), which reads students' files but does not run them, uses `limit_judge`,
`landlock` and `calls`. A compiler of students' files (control_compiler.py) uses all but `calls`.

An unavailable layer raises OSError. This module does not decide which layers a machine needs: the
actions that remain possible are tried (forbidden_actions.py). libseccomp maps the names of system
calls to their numbers on this processor: docs/adr/0008-sealing.md.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import termios
from collections.abc import Sequence
from functools import cache

# First user ID of sealed children (one per process), in a range that systemd leaves unused.
FIRST_USER = 1_900_000_000
NOBODY = 65534
OPEN_FILES = 32

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWNET = 0x00020000, 0x08000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
CAPABILITY_VERSION = 0x20080522  # version 3 of capset(2)

# Numbers of Landlock's system calls, which are the same on every processor architecture.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION, RULE_PATH_BENEATH = 1, 1
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
TCP_BIND_AND_CONNECT, ABSTRACT_SOCKETS_AND_SIGNALS = 0b11, 0b11
# Number of file access rights in each Landlock version, from version 1.
FILE_RIGHTS = (13, 14, 15, 15, 16)

# Constants of libseccomp's seccomp.h: https://github.com/seccomp/libseccomp
LIBRARY = "libseccomp.so.2"
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
EQUAL, MASKED_EQUAL = 4, 7
# System calls that a sealed process may use to compute, import, sleep and answer over a socket.
CALLS = """
    read readv pread64 write writev close lseek fstat stat lstat newfstatat statx access faccessat
    faccessat2 readlink readlinkat getdents64 getcwd dup
    mmap munmap mprotect mremap madvise brk
    recvfrom recvmsg sendto sendmsg shutdown getsockname getpeername getsockopt poll ppoll select
    pselect6 futex restart_syscall sched_yield sched_getaffinity
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack
    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getrusage
    getrandom getpid getppid gettid getuid geteuid getgid getegid getgroups getrlimit uname sysinfo
    set_robust_list rseq arch_prctl exit exit_group
""".split()  # noqa: SIM905 - read as words
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | (os.O_TMPFILE & ~os.O_DIRECTORY)
FILE_COMMANDS = (fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_DUPFD_CLOEXEC)

_libc = ctypes.CDLL(None, use_errno=True)


def limits(cpu_s: int, memory_bytes: int) -> None:
    """Limit a sealed child's CPU time, memory and files; forbid new processes and core dumps."""
    limit_judge(cpu_s, memory_bytes)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def limit_judge(cpu_s: int, memory_bytes: int, written_bytes: int = 0) -> None:
    """Limit a judge's CPU time, additional memory and size of written files; forbid core dumps."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    memory = _address_space_bytes() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (written_bytes, written_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def user() -> None:
    """Change this process from root to an unprivileged user that runs no other process."""
    if os.geteuid() != 0:
        raise PermissionError(errno.EPERM, "the grader is not root")
    try:
        os.setgroups([])
    except PermissionError:
        # A lab without root has no other user: its user namespace gives rights to user 0, however.
        _drop_capabilities()
        raise PermissionError(errno.EPERM, "a lab without root has no other user") from None
    number = FIRST_USER + os.getpid()
    try:
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
    except OSError:  # A container may lack this user ID; the process must not stay root.
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        raise


def _drop_capabilities() -> None:
    """Drop all capabilities of this process."""
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    _checked_system_call(_libc.capset(header, bytes(24)))


def namespaces() -> None:
    """Move this process to new namespaces for network, mounts and IPC."""
    _checked_system_call(_libc.unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS))


def hide_memory() -> None:
    """Prevent processes without root's rights from reading this process's memory."""
    _checked_system_call(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; a change of user resets this."""
    _checked_system_call(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)


def landlock(readable: Sequence[str], rights: int = READ_FILE | READ_DIR) -> None:
    """Restrict this process with Landlock: it has these rights to files in these folders only."""
    _checked_system_call(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    version = _checked_system_call(
        _libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ASK_VERSION)
    )
    words = [(1 << FILE_RIGHTS[min(version, len(FILE_RIGHTS)) - 1]) - 1]
    if version >= 4:
        words.append(TCP_BIND_AND_CONNECT)
    if version >= 6:
        words.append(ABSTRACT_SOCKETS_AND_SIGNALS)
    asked = (ctypes.c_uint64 * len(words))(*words)
    rules = _checked_system_call(
        _libc.syscall(CREATE_RULESET, asked, ctypes.c_size_t(ctypes.sizeof(asked)), 0)
    )
    for folder in readable:
        place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = rights.to_bytes(8, sys.byteorder)
        rule += place.to_bytes(4, sys.byteorder, signed=True)
        _checked_system_call(_libc.syscall(ADD_RULE, rules, RULE_PATH_BENEATH, rule, 0))
        os.close(place)
    _checked_system_call(_libc.syscall(RESTRICT_SELF, rules, 0))
    os.close(rules)


class _Condition(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


@cache
def _filter(asks: bool = False) -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """Return libseccomp and a system call filter that is ready to load.

    With `asks` the filter also allows the system calls for talking to sealed children.
    """
    library = ctypes.CDLL(LIBRARY, use_errno=True)  # raises OSError if libseccomp is missing
    library.seccomp_init.restype = ctypes.c_void_p
    made = ctypes.c_void_p(library.seccomp_init(REFUSE))
    opens = _Condition(1, MASKED_EQUAL, WRITING, 0), _Condition(2, MASKED_EQUAL, WRITING, 0)
    for name in CALLS:
        _allow(library, made, name)
    _allow(library, made, "open", opens[0])
    _allow(library, made, "openat", opens[1])
    # The filter allows fcntl without F_SETOWN, which can send signals to other processes.
    for command in FILE_COMMANDS:
        _allow(library, made, "fcntl", _Condition(1, EQUAL, command, 0))
    # The filter allows prlimit64 only for reading the process's own limits.
    _allow(library, made, "prlimit64", _Condition(0, EQUAL, 0, 0), _Condition(2, EQUAL, 0, 0))
    if asks:
        _allow(library, made, "socketpair", _Condition(0, EQUAL, socket.AF_UNIX, 0))
        _allow(library, made, "ioctl", _Condition(1, EQUAL, termios.FIONBIO, 0))
        _allow(library, made, "wait4")
    return library, made


def _allow(library: ctypes.CDLL, made: ctypes.c_void_p, name: str, *conditions: _Condition) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number < 0:
        return  # This processor architecture lacks the system call, so that no rule is needed.
    given = (_Condition * len(conditions))(*conditions)
    done = library.seccomp_rule_add_array(made, ALLOW, number, len(conditions), given)
    if done < 0:
        raise OSError(-done, f"{LIBRARY} cannot allow {name}: {os.strerror(-done)}")


def prepare_calls(*, asks: bool = False) -> None:
    """Build the system call filter in advance: a sealed process cannot open libseccomp."""
    _filter(asks)


def calls(*, asks: bool = False) -> None:
    """Load the filter of system calls: the kernel then refuses all but the allowed calls."""
    library, made = _filter(asks)
    done = library.seccomp_load(made)
    if done < 0:
        raise OSError(-done, os.strerror(-done))


def _checked_system_call(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as statm:  # noqa: PTH123
        return int(statm.read().split()[0]) * resource.getpagesize()
