"""Sandbox of a lab: namespaces that vanish with the lab and isolate it from the machine.

A sandbox has its own pid, network, mount, IPC and UTS namespaces. ::

        outer          the original process: waits, passes signals in and the exit code out
          init         first process of the sandbox: reaps orphans, dies with the outer process
            program    the program, which continues where it called `enter`

Whichever of the three is killed, even with ``kill -9``, the kernel then kills every process in the
sandbox; its network namespaces, bridges, cables and mounts are removed with the last process.
Entering takes about 20 ms.

All three processes stay in the terminal's process group: Ctrl-C reaches only the program, since the
other two ignore it, and Ctrl-Z and ``fg`` work as usual. Inside, /proc shows the sandbox's
processes and /sys its network; cgroups and other mounts below /sys stay. /run/netns and
/run/openvswitch are the sandbox's own, so that ``ip netns`` and Open vSwitch see no other lab's
objects; /tmp is private only on request, for programs such as ``mn`` that clear it.

Host names are resolved by the sandbox's own /etc/hosts: no name server can be reached from inside,
and a DNS query would wait for its timeout. `name_hosts` changes that file. A program that changes
its host name changes the sandbox's, never the machine's.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from pillarbox.experiments.base.files import private_folder, runtime_folder
from pillarbox.experiments.lab.linux import cgroups
from pillarbox.experiments.lab.linux.namespaces import write_sysctl
from pillarbox.hosts.linux import user_namespace
from pillarbox.hosts.linux.calls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUTS,
    MS_BIND,
    MS_NOSUID_NODEV,
    MS_NOSUID_NODEV_NOEXEC,
    MS_PRIVATE,
    MS_REC,
    attach_mount_tree,
    copy_mount_tree,
    die_with_parent,
    more_rights_hint,
    mount,
    readable,
    unshare,
)
from pillarbox.hosts.linux.rights import MACHINE, give_up_capabilities, take_role
from pillarbox.topos.base.errors import PillarboxError

PASSED_IN = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
WAITED_FOR = {*PASSED_IN, signal.SIGCHLD}
# signals of Ctrl-C and Ctrl-\, which the program inside the sandbox also receives
IGNORED = {signal.SIGINT, signal.SIGQUIT}
# Environment variable with the sandbox's pid namespace, so that a copy in another namespace has
# no effect.
INSIDE = "PILLARBOX_SANDBOX"
PRIVATE = ("/run/netns", "/run/openvswitch")
# Folder of a sandbox's own hosts and resolv.conf, mounted over the machine's in /etc.
NAMES = runtime_folder() / "etc"
# Restrictions of a lab of an ordinary user, in a user namespace.
WITHOUT_ROOT = (
    "without root: every packet passes through Python instead of eBPF, heartbeats have no "
    "real-time priority, and --no-sandbox, --machines, --cluster, Open vSwitch, eBPF congestion "
    "controls, ECN queues and reordering faults are refused; sudo permits all of it"
)
SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/bridge/bridge-nf-call-arptables": "0",
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
}


def inside() -> bool:
    """Return True if this process runs in Pillarbox's sandbox: own mount and pid namespaces."""
    return os.environ.get(INSIDE) == _pid_namespace()


def enter(*, private_tmp: bool = False, nested: bool = False) -> None:
    """Continue in a sandbox of Linux namespaces: only the program inside returns from this call.

    Call it before this process runs anything else, threads above all. Inside a sandbox the call
    does nothing, unless `nested` is set.
    """
    if nested or not inside():
        code = _enter(private_tmp)
        if code is not None:
            _leave(code)


def name_hosts(lines: Iterable[str] = ()) -> bool:
    """Write the sandbox's /etc/hosts, so that programs find servers by name.

    Return False outside a sandbox, where the machine's names stay.
    """
    hosts = NAMES / "hosts"
    # The hosts file is missing if a test has mounted another /run.
    if not inside() or not hosts.exists():
        return False
    own = f"127.0.0.1 localhost {socket.gethostname()}"
    hosts.write_text("\n".join([own, *lines, ""]))
    return True


def run(program: Callable[[], int | None], *, private_tmp: bool = False) -> int:
    """Run a function in a sandbox; return its value, or 128 plus the signal that ended it.

    The calling process does not enter the sandbox.
    """
    _flush()
    outer = os.fork()
    if not outer:
        _protected(lambda: _run_inside(program, private_tmp))
    return _code(os.waitpid(outer, 0)[1])


def _run_inside(program: Callable[[], int | None], private_tmp: bool) -> int:
    code = _enter(private_tmp)
    return (program() or 0) if code is None else code


def _protected(function: Callable[[], int]) -> NoReturn:
    """Exit a forked process with a function's value as exit code; print its exceptions."""
    code = 1
    try:
        code = function()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - there is no caller that could handle the exception
        sys.excepthook(*sys.exc_info())
    _leave(code)


def _enter(private_tmp: bool) -> int | None:
    """Fork twice; return None in the program, and the program's exit code in the outer process."""
    user_namespace.require_root_or_user_namespace("a sandbox")
    _flush()
    groups = cgroups.parents()
    if os.geteuid():
        user_namespace.create()
    alive, held = os.pipe()  # pipe that closes when the outer process dies
    unshare(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS)
    # Signals are blocked until the sandbox's three processes are ready: init would lose an early
    # signal, and an early Ctrl-C would end the two processes that later ignore it.
    waiting = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR | IGNORED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an ignored SIGCHLD would hide exit codes
    init = os.fork()
    if init:
        os.close(alive)
        code = _forward_signals_to(init)
        cgroups.remove_dead(groups)  # empty cgroups of dead labs, which the kernel does not remove
        return code
    os.close(held)
    die_with_parent(signal.SIGKILL)
    if readable([alive]):  # the outer process died before PR_SET_PDEATHSIG was set
        os._exit(128 + signal.SIGKILL)
    os.close(alive)
    _prepare(private_tmp)
    program = os.fork()
    if program:
        _protected(lambda: _forward_signals_to(program))
    signal.pthread_sigmask(signal.SIG_SETMASK, waiting)
    return None


def _forward_signals_to(child: int) -> int:
    """Forward signals to a child until it ends, and reap all children; return its exit code.

    The signals stay blocked and are received by sigwait: the handler of a signal that arrives just
    before a wait would not run.
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    take_role("sandbox")
    while True:
        received = signal.sigwait(WAITED_FOR)
        if received != signal.SIGCHLD:
            _send_signal(child, received)
            continue
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                return _code(ended[1])


def _code(status: int) -> int:
    """Return a process's exit code, 128 plus the signal if a signal ended it, as in a shell."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _send_signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _flush() -> None:
    """Flush output buffers, so that a fork does not duplicate their contents."""
    sys.stdout.flush()
    sys.stderr.flush()


def _leave(code: int) -> NoReturn:
    _flush()
    os._exit(code)


# -- inside the sandbox ----------------------------------------------------------------------------


def _prepare(private_tmp: bool) -> None:
    """Create the mounts and settings of the sandbox, and drop the machine's capabilities."""
    try:
        _make_mounts(private_tmp)
    except OSError as error:
        raise PillarboxError(
            f"a sandbox cannot be made: {error.strerror}; {more_rights_hint()}"
        ) from None
    for name, value in SYSCTLS.items():
        write_sysctl(name, value)
    os.environ[INSIDE] = _pid_namespace()
    name_hosts()
    give_up_capabilities(MACHINE)


def _make_mounts(private_tmp: bool) -> None:
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID_NODEV_NOEXEC)
    _mount_sys()
    for place in (*PRIVATE, "/tmp") if private_tmp else PRIVATE:
        # folders are created before, so that no program inside creates them on the machine
        try:
            Path(place).mkdir(exist_ok=True)
        except PermissionError:  # an ordinary user's sandbox: its programs cannot create it either
            continue
        mount("tmpfs", place, "tmpfs", MS_NOSUID_NODEV, b"mode=1777" if place == "/tmp" else None)
    _mount_names()


def _mount_names() -> None:
    """Mount the sandbox's own name resolution files over the machine's in /etc."""
    private_folder(NAMES.parent)
    NAMES.mkdir(mode=0o755, exist_ok=True)
    mount("tmpfs", str(NAMES), "tmpfs", MS_NOSUID_NODEV, b"mode=755")
    switch = Path("/etc/nsswitch.conf")
    services = switch.read_text() if switch.exists() else ""
    contents = {
        "hosts": "127.0.0.1 localhost\n",
        # No name server listens at this address, so that DNS queries are refused immediately.
        "resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        "nsswitch.conf": re.sub(r"(?m)^hosts:.*$", "hosts: files", services),
    }
    for name, content in contents.items():
        (NAMES / name).write_text(content)
        if Path("/etc", name).exists():
            mount(str(NAMES / name), f"/etc/{name}", "", MS_BIND)


def _mount_sys() -> None:
    """Mount a /sys that shows the sandbox's network, and keep the mounts below the old /sys.

    If /sys is hidden, as in some containers, it stays hidden.
    """
    kept = {place: copy_mount_tree(place) for place in _mounted_below("/sys")}
    mount("sysfs", "/sys", "sysfs", MS_NOSUID_NODEV_NOEXEC)
    for place, tree in kept.items():
        if Path(place).is_dir():
            attach_mount_tree(tree, place)
        os.close(tree)


def _mounted_below(top: str) -> list[str]:
    """Return the topmost mount points below a folder."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = sorted({line.split()[4] for line in lines})
    found: list[str] = []
    for place in places:
        if place.startswith(f"{top}/") and not any(place.startswith(f"{f}/") for f in found):
            found.append(place)
    return found


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)
