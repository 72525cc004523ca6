"""Rights of Pillarbox's processes: each role keeps a minimum after its start.

A process starts with the rights of the command that started it, usually root's. When its sockets,
namespaces and files are open it calls `take_role`, which irrevocably drops all rights that `ROLES`
does not list for its role, for the process and all its children:

- capabilities leave the bounding, permitted, effective, inheritable and ambient sets;
- programs started by the process cannot gain rights (PR_SET_NO_NEW_PRIVS);
- if the kernel has Landlock (Linux 5.13), the process can no longer create, write or execute files,
  and can read only program code, /proc, /sys, /dev and the folders that it names. A process of user
  0 without capabilities still owns root's files, so dropping capabilities is not sufficient.

The process is renamed to its role: ``ps -e`` and ``pillarbox labs --processes`` show it.
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

from pillarbox.hosts.linux.calls import PR_SET_NO_NEW_PRIVS, checked_result, system_call

# Names of all Linux capabilities, in the order of their numbers in linux/capability.h.
CAPABILITIES = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid"),
    *("setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw"),
    *("ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct"),
    *("sys_admin", "sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod"),
    *("lease", "audit_write", "audit_control", "setfcap", "mac_override", "mac_admin", "syslog"),
    *("wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore"),
)
# Machine-wide capabilities that labs do not need: kernel modules, hardware, clock, policies.
# The capability audit_control is not among them, since sshd needs it.
MACHINE = (
    *("sys_module", "sys_rawio", "sys_boot", "sys_time", "sys_pacct", "sys_tty_config"),
    *("linux_immutable", "audit_read", "mac_override", "mac_admin", "syslog"),
    *("wake_alarm", "block_suspend"),
)
ALL = (1 << 64) - 1
PR_SET_NAME, PR_CAPBSET_READ, PR_CAPBSET_DROP = 15, 23, 24
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
CAPABILITY_VERSION = 0x20080522  # version 3 of capset(2): two 32-bit words per capability set
_HEADER, _SETS = struct.Struct("=Ii"), struct.Struct("=6I")

# Numbers of the Landlock system calls, the same on every processor.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION, RULE_PATH_BENEATH = 1, 1
READ_FILE, READ_DIRECTORY = 1 << 2, 1 << 3
FILE_RIGHTS = (13, 14, 15, 15, 16)  # number of file rights that each Landlock version knows
READABLE = ("/usr", "/lib", "/lib64", "/proc", "/sys", "/dev")

_libc = ctypes.CDLL(None, use_errno=True)


class ProcessRights(NamedTuple):
    """Capabilities and file rights that processes of one role (nursery, forwarder, ...) keep.

    Parameters
    ----------
    does : str
        Task of the processes with this role.
    capabilities : tuple of str
        Capabilities that the processes keep, named as in `CAPABILITIES`.
    files : bool
        True if the processes may create, write and execute files.
    user : str
        User of the processes: root, or "caller" for the caller of sudo ("nobody" without sudo).
    """

    does: str
    capabilities: tuple[str, ...] = ()
    files: bool = False
    user: str = "root"


# Capabilities of the nursery, which starts forwarders: for namespaces, interfaces, sockets, eBPF,
# priorities and the forwarders' own rights. The nursery also reads files of the user whose
# checkout or router it loads.
_NURSERY_CAPABILITIES = (
    *("sys_admin", "net_admin", "net_raw", "bpf", "perfmon", "sys_nice", "setpcap"),
    *("dac_override", "dac_read_search"),
)

ROLES: Mapping[str, ProcessRights] = {
    "sandbox": ProcessRights("first processes of a sandbox: wait for the lab, pass on signals"),
    "nursery": ProcessRights("starts forwarders", _NURSERY_CAPABILITIES, files=True),
    "heartbeats": ProcessRights("sends the heartbeats of all servers"),
    # A forwarder keeps net_admin to open and close ports when the network is resized.
    "forwarder": ProcessRights("routes the packets of a server", ("net_admin", "net_raw", "bpf")),
    "delays": ProcessRights(
        "holds late frames and those of cables with a delay", ("net_admin", "net_raw")
    ),
    "generator": ProcessRights("sends and receives the flows of a workload"),
    # CAP_NET_ADMIN lets iperf3 choose any TCP congestion control for its sockets.
    "iperf3": ProcessRights("sends and receives a flow", ("net_admin",), files=True),
    "watcher": ProcessRights("samples queues and processor time of a trial"),
    "canary": ProcessRights("measures scheduling and timer latency of a trial"),
    "capture": ProcessRights("writes captured frames into a file that is open"),
    "page": ProcessRights("serves the page; its terminals and graders", files=True, user="caller"),
    "metrics": ProcessRights("answers Prometheus with the counters of a lab"),
    "controller": ProcessRights("fills the flow tables of Open vSwitch"),
    # A pillarbox command may read and write files that belong to the caller of sudo.
    "command": ProcessRights(
        "a command that needs no lab: figures, reports, simulations",
        ("chown", "dac_override", "dac_read_search", "fowner"),
        files=True,
    ),
}
LONGEST_NAME = 15  # maximum length of a process name, in bytes
PREFIX = "pb-"


def take_role(role: str, readable: Iterable[str | Path] = (), *, rules: int | None = None) -> None:
    """Drop all capabilities and file rights of this process that its role in `ROLES` lacks.

    Parameters
    ----------
    role : str
        A key of `ROLES`.
    readable : iterable of str or Path
        Folders whose files the process reads later, in addition to program code.
    rules : int, optional
        Landlock ruleset of `ruleset_for_reading`, if many processes share the ruleset.
    """
    rights = ROLES[role]
    _libc.prctl(PR_SET_NAME, f"{PREFIX}{role}".encode()[:LONGEST_NAME], 0, 0, 0)
    keep_capabilities(rights.capabilities)
    if not rights.files:
        made = ruleset_for_reading(readable) if rules is None else rules
        if made is not None:
            system_call(RESTRICT_SELF, "use Landlock", made, 0)
            os.close(made)


def role_command_prefix(role: str) -> list[str]:
    """Return the command prefix (setpriv of util-linux) that grants only a role's capabilities.

    >>> role_command_prefix("iperf3")[1:]
    ['--bounding-set=-all,+net_admin', '--inh-caps=-all', '--no-new-privs', '--']
    """
    kept = ",".join(["-all", *(f"+{name}" for name in ROLES[role].capabilities)])
    return ["setpriv", f"--bounding-set={kept}", "--inh-caps=-all", "--no-new-privs", "--"]


def keep_capabilities(names: Iterable[str]) -> None:
    """Drop all capabilities but `names` from this thread and its children irrevocably."""
    kept = _capability_mask(names)
    _reduce_bounding_set(kept)
    _reduce_capability_sets(kept)
    checked_result(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "renounce new rights")


def give_up_capabilities(names: Iterable[str]) -> None:
    """Drop the named capabilities from this thread, its children and their programs."""
    kept = ALL & ~_capability_mask(names)
    _reduce_bounding_set(kept)
    _reduce_capability_sets(kept)


def limit_capabilities(names: Iterable[str] = ()) -> None:
    """Limit programs that this process starts from now on to the named capabilities."""
    _reduce_bounding_set(_capability_mask(names))


def drop_capabilities() -> None:
    """Drop this process's capabilities; keep the bounding set for programs that it starts."""
    _reduce_capability_sets(0)


def _capability_mask(names: Iterable[str]) -> int:
    """Return the bit mask of these Linux capabilities, given by name."""
    return sum(1 << CAPABILITIES.index(name) for name in names)


def _reduce_bounding_set(kept: int) -> None:
    """Reduce the capability bounding set to `kept`, or leave it without CAP_SETPCAP."""
    number = 0
    while (present := _libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if present and not kept >> number & 1:
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
        number += 1


def _reduce_capability_sets(kept: int) -> None:
    """Reduce the permitted and effective capabilities to `kept`; clear inheritable and ambient."""
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = _HEADER.pack(CAPABILITY_VERSION, 0)
    sets = ctypes.create_string_buffer(_SETS.size)
    checked_result(_libc.capget(header, sets), "read capabilities")
    _, low, _, _, high, _ = _SETS.unpack(sets.raw)
    low, high = low & kept, high & kept >> 32
    new = _SETS.pack(low, low, 0, high, high, 0)
    checked_result(_libc.capset(header, new), "give up capabilities")


PACKAGES = Path(__file__).resolve().parents[2]  # folder of topos, hosts and experiments


def ruleset_for_reading(readable: Iterable[str | Path] = ()) -> int | None:
    """Return the descriptor of a Landlock ruleset for reading files; None without Landlock.

    The ruleset allows reading of program code, /proc, /sys, /dev and these folders, and no other
    file access. Open files are not affected. Processes that are forked later can share the ruleset.
    """
    try:
        version = system_call(CREATE_RULESET, "use Landlock", None, ctypes.c_size_t(0), ASK_VERSION)
        handled = (1 << FILE_RIGHTS[min(version, len(FILE_RIGHTS)) - 1]) - 1
        attributes = handled.to_bytes(8, sys.byteorder)
        rules = system_call(
            CREATE_RULESET, "use Landlock", attributes, ctypes.c_size_t(len(attributes)), 0
        )
    except OSError:
        return None
    code = sys.prefix, sys.base_prefix, *sys.path, str(PACKAGES)
    for folder in {*READABLE, *code, *map(str, readable)} - {"/"}:
        with suppress(OSError):  # the readable folder is missing, or this process may not open it
            _allow_reading_folder(rules, folder)
    return rules


def _allow_reading_folder(rules: int, folder: str) -> None:
    """Add the permission to read a folder to a Landlock ruleset."""
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    rights = READ_FILE | (READ_DIRECTORY if Path(folder).is_dir() else 0)
    rule = rights.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder, signed=True)
    try:
        system_call(ADD_RULE, "use Landlock", rules, RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
