"""The Python API: a lab as a process of its own, typed answers, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pillarbox
from experiments.linux import sandbox
from pillarbox import AllToAll, PillarboxError, Traffic
from tests.experiments.control.test_commands import LABS, processes, wait_until

ROOT = Path(__file__).parents[1]


def own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no other lab be seen, and the test's own sandbox not be the lab's."""
    monkeypatch.delenv(sandbox.INSIDE)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)


@pytest.mark.root
def test_a_lab_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    own_run(monkeypatch)
    before = processes()
    options = {"rate_mbit": 20, "mtu": 9000, "plane": "python"}
    with pillarbox.lab("dcell,2,1", **options) as lab:
        assert [folder.name for folder in LABS.iterdir()] == ["1"]
        change = lab.cut("0.1", "2.0")
        assert change.did == "0.1-2.0 is cut"
        assert {*change.noticed_ms, *change.not_noticed} == {"0.1", "2.0"}
        way = lab.path("0.0", "2.1")
        assert (way.delivered, way.servers[0], way.servers[-1]) == (True, "0.0", "2.1")
        assert str(way) == " ".join(way.servers)
        assert (lab.ping("0.0", "2.1").ms or 0) > 0
        assert 1 < lab.iperf("0.0", "2.1", seconds=0.5).mbit < 21
        assert lab.heal().did == "0.1-2.0 mended"
        flows = lab.run(AllToAll(volume="20kB"))
        assert len(flows) == 30
        assert set(flows["status"]) == {"completed"}
        assert set(flows["delivered_bytes"]) == {20_000}
        assert flows.attrs["ideal_bps"] > 0 and "verdict" in flows.attrs
        assert bool(flows["valid"][0]) == flows.attrs["valid"]
        with pytest.raises(PillarboxError, match="no cable joins"):
            lab.cut("0.0", "2.1")
        assert lab.kill("2.1").did.startswith("2.1 is dead")
        assert lab.ping("0.0", "2.1").ms is None
        assert lab.why("0.0", "2.1")[0] == "2.1 is dead: revive 2.1"
        assert lab.status()["dead"] == ["2.1"]
    assert list(LABS.iterdir()) == []
    wait_until(lambda: processes() <= before, "a process is left")
    with pytest.raises(PillarboxError, match="this lab has ended"):
        lab.path("0.0", "2.1")


@pytest.mark.root
def test_what_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    own_run(monkeypatch)
    with pytest.raises(PillarboxError, match="there is no network 'nosuch'"):
        pillarbox.lab("nosuch,4")
    with pytest.raises(PillarboxError, match=r"(?i)no such option"):
        pillarbox.lab("dcell,2,1", nosuch=1)


@pytest.mark.root
def test_a_lab_ends_with_the_program_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own_run(monkeypatch)
    before = processes()
    program = "import os, pillarbox; lab = pillarbox.lab('dcell,2,1'); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == -9
    wait_until(lambda: processes() <= before, "a process is left")
    wait_until(lambda: list(LABS.iterdir()) == [], "its folder is left")


def test_traffic_is_words() -> None:
    assert AllToAll(volume="1MB").words == ["all-to-all", "tool=generator", "volume_bytes=1000000"]
    words = Traffic("burst", seconds=2, tool="iperf3", flows=3).words
    assert words == ["burst", "tool=iperf3", "duration_s=2", "flows=3"]
    for wrong in ({}, {"volume": 1, "seconds": 1}, {"volume": "much"}):
        with pytest.raises(PillarboxError):
            AllToAll(**wrong)
