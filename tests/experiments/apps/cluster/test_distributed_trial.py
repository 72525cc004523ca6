"""Trials over machines that something happens to: to a server, a machine, a card, a clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pillarbox.experiments.lab.linux import sandbox
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED
from pillarbox.experiments.runs.trust import judge
from tests.experiments.apps.cluster.over import lab_over, running, saturate, trial_in, worker
from tests.experiments.labs import WAIT_S, wait_until

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
pytest.importorskip("cryptography", reason="pip install cryptography")
pytestmark = [pytest.mark.root, pytest.mark.long]

RATE_MBIT, CARD_MBIT = 20.0, 40.0  # of eight cables that cross, and of the card that they share
DURATION_S, PUSH_S = 1.5, 0.005
SENDING = ("phase", "sending")
VICTIM = 5
STARTED = "pillarbox.experiments.apps.cluster.", "pillarbox.hosts.live.nursery"
SENDERS = "pillarbox.experiments.apps.cluster.flow_ends"
ENDLESS = """
about = "until somebody ends it"
repeats = 1
[[systems]]
network = "bcube,4,1"
machines = 2
[workload]
pattern = "permutation"
duration_s = 1000
timeout_s = 2000
"""


def test_what_happens_to_a_trial(tmp_path: Path) -> None:
    with lab_over("bcube,4,1", 2, tmp_path, rate_mbit=RATE_MBIT) as lab:
        check_flows_of_a_server_that_dies(lab)
        check_a_clock_that_is_pushed(lab)
        check_a_card_that_is_too_slow(lab)
        check_a_machine_that_is_lost(lab)


def check_flows_of_a_server_that_dies(lab: Lab) -> None:
    name = lab.name(VICTIM)
    found = trial_in(lab, f"kill {name} at 0.3 until 0.6", duration_s=DURATION_S)
    for one in found.results:
        dies = VICTIM in (one.flow.source, one.flow.destination)
        assert (one.status == FAILED) == dies, one
        assert not dies or one.reason == f"server {name} died"
    lab.wait_converged()


def check_a_clock_that_is_pushed(lab: Lab) -> None:
    def push(told: tuple[Any, ...]) -> None:
        if told == SENDING:
            lab.fabric.clocks.clocks[1].now = lambda: time.monotonic() - PUSH_S

    try:
        found = trial_in(lab, tell=push, duration_s=DURATION_S)
    finally:
        lab.fabric.clocks.clocks[1].now = time.monotonic
    reasons = [reason for reason in judge(found.readings).reasons if "clock" in reason]
    assert len(reasons) == 1 and reasons[0].startswith("the clock of machine 1 moved by")


def check_a_card_that_is_too_slow(lab: Lab) -> None:
    with saturate(lab, 1, CARD_MBIT):
        found = trial_in(lab, duration_s=DURATION_S)
    words = " ".join(judge(found.readings).reasons)
    assert "machine 1's network card" in words, words


def check_a_machine_that_is_lost(lab: Lab) -> None:
    def lose(told: tuple[Any, ...]) -> None:
        if told == SENDING:
            os.kill(worker(lab, 1), signal.SIGKILL)

    found = trial_in(lab, tell=lose, duration_s=DURATION_S)
    for one in found.results:
        if 1 in map(lab.fabric.machine_of, (one.flow.source, one.flow.destination)):
            assert (one.status, one.reason) == (FAILED, "machine 1 was lost")
        else:
            assert one.status == COMPLETED or one.reason
    assert "machine 1 was lost: its traffic" in " ".join(judge(found.readings).reasons)


def test_nothing_is_left_of_a_run_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "endless.toml").write_text(ENDLESS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop(sandbox.INSIDE)  # the test's own is not the trial's
    command = [sys.executable, "-m", "pillarbox", "run", "endless.toml", "--out", "run"]
    caller = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    wait_until(lambda: len(running(SENDERS)) == 2, "nobody sends")
    assert all(map(running, STARTED))
    caller.kill()
    caller.communicate(timeout=WAIT_S)
    wait_until(lambda: not any(map(running, STARTED)), "something is left")
