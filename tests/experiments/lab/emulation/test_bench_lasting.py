"""The benches of soaking and scale: they run, and see what they are there to see."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pillarbox import topos
from tests.benches import scale, soak
from tests.benches._traffic import ClientConnection, Stream, _pattern


@pytest.mark.long
@pytest.mark.root
def test_scale_measures_both_planes() -> None:
    rows = list(scale.run(quick=True))
    assert [(row["plane"], row["outcome"]) for row in rows] == [("python", "ok"), ("ebpf", "ok")]
    for row in rows:
        assert 1 < row["forwarder_mib"] < 20
        assert 16 * row["forwarder_mib"] / 1024 < row["memory_gib"] < 1
        assert row["up_s"] == pytest.approx(
            row["cables_s"] + row["forwarders_s"] + row["converged_s"]
        )
        assert 0 < row["rest_percent"] < 100
        assert row["silent_s"] > 0


def test_scale_judges_time_memory_and_idle_load() -> None:
    row = {"network": "dcell,4,2", "plane": "ebpf", "cables_s": 5.0, "forwarders_s": 1.4}
    row |= {"up_s": 14.0, "memory_gib": 1.3, "rest_percent": 9.0, "silent_s": 0.25}
    assert scale._verdict(row) == "ok"
    for change in (
        {"forwarders_s": 1.6},
        {"up_s": 15.5},
        {"memory_gib": 1.5},
        {"rest_percent": 11.0},
        {"silent_s": 0.4},
        {"silent_s": None},
    ):
        (column,) = change
        assert scale._verdict(row | change).startswith(f"missed: {column} <= ")
    assert scale._verdict(row | {"plane": "python", "memory_gib": 3.9}) == "ok"
    assert scale._verdict(row | {"network": "bcube,8,2", "up_s": 30.0}) == "ok"
    large = row | {"network": "dcell,6,2", "up_s": 40.0, "rest_percent": 35.0, "memory_gib": 5.0}
    assert scale._verdict(large) == "ok"
    assert scale._verdict(large | {"cables_s": 16.0}) == "missed: cables_s <= 15 wanted"


def test_scale_leaves_out_what_there_is_no_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "LARGE_GIB", 1e6)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    row = scale._row(scale.LARGE, "ebpf", quick=False)
    assert row["outcome"] == "skipped: up to 1e+06 GiB of memory are needed"


@pytest.mark.root
def test_soak_sees_a_crash_and_a_loss_that_nobody_counted(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    with running(topos.parse("bcube,2,1"), LabSettings(plane="python"), tmp_path / "lab") as lab:
        lab.wait_converged()
        lab.print_event = lambda sentence: None
        one = soak.Soak(lab, Random(1))
        one._run_without_changes(1.0)
        sent = sum(stream.sent for stream in one.traffic.streams)
        assert soak.STREAMS < sent < 1000
        assert one.losses["unexplained"] < sent  # what a busy machine delivers late looks lost
        one.traffic.streams[0].sent += 5000  # as if they had been lost without a trace
        one._run_without_changes(0.5)
        assert 4000 < one.losses["unexplained"] < 6000
        memory = one._memory_mib()
        os.kill(lab.forwarders.pids[3], signal.SIGSEGV)
        deadline = time.monotonic() + 20
        while not lab.dead:
            assert time.monotonic() < deadline
            one._run_traffic(0.1)
        row = one._row(1.0, memory, idle_percent=50.0)
        assert row["crashed"] >= 1
        assert "crashed" in row["outcome"] and "unexplained" in row["outcome"]
        one.traffic.close()


def test_without_root_they_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    for bench in (scale, soak):
        assert {row["outcome"] for row in bench.run(quick=True)} == {"skipped: a lab needs root"}


def test_lost_are_those_sent_and_not_arrived_since_last_asked() -> None:
    stream = Stream(0, 1, sent=10, judged=4, arrived={4, 5, 9})
    assert stream.lost() == 3
    assert stream.lost() == 0


def test_bytes_of_a_connection_differ_wherever_it_stands() -> None:
    whole = _pattern(0, 20_000)
    assert _pattern(5_000, 700) == whole[5_000:5_700]
    assert len({_pattern(at, 64) for at in range(0, 4000, 64)}) == len(range(0, 4000, 64))


def test_a_short_connection_is_finished_when_all_has_come_back() -> None:
    one: Any = ClientConnection(0, 1, socket.socket(), length=100, moved_s=0.0, sent=100, echoed=99)
    with one.client:
        assert not one.finished
        one.echoed = 100
        assert one.finished
