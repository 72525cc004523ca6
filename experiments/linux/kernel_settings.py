"""Two settings of the whole machine's kernel, for as long as a lab is there.

`tcx.HURRY`: when a program comes to an interface or goes, the kernel waits until no processor can
be in what was there before (a grace period of RCU): 10 to 20 ms for each, under the lock of all
interfaces. Told to hurry it asks the processors instead, which takes 0.1 ms. It changes no result,
and costs each processor a few microseconds each time.

`shaping.HYSTERESIS`: what waits in a port leaves it in bursts, with a timer for each burst instead
of one for each frame (ADR 16).

A lab holds a shared lock on `HELD`, which only root can open. The first lab sets them and the last
gives them back. Where that one was killed, what it left also goes the faster for the hurry; then
the next lab that ends gives them back, or ``pillarbox clean``.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import click

from experiments.files import is_private, private_folder
from experiments.linux import shaping
from experiments.linux.netlink import End, Netlink, cable
from experiments.linux.processes import proc_field
from hosts.linux import tcx
from hosts.linux.calls import current_namespace, nowhere
from topos.base.errors import require

HELD = Path("/run/pillarbox/settings")  # locked by each lab
OWN_FILE = 0o600  # its mode: who can open it could lock it
# Any number but 0 does it: by this one whoever finds it knows that a lab has set it.
OURS = str(int.from_bytes(b"PB", "big"))
ENDED_S = 1.0  # so long at most a process that was killed takes to let go of its files
REMOVED_S = 60.0  # so long at most to wait until the kernel has removed what a dead lab had
SAY_S, LOCK_S = 1.0, 90.0  # waiting for the lock: until it is said, and at most


class KernelSettings:
    """What one lab holds, from when it is made to `end`, so that the kernel is set for labs."""

    def __init__(self) -> None:
        self._held: IO[str] | None = None
        shaping.load_htb()
        wanted = [shaping.HYSTERESIS, *([tcx.HURRY] if tcx.is_known() else [])]
        wanted = [setting for setting in wanted if os.access(setting, os.W_OK)]
        if not wanted:
            return  # a container, perhaps: filters serve, and ports without bursts
        self._held = _locked()
        for setting in wanted:
            if setting.read_text().strip() == "0":
                setting.write_text(OURS)

    def __enter__(self) -> KernelSettings:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Let go; once more does no harm."""
        if self._held:
            with self._held, suppress(BlockingIOError):  # others have labs still
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _give_back(self._held)
        self._held = None


def left(*, remove: bool) -> list[Path]:
    """Return the settings that a lab that was killed has left, and give them back."""
    if not HELD.exists():
        return []
    with _opened() as held:
        if not _is_nobodys(held):
            return []
        ours = _ours()  # else labs of a container, say, have set them, or given them back
        if remove:
            if tcx.HURRY in ours:
                _wait_for_the_kernel()
            _give_back(held)
    return ours


def _ours() -> list[Path]:
    found = []
    for setting in (tcx.HURRY, shaping.HYSTERESIS):
        with suppress(OSError):
            if setting.read_text().strip() == OURS:
                found.append(setting)
    return found


def _is_nobodys(held: IO[str]) -> bool:
    """Take the lock, if no lab holds it; one that was just killed takes a moment to end."""
    deadline = time.monotonic() + ENDED_S
    while time.monotonic() < deadline:
        with suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False


def _wait_for_the_kernel() -> None:
    """Wait until all is gone that ended so far: without its hurry the kernel would be slow at it.

    It removes namespaces in the order in which they end. So one that ends now goes last, and with
    it the far end of a cable that can be looked at from here.
    """
    deadline = time.monotonic() + REMOVED_S
    with nowhere(), closing(Netlink()) as kernel:
        near = End("here", 1001, current_namespace())
        with nowhere():
            far = End("there", 1002, current_namespace())
        kernel.send([cable(near, far, mtu=1500)])
        for end in (near, far):
            os.close(end.namespace)
        while time.monotonic() < deadline and any(one.name == near.name for one in kernel.links()):
            time.sleep(0.02)


def _give_back(held: IO[str]) -> None:
    if os.fstat(held.fileno()).st_nlink:
        for setting in _ours():
            setting.write_text("0")
        HELD.unlink()


def _locked() -> IO[str]:
    """Return the file with a shared lock; its holder may be giving the settings back just now."""
    began, said = time.monotonic(), False
    while True:
        held = _opened()
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
        held.close()  # the last lab removed it between the two


def _holder(held: IO[str]) -> str:
    """Return the process that has locked a file, as far as this sandbox shows it."""
    inode = f":{os.fstat(held.fileno()).st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, *_, number, file, _, _ = line.split()
        if kind == "FLOCK" and file.endswith(inode):
            name = proc_field(f"/proc/{number}/status", "Name")
            return f"process {number} ({''.join(filter(str.isprintable, name))})"
    return "a process outside this sandbox"


def _opened() -> IO[str]:
    private_folder(HELD.parent)
    while True:
        require(not HELD.is_symlink(), f"{HELD} is a symbolic link: remove it")
        made = os.open(HELD, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, OWN_FILE)
        if is_private(os.fstat(made)):
            return os.fdopen(made, "a+")
        # Earlier versions let every user open it, and whoever did may have locked it.
        os.close(made)
        HELD.unlink(missing_ok=True)
