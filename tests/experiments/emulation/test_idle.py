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


def heart_beats_heard(lab: Lab) -> float:
    """Return how many the server has received, taking all servers to send as many as it does."""
    sent = lab.state(SERVER)["counters"]["frames out"]  # one by each port
    peers = [len(lab.topology.peers(SERVER, port)) for port in range(lab.topology.ports)]
    return float(sent / lab.topology.ports * sum(peers))


def test_a_server_is_not_woken_up_by_every_heart_beat(tmp_path: Path) -> None:
    with running(topos.parse("bcube,4,1"), LabSettings(), tmp_path) as lab:
        lab.wait_converged()
        woken, heard = wake_ups(lab), heart_beats_heard(lab)
        deadline = time.monotonic() + 20
        while heart_beats_heard(lab) - heard < 100 and time.monotonic() < deadline:
            time.sleep(LISTENED_S)  # each question wakes it up as well
        heard = heart_beats_heard(lab) - heard
        assert heard >= 100
        assert wake_ups(lab) - woken < 0.6 * heard
