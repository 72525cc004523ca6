"""Run a lab where nothing of it can outlive it, and nothing else can be touched by it.

A sandbox is a pid, network, mount, IPC and UTS namespace of its own. ::

    outer          the program as it was called: waits, passes signals in and the exit code out
      init         first process of the sandbox: adopts and buries, dies with the outer
        program    the program again, which goes on where it entered

Whichever of the three is killed, even with ``kill -9``, the kernel then kills every process in the
sandbox; with the last one go its network namespaces, bridges, cables and mounts. Entering takes
about 20 ms.

All three stay in the terminal's process group: Ctrl-C reaches the program alone, because the others
ignore it, and Ctrl-Z stops and ``fg`` continues the program as ever. Inside, /proc shows the
sandbox's processes and /sys its network; cgroups and whatever else is mounted below /sys stay.
/run/netns and /run/openvswitch are the sandbox's own, so that ``ip netns`` and Open vSwitch see
no others; /tmp only where it is asked for, for programs such as ``mn`` that clear it.

Names of hosts are the sandbox's own as well: from inside no name server can be reached, and a
look-up would wait for one. What /etc/hosts there says is `name_hosts`'s to change. A program that
changes its host name changes the sandbox's, and never the machine's.
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

from experiments.files import private_folder
from experiments.linux import cgroups
from experiments.linux.namespaces import write_sysctl
from hosts.linux.calls import (
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
    die_with_parent,
    more_rights,
    mount,
    mount_tree,
    mounted_tree,
    readable,
    unshare,
)
from hosts.linux.rights import MACHINE, give_up_capabilities, take_role
from topos.base.errors import PillarboxError, require

PASSED_IN = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
WAITED_FOR = {*PASSED_IN, signal.SIGCHLD}
IGNORED = {signal.SIGINT, signal.SIGQUIT}  # the terminal sends them to the program as well
# Holds the number of the pid namespace, so that a copy of it elsewhere means nothing.
INSIDE = "PILLARBOX_SANDBOX"
PRIVATE = ("/run/netns", "/run/openvswitch")
# Files that stand in the place of the machine's, by their names in /etc.
NAMES = Path("/run/pillarbox/etc")
SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/bridge/bridge-nf-call-arptables": "0",
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
}


def inside() -> bool:
    """Tell whether this process is in a sandbox."""
    return os.environ.get(INSIDE) == _pid_namespace()


def enter(*, private_tmp: bool = False, nested: bool = False) -> None:
    """Go on in a sandbox: only the program in it returns from here.

    To be called before anything else is running in this process, threads above all. Inside a
    sandbox it does nothing, unless one within it is wanted.
    """
    if nested or not inside():
        code = _enter(private_tmp)
        if code is not None:
            _leave(code)


def name_hosts(lines: Iterable[str] = ()) -> bool:
    """Let programs in this sandbox know these hosts, written as in /etc/hosts, and no others.

    Return False outside a sandbox, where the machine's names stay.
    """
    hosts = NAMES / "hosts"
    if not inside() or not hosts.exists():  # a test may have mounted another /run over it
        return False
    own = f"127.0.0.1 localhost {socket.gethostname()}"
    hosts.write_text("\n".join([own, *lines, ""]))
    return True


def run(program: Callable[[], int | None], *, private_tmp: bool = False) -> int:
    """Run a function in a sandbox; return its value, or 128 and the signal that ended it.

    The calling process stays as it is.
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
    """Leave a forked process with the function's value; its exceptions must not travel on."""
    code = 1
    try:
        code = function()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - printed here: there is no caller further up
        sys.excepthook(*sys.exc_info())
    _leave(code)


def _enter(private_tmp: bool) -> int | None:
    """Fork twice: return None in the program, and its exit code in the outer."""
    require(os.geteuid() == 0, "a sandbox needs root: use sudo")
    _flush()
    groups = cgroups.parents()
    alive, held = os.pipe()  # closed by the outer's death, however it comes
    unshare(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS)
    # Signals wait until each of the three is ready for them: init would never see one before, and
    # a Ctrl-C that comes before the other two ignore it would end them, and the program with them.
    waiting = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR | IGNORED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it may have been ignored by who called
    init = os.fork()
    if init:
        os.close(alive)
        code = _stand_by(init)
        cgroups.remove_dead(groups)  # which the kernel does not
        return code
    os.close(held)
    die_with_parent(signal.SIGKILL)
    if readable([alive]):  # it died before the kernel was asked to watch
        os._exit(128 + signal.SIGKILL)
    os.close(alive)
    _prepare(private_tmp)
    program = os.fork()
    if program:
        _protected(lambda: _stand_by(program))
    signal.pthread_sigmask(signal.SIG_SETMASK, waiting)
    return None


def _stand_by(child: int) -> int:
    """Pass signals on to a child until it ends, and bury all that do; return its exit code.

    The signals stay blocked and are waited for: a handler would not run for one that comes just
    before the process waits.
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    take_role("sandbox")
    while True:
        received = signal.sigwait(WAITED_FOR)
        if received != signal.SIGCHLD:
            _pass_on(child, received)
            continue
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                return _code(ended[1])


def _code(status: int) -> int:
    """Return an exit code; that of a process ended by a signal is 128 and more, as in a shell."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _pass_on(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _flush() -> None:
    """Write what waits to be written, lest both processes of a fork write it."""
    sys.stdout.flush()
    sys.stderr.flush()


def _leave(code: int) -> NoReturn:
    _flush()
    os._exit(code)


# -- inside ------------------------------------------------------------------------------------


def _prepare(private_tmp: bool) -> None:
    """Make the mounts and settings of the sandbox."""
    try:
        _make_mounts(private_tmp)
    except OSError as error:
        raise PillarboxError(
            f"a sandbox cannot be made: {error.strerror}; {more_rights()}"
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
        Path(place).mkdir(exist_ok=True)  # else a program inside would make it for all
        mount("tmpfs", place, "tmpfs", MS_NOSUID_NODEV, b"mode=1777" if place == "/tmp" else None)
    _mount_names()


def _mount_names() -> None:
    """Put files of the sandbox's own over those that tell how a host's name is looked up."""
    private_folder(NAMES.parent)
    NAMES.mkdir(mode=0o755, exist_ok=True)
    mount("tmpfs", str(NAMES), "tmpfs", MS_NOSUID_NODEV, b"mode=755")
    switch = Path("/etc/nsswitch.conf")
    services = switch.read_text() if switch.exists() else ""
    contents = {
        "hosts": "127.0.0.1 localhost\n",
        # No one listens there: who asks is refused at once.
        "resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        "nsswitch.conf": re.sub(r"(?m)^hosts:.*$", "hosts: files", services),
    }
    for name, content in contents.items():
        (NAMES / name).write_text(content)
        if Path("/etc", name).exists():
            mount(str(NAMES / name), f"/etc/{name}", "", MS_BIND)


def _mount_sys() -> None:
    """Mount a /sys that shows the sandbox's network, and move into it what is mounted in the old.

    Where /sys is hidden, as in some containers, it stays hidden.
    """
    kept = {place: mounted_tree(place) for place in _mounted_below("/sys")}
    mount("sysfs", "/sys", "sysfs", MS_NOSUID_NODEV_NOEXEC)
    for place, tree in kept.items():
        if Path(place).is_dir():
            mount_tree(tree, place)
        os.close(tree)


def _mounted_below(top: str) -> list[str]:
    """Return where something is mounted below a place, but nothing below those again."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = sorted({line.split()[4] for line in lines})
    found: list[str] = []
    for place in places:
        if place.startswith(f"{top}/") and not any(place.startswith(f"{f}/") for f in found):
            found.append(place)
    return found


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)
