"""A network at rest leaves its machine at rest."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import topos
from experiments.emulation.lab import Lab, running
from hosts.live.settings import LabSettings

pytestmark = pytest.mark.root

LISTENED_S = 1.0
SERVER = 5


def wake_ups(lab: Lab) -> int:
    """Return how often the server's forwarder has gone to sleep."""
    assert lab.forwarders is not None
    text = Path(f"/proc/{lab.forwarders.pids[SERVER]}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def heart_beats_heard(lab: Lab) -> int:
    """Return how many the server has received."""
    heard: int = lab.state(SERVER)["heart-beats heard by the kernel"]
    return heard


@pytest.mark.parametrize("plane", ["python", "ebpf"])
def test_a_server_is_not_woken_up_by_heart_beats(tmp_path: Path, plane: str) -> None:
    with running(topos.parse("bcube,4,1"), LabSettings(plane=plane), tmp_path) as lab:
        lab.wait_converged()
        woken, heard = wake_ups(lab), heart_beats_heard(lab)
        deadline = time.monotonic() + 20
        while heart_beats_heard(lab) - heard < 100 and time.monotonic() < deadline:
            time.sleep(LISTENED_S)  # each question wakes it up as well
        heard = heart_beats_heard(lab) - heard
        assert heard >= 100
        assert wake_ups(lab) - woken < 0.2 * heard
