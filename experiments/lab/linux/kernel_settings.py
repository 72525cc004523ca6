"""Two global kernel settings that labs change while they run.

`tcx.HURRY`: when a BPF program is attached or detached, the kernel waits for a grace period of RCU,
until no processor can still be executing the old list of programs: 10 to 20 ms each, under the lock
of all interfaces. With expedited grace periods the kernel interrupts the processors instead, which
takes 0.1 ms. The setting changes no result and costs each processor a few microseconds each time.

`shaping.HYSTERESIS`: packets that wait in a port are sent in bursts, with a timer for each burst
instead of a timer for each frame (ADR 16).

Every lab holds a shared lock on `HELD`, which only root can open. The first lab changes the
settings and the last lab restores them. If the last lab was killed, the settings stay, which also
speeds up the removal of its leftovers; the next lab that ends restores them, or ``pillarbox
clean``.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import click

from pillarbox.experiments.base.files import is_private, private_folder
from pillarbox.experiments.base.processes import proc_field
from pillarbox.experiments.lab.linux import shaping
from pillarbox.experiments.lab.linux.link_requests import End, cable
from pillarbox.hosts.linux import tcx
from pillarbox.hosts.linux.calls import current_namespace, in_new_namespace
from pillarbox.hosts.linux.netlink import Netlink
from pillarbox.topos.base.errors import require

HELD = Path("/run/pillarbox/settings")  # lock file, locked by each lab while it runs
LOCK_FILE_MODE = 0o600  # mode of the lock file: any user who can open it could lock it
# Nonzero values enable a kernel setting; this value shows that a lab has set it.
OURS = str(int.from_bytes(b"PB", "big"))
ENDED_S = 1.0  # upper bound for a killed process to close its files, in seconds
REMOVED_S = 60.0  # upper bound for the kernel to remove a dead lab's namespaces, in seconds
# seconds of waiting for the lock until a message, and until an error
SAY_S, LOCK_S = 1.0, 90.0


class KernelSettings:
    """Kernel settings of the machine that labs change, from construction until `end`."""

    def __init__(self) -> None:
        self._held: IO[str] | None = None
        shaping.load_htb()
        wanted = [shaping.HYSTERESIS, *([tcx.HURRY] if tcx.is_supported() else [])]
        wanted = [setting for setting in wanted if os.access(setting, os.W_OK)]
        if not wanted:
            return  # the settings are read-only, as in a container: labs work without changing them
        self._held = _locked()
        for setting in wanted:
            if setting.read_text().strip() == "0":
                setting.write_text(OURS)

    def __enter__(self) -> KernelSettings:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Restore the machine's kernel settings if no other lab runs. Safe to call twice."""
        if self._held:
            # other labs still run and need the settings
            with self._held, suppress(BlockingIOError):
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _restore(self._held)
        self._held = None


def leftover_settings(*, remove: bool) -> list[Path]:
    """Return kernel settings that a killed lab has left; restore them if `remove` is set."""
    if not HELD.exists():
        return []
    with _lock_file() as held:
        if not _lock_if_free(held):
            return []
        ours = _set_by_labs()  # kernel settings that still have a lab's value
        if remove:
            if tcx.HURRY in ours:
                _wait_for_removals()
            _restore(held)
    return ours


def _set_by_labs() -> list[Path]:
    found = []
    for setting in (tcx.HURRY, shaping.HYSTERESIS):
        with suppress(OSError):
            if setting.read_text().strip() == OURS:
                found.append(setting)
    return found


def _lock_if_free(held: IO[str]) -> bool:
    """Take the settings' lock; return False if labs hold it even after a grace period."""
    deadline = time.monotonic() + ENDED_S
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _wait_for_removals() -> None:
    """Wait until the kernel has removed dead labs' namespaces, which HURRY makes faster.

    The kernel removes namespaces in the order in which they end. So this creates a namespace that
    ends last, with the far end of a cable, and waits until the near end disappears.
    """
    deadline = time.monotonic() + REMOVED_S
    with in_new_namespace(), closing(Netlink()) as kernel:
        near = End("here", 1001, current_namespace())
        with in_new_namespace():
            far = End("there", 1002, current_namespace())
        kernel.send([cable(near, far, mtu=1500)])
        for end in (near, far):
            os.close(end.namespace)
        while time.monotonic() < deadline and any(one.name == near.name for one in kernel.links()):
            time.sleep(0.02)


def _restore(held: IO[str]) -> None:
    if os.fstat(held.fileno()).st_nlink:
        for setting in _set_by_labs():
            setting.write_text("0")
        HELD.unlink()


def _locked() -> IO[str]:
    """Return the lock file with a shared lock; wait while a lab restores kernel settings."""
    began, said = time.monotonic(), False
    while True:
        held = _lock_file()
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            holder, waited_s = _holder(held), time.monotonic() - began
            held.close()
            require(
                waited_s < LOCK_S,
                f"{HELD} has been locked for {LOCK_S:.0f} s by {holder}: end that process, or see "
                "`lslocks`",
            )
            if waited_s > SAY_S and not said:
                said = True
                click.echo(f"pillarbox: waiting for {holder}, which has locked {HELD}", err=True)
            time.sleep(0.02)
            continue
        if os.fstat(held.fileno()).st_nlink:
            return held
        held.close()  # another lab removed the lock file before it was locked


def _holder(held: IO[str]) -> str:
    """Return a description of the process that has locked a file, if visible in this sandbox."""
    inode = f":{os.fstat(held.fileno()).st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, *_, number, file, _, _ = line.split()
        if kind == "FLOCK" and file.endswith(inode):
            name = proc_field(f"/proc/{number}/status", "Name")
            return f"process {number} ({''.join(filter(str.isprintable, name))})"
    return "a process outside this sandbox"


def _lock_file() -> IO[str]:
    private_folder(HELD.parent)
    while True:
        require(not HELD.is_symlink(), f"{HELD} is a symbolic link: remove it")
        made = os.open(HELD, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, LOCK_FILE_MODE)
        if is_private(os.fstat(made)):
            return os.fdopen(made, "a+")
        # Earlier versions let every user open and thus lock this file: replace it.
        os.close(made)
        HELD.unlink(missing_ok=True)
