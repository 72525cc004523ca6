"""Labs without a prompt: detaching them from the caller, and ending them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from pillarbox.experiments.lab.emulation.lab_registry import LabFolder
from pillarbox.hosts.linux.calls import close_files

READY = b"\0"  # byte that a background lab writes after its start messages: it is ready


def end_lab_on_sigterm() -> None:
    """Handle SIGTERM, which `down` sends: end the lab as the end of its prompt does."""
    signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)


def fork_detached() -> int | None:
    """Fork a background lab; return None in its process, an exit code in the caller when ready.

    Messages of the lab are passed on until it is ready; later messages go into its folder.
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
        close_files(3)  # the lab must not keep the caller's locks and files open
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


def report_ready_and_log_to(log: Path) -> None:
    """Report to the caller that the lab is ready, and redirect further messages to a log file."""
    sys.stdout.flush()
    os.write(1, READY)
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(words, 1)
    os.dup2(words, 2)


def report_ready_and_wait(place: LabFolder, detach: bool) -> None:
    """Report that a lab without a prompt is ready, and wait for its end."""
    if detach:
        report_ready_and_log_to(place.folder / "lab.log")
        while True:
            signal.pause()
    sys.stdout.flush()
    os.write(1, READY)
    while os.read(0, 1 << 12):
        continue
