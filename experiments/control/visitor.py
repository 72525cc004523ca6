"""A shell that may be given to others: it has the rights of who called sudo, or nobody's."""

from __future__ import annotations

import os
import pwd
import resource
import signal

from experiments.linux.namespaces import write_sysctl
from hosts.linux.calls import confine, die_with_parent

SHELL = ("bash", "--norc")
# What the page's terminal understands (web/screen.js) is what the console of Linux does.
SETTINGS = {"TERM": "linux", "PS1": r"\h:\w\$ ", "LANG": "C.UTF-8"}
PINGS = "net/ipv4/ping_group_range"  # who may ping without rights
EVERYBODY = "0 2147483647"
MOST_OPEN_FILES = 512


def give_up_rights() -> None:
    """Become the user who called sudo, or nobody, for ever: no capability, few open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_OPEN_FILES, MOST_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
        ids = (int(uid), int(gid)) if uid.isdecimal() and gid.isdecimal() and int(uid) else None
        uid_number, gid_number = ids or (user.pw_uid, user.pw_gid)
        os.setgroups([])
        os.setresgid(gid_number, gid_number, gid_number)
        os.setresuid(uid_number, uid_number, uid_number)
    confine()
    die_with_parent(signal.SIGKILL)  # a change of user would have undone it


def settle() -> None:
    """Be such a shell's process, inside a server: what comes next is `SHELL`."""
    write_sysctl(PINGS, EVERYBODY)
    os.chdir("/tmp")
    give_up_rights()
    for name in [name for name in os.environ if name.startswith("SUDO_")]:
        del os.environ[name]
    os.environ.update(SETTINGS)
