"""Rights of Pillarbox's processes: what each role keeps once it has started.

A process begins with the rights of the command that started it, mostly root's. As soon as its
sockets, namespaces and files are open it calls `take_role`, which gives up everything that
`ROLES` does not list for it, for the process and all its children, and cannot be undone:

- capabilities leave the bounding, permitted, effective, inheritable and ambient sets;
- no program that it starts can gain rights (PR_SET_NO_NEW_PRIVS);
- where the kernel has Landlock (Linux 5.13), it can no longer create, write or execute a file, and
  can read only program code, /proc, /sys, /dev and the folders that it names. A process of user 0
  without capabilities still owns root's files, so capabilities alone are not enough.

The process's name becomes the role's: ``ps -e`` and ``pillarbox labs --processes`` show it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hosts.linux.calls import PR_SET_NO_NEW_PRIVS, checked, system_call

# linux/capability.h, in the order of their numbers.
CAPABILITIES = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid"),
    *("setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw"),
    *("ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct"),
    *("sys_admin", "sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod"),
    *("lease", "audit_write", "audit_control", "setfcap", "mac_override", "mac_admin", "syslog"),
    *("wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore"),
)
# Capabilities over the whole machine that no lab needs: kernel modules, hardware, clock, policies.
# sshd needs audit_control.
MACHINE = (
    *("sys_module", "sys_rawio", "sys_boot", "sys_time", "sys_pacct", "sys_tty_config"),
    *("linux_immutable", "audit_read", "mac_override", "mac_admin", "syslog"),
    *("wake_alarm", "block_suspend"),
)
ALL = (1 << 64) - 1
PR_SET_NAME, PR_CAPBSET_READ, PR_CAPBSET_DROP = 15, 23, 24
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
CAPABILITY_VERSION = 0x20080522  # two words of 32 bits for each set
_HEADER, _SETS = struct.Struct("=Ii"), struct.Struct("=6I")

# Landlock: its system calls have the same number on every processor.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION, RULE_PATH_BENEATH = 1, 1
READ_FILE, READ_DIRECTORY = 1 << 2, 1 << 3
FILE_RIGHTS = (13, 14, 15, 15, 16)  # number of rights that each Landlock version knows
READABLE = ("/usr", "/lib", "/lib64", "/proc", "/sys", "/dev")

_libc = ctypes.CDLL(None, use_errno=True)


class Role(NamedTuple):
    """The rights that a role's processes keep.

    Parameters
    ----------
    does : str
        The task of such a process.
    capabilities : tuple of str
        Capabilities it keeps, named as in `CAPABILITIES`.
    files : bool
        Whether it may still create, write and execute files.
    user : str
        The user it runs as: root, or "caller", who called sudo (nobody where root itself did).
    """

    does: str
    capabilities: tuple[str, ...] = ()
    files: bool = False
    user: str = "root"


# Namespaces of servers, their interfaces and sockets, eBPF, priorities, the rights of forwarders;
# and files of the user whose checkout or router it loads.
_STARTING = (
    *("sys_admin", "net_admin", "net_raw", "bpf", "perfmon", "sys_nice", "setpcap"),
    *("dac_override", "dac_read_search"),
)

ROLES: Mapping[str, Role] = {
    "sandbox": Role("first processes of a sandbox: wait for the lab, pass on signals"),
    "nursery": Role("starts forwarders", _STARTING, files=True),
    "heart-beats": Role("sends the heart-beats of all servers"),
    # It opens and closes ports when the network grows or shrinks.
    "forwarder": Role("routes the packets of a server", ("net_admin", "net_raw", "bpf")),
    "delays": Role("holds the frames of cables with a delay", ("net_admin", "net_raw")),
    "generator": Role("sends and receives the flows of a workload"),
    # The kernel lets it choose any congestion control for its sockets.
    "iperf3": Role("sends and receives a flow", ("net_admin",), files=True),
    "watcher": Role("samples queues and processor time of a trial"),
    "canary": Role("measures scheduling and timer latency of a trial"),
    "capture": Role("writes captured frames into a file that is open"),
    "page": Role("serves the page; its terminals and graders", files=True, user="caller"),
    "metrics": Role("answers Prometheus with the counters of a lab"),
    "controller": Role("fills the flow tables of Open vSwitch"),
    # The files that it reads and writes may belong to the user who called sudo.
    "command": Role(
        "a command that needs no lab: figures, reports, simulations",
        ("chown", "dac_override", "dac_read_search", "fowner"),
        files=True,
    ),
}
LONGEST_NAME = 15  # bytes of a process's name
PREFIX = "pb-"


def take_role(role: str, readable: Iterable[str | Path] = (), *, rules: int | None = None) -> None:
    """Give up every right that `ROLES` does not list for the role.

    Parameters
    ----------
    role : str
        A key of `ROLES`.
    readable : iterable of str or Path
        Folders whose files the process reads later, besides program code.
    rules : int, optional
        What `rules_for_reading` returned, where many processes share it.
    """
    rights = ROLES[role]
    _libc.prctl(PR_SET_NAME, f"{PREFIX}{role}".encode()[:LONGEST_NAME], 0, 0, 0)
    keep_capabilities(rights.capabilities)
    if not rights.files:
        made = rules_for_reading(readable) if rules is None else rules
        if made is not None:
            system_call(RESTRICT_SELF, "use Landlock", made, 0)
            os.close(made)


def as_role(role: str) -> list[str]:
    """Return the words before a command that is started with a role's capabilities (util-linux).

    >>> as_role("iperf3")[1:]
    ['--bounding-set=-all,+net_admin', '--inh-caps=-all', '--no-new-privs', '--']
    """
    kept = ",".join(["-all", *(f"+{name}" for name in ROLES[role].capabilities)])
    return ["setpriv", f"--bounding-set={kept}", "--inh-caps=-all", "--no-new-privs", "--"]


def keep_capabilities(names: Iterable[str]) -> None:
    """Give up all capabilities but these, for the calling thread and its children, for ever."""
    kept = _mask(names)
    _bound(kept)
    _hold(kept)
    checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "renounce new rights")


def give_up_capabilities(names: Iterable[str]) -> None:
    """Give up these capabilities, for the calling thread, its children and their programs."""
    kept = ALL & ~_mask(names)
    _bound(kept)
    _hold(kept)


def bound_capabilities(names: Iterable[str] = ()) -> None:
    """Let programs that are started from now on have these capabilities at most."""
    _bound(_mask(names))


def drop_capabilities() -> None:
    """Give up all capabilities; the bounding set, which programs need to start, stays."""
    _hold(0)


def _mask(names: Iterable[str]) -> int:
    return sum(1 << CAPABILITIES.index(name) for name in names)


def _bound(kept: int) -> None:
    """Reduce the bounding set; without CAP_SETPCAP it stays as it is."""
    number = 0
    while (held := _libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if held and not kept >> number & 1:
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
        number += 1


def _hold(kept: int) -> None:
    """Reduce the permitted and effective sets; nothing stays inheritable or ambient."""
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = _HEADER.pack(CAPABILITY_VERSION, 0)
    sets = ctypes.create_string_buffer(_SETS.size)
    checked(_libc.capget(header, sets), "read capabilities")
    _, low, _, _, high, _ = _SETS.unpack(sets.raw)
    low, high = low & kept, high & kept >> 32
    new = _SETS.pack(low, low, 0, high, high, 0)
    checked(_libc.capset(header, new), "give up capabilities")


def rules_for_reading(readable: Iterable[str | Path] = ()) -> int | None:
    """Return a Landlock ruleset, as an open file; None where the kernel has no Landlock.

    It allows to open files for reading only: code, /proc, /sys, /dev, and these folders. Files that
    are open stay as they are. Processes that are forked later can share it.
    """
    try:
        version = system_call(CREATE_RULESET, "use Landlock", None, ctypes.c_size_t(0), ASK_VERSION)
        handled = (1 << FILE_RIGHTS[min(version, len(FILE_RIGHTS)) - 1]) - 1
        asked = handled.to_bytes(8, sys.byteorder)
        rules = system_call(CREATE_RULESET, "use Landlock", asked, ctypes.c_size_t(len(asked)), 0)
    except OSError:
        return None
    for folder in {*READABLE, sys.prefix, sys.base_prefix, *sys.path, *map(str, readable)} - {"/"}:
        with suppress(OSError):  # it is missing, or not for this user
            _allow_reading(rules, folder)
    return rules


def _allow_reading(rules: int, folder: str) -> None:
    place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    rights = READ_FILE | (READ_DIRECTORY if Path(folder).is_dir() else 0)
    rule = rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder, signed=True)
    try:
        system_call(ADD_RULE, "use Landlock", rules, RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(place)
