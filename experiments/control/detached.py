"""Labs without a prompt: how they are left to themselves, and how they end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from experiments.emulation.lab_registry import LabFolder
from hosts.linux.calls import close_files

READY = b"\0"  # written behind what the lab has to say when it is there


def end_by_signal() -> None:
    """Let SIGTERM, which `down` sends, end the lab as its prompt's end does."""
    signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)


def detached() -> int | None:
    """Fork: return None in the process of the lab, and in the caller an exit code when it is there.

    What the lab says until it is ready is passed on; later words go into its folder.
    """
    said, says = os.pipe()
    sys.stdout.flush()
    lab = os.fork()
    if lab == 0:
        os.close(said)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (says, 1), (says, 2)):
            os.dup2(descriptor, place)
        close_files(3)  # a lock of the caller's, say, ends with the caller
        return None
    os.close(says)
    text = b""
    try:
        while not text.endswith(READY):
            more = os.read(said, 1 << 16)
            if not more:
                sys.stderr.write(text.decode(errors="replace"))
                return os.waitstatus_to_exitcode(os.waitpid(lab, 0)[1])
            text += more
    except KeyboardInterrupt:
        os.kill(lab, signal.SIGTERM)
        raise
    sys.stdout.write(text.removesuffix(READY).decode(errors="replace"))
    return 0


def leave_alone(log: Path) -> None:
    """Say that all is there; further words go into a log."""
    sys.stdout.flush()
    os.write(1, READY)
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(words, 1)
    os.dup2(words, 2)


def ready(place: LabFolder, detach: bool) -> None:
    """Say that the lab is there, and wait for its end."""
    if detach:
        leave_alone(place.folder / "lab.log")
        while True:
            signal.pause()
    sys.stdout.flush()
    os.write(1, READY)
    while os.read(0, 1 << 12):
        continue
