"""The kernel hurries as long as a lab is there.

When a program comes to an interface or goes, the kernel waits until no processor can be in what was
there before (a grace period of RCU): 10 to 20 ms for each, under the lock of all interfaces. Told
to hurry it asks the processors instead, which takes 0.1 ms. That is one setting of the whole
machine. It changes no result, and costs each processor a few microseconds each time.

The first lab sets it and the last gives it back. Where that one was killed, what it left also goes
the faster for it; then the next lab that ends gives it back, or ``pillarbox clean``.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from hosts.linux import tcx

HELD = Path("/run/pillarbox/graces")  # locked by each lab, and not empty where one has set it
REMOVED_S = 60.0  # so long at most to wait until the kernel has removed what a dead lab had


class ShortGraces:
    """What one lab holds, from when it is made to `end`, so that the kernel hurries."""

    def __init__(self) -> None:
        self._held: IO[str] | None = None
        if not (os.access(tcx.HURRY, os.W_OK) and tcx.is_known()):
            return  # a container, perhaps: filters serve
        self._held = _locked()
        if tcx.HURRY.read_text().strip() == "0":
            self._held.write("set by a lab\n")
            self._held.flush()
            tcx.HURRY.write_text("1")

    def __enter__(self) -> ShortGraces:
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


def left(*, remove: bool) -> bool:
    """Tell whether a lab that was killed has left the setting, and give it back."""
    with suppress(FileNotFoundError, BlockingIOError), HELD.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        was_set = os.fstat(held.fileno()).st_size > 0
        if remove:
            _wait_for_the_kernel()
            _give_back(held)
        return was_set
    return False


def _wait_for_the_kernel() -> None:
    """Wait until no program of a dead lab is anywhere: the kernel would be slow to remove them."""
    deadline = time.monotonic() + REMOVED_S
    while time.monotonic() < deadline and tcx.some_are_there():
        time.sleep(0.02)


def _give_back(held: IO[str]) -> None:
    status = os.fstat(held.fileno())
    if status.st_nlink:
        if status.st_size:
            tcx.HURRY.write_text("0")
        HELD.unlink()


def _locked() -> IO[str]:
    HELD.parent.mkdir(mode=0o700, exist_ok=True)
    while True:
        held = HELD.open("a+")
        fcntl.flock(held, fcntl.LOCK_SH)
        if os.fstat(held.fileno()).st_nlink:
            return held
        held.close()  # the last lab removed it between the two
