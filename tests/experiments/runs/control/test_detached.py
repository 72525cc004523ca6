"""Labs that outlive the command that started them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pillarbox.experiments.runs.control import detached
from tests.experiments.labs import wait_until


def test_a_detached_lab_keeps_no_open_file_of_its_caller(tmp_path: Path) -> None:
    """A lock that the caller holds would else be held as long as the lab lives."""
    lab = tmp_path / "lab"
    read, write = os.pipe()
    os.set_inheritable(write, True)
    caller = os.fork()
    if caller == 0:
        try:
            if detached.fork_detached() is None:
                lab.with_suffix(".new").write_text(str(os.getpid()))
                lab.with_suffix(".new").rename(lab)
                os.write(1, detached.READY)
                signal.pause()
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(caller, 0)
    wait_until(lab.exists, "the lab does not begin")
    process = int(lab.read_text())
    try:
        with os.fdopen(read, "rb") as caller_holds:
            assert caller_holds.read() == b""  # ends while the lab lives
        os.kill(process, 0)
    finally:
        os.kill(process, signal.SIGKILL)
