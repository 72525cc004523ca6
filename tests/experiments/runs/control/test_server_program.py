"""Programs on servers: signals are passed on to the program, and to no other process."""

import os
import signal

import pytest

from pillarbox.experiments.runs.control.server_program import run_within

pytestmark = pytest.mark.root


def test_nothing_is_passed_on_to_a_program_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    at_reaping, reap, usual = [], os.waitpid, signal.getsignal(signal.SIGTERM)

    def waitpid(process: int, options: int) -> tuple[int, int]:
        at_reaping.append(signal.getsignal(signal.SIGTERM))
        os.kill(process, signal.SIGTERM)  # its number is still its own
        return reap(process, options)

    monkeypatch.setattr(os, "waitpid", waitpid)
    kinds = ("net", "uts", "mnt", "pid")
    namespaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in kinds]
    assert run_within(namespaces, ["sh", "-c", "exit 7"]) == 7
    assert at_reaping == [usual]
