"""iperf3 in a small live lab: what it delivers, and that nothing that goes wrong is a hang."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pillarbox.experiments.lab.traffic.iperf3 import Iperf3, version
from pillarbox.experiments.lab.traffic.iperf3_handshake import MESSAGES
from pillarbox.experiments.lab.traffic.iperf3_session import FIRST_PORT
from pillarbox.experiments.models.workloads.flows import (
    COMPLETED,
    FAILED,
    Flow,
    FlowResult,
    Sending,
)
from pillarbox.hosts.base.faults import Fault
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments import labs
from tests.experiments.labs import WAIT_S

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = pytest.mark.root

RATE_MBIT = 20.0
VOLUME = 200_000
# The papers' timers do not take a busy machine for a failure.
lab_of = partial(labs.lab_of, rate_mbit=RATE_MBIT, timers="paper")
ENDLESS = Flow(0, 0, 3, duration_s=60.0)
# Listens and accepts as iperf3 would, and never says a word.
SILENT = """#!/usr/bin/python3
import socket, sys
if "--version" in sys.argv:
    print("iperf 3.12 (cJSON 1.7.15)")
elif "--server" in sys.argv:
    option = dict(zip(sys.argv, sys.argv[1:]))
    listener = socket.create_server((option["--bind"], int(option["--port"])))
    accepted = listener.accept()
    accepted[0].recv(0)
    while True:
        listener.accept()
else:
    import os
    os.execvp("iperf3", ["iperf3", *sys.argv[1:]])
"""


def ended(tool: Iperf3) -> list[FlowResult]:
    """Wait for the end, and return what became of the flows."""
    deadline = time.monotonic() + WAIT_S
    while not tool.ended():
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.005)
    return tool.results()


def run(lab: Lab, flows: list[Flow], timeout_s: float = WAIT_S, **options: Any) -> list[FlowResult]:
    with closing(Iperf3(lab, flows, Sending(timeout_s=timeout_s), **options)) as tool:
        tool.prepare()
        tool.start(time.monotonic() + 0.05)
        results = ended(tool)
    assert_nothing_is_left()
    return results


def assert_nothing_is_left() -> None:
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            assert not entry.name.isdecimal() or "iperf3" not in (entry / "comm").read_text()


def test_volumes_and_durations_are_what_was_delivered(tmp_path: Path) -> None:
    flows = [
        Flow(0, 0, 3, volume_bytes=VOLUME),
        Flow(1, 1, 0, volume_bytes=1000),
        Flow(2, 2, 1, duration_s=0.3, start_s=0.2),
        Flow(3, 3, 2, duration_s=0.3),
    ]
    with lab_of("bcube,2,1", tmp_path / "lab") as lab:
        results = run(lab, flows)
    assert [(one.status, one.reason) for one in results] == [(COMPLETED, "")] * 4
    assert [one.flow for one in results] == flows
    assert [one.delivered_bytes for one in results[:2]] == [VOLUME, 1000]
    for one in results:
        assert one.begin_s is not None and one.end_s is not None
        assert one.flow.start_s <= one.begin_s < one.end_s
        assert one.intervals[0].begin_s == one.begin_s and one.intervals[-1].end_s == one.end_s
        assert sum(row.delivered_bytes for row in one.intervals) == one.delivered_bytes
    assert all(one.end_s - one.begin_s <= 0.3001 for one in results[2:])  # type: ignore[operator]
    # More than the cable has carried by then would be bytes counted that were not delivered. The
    # last interval may be a short burst of what had waited.
    for one in (results[0], *results[2:]):
        assert one.end_s is not None
        carried = RATE_MBIT * 1e6 / 8 * (one.end_s - one.flow.start_s)
        assert 0 < one.delivered_bytes < 1.2 * carried
    assert results[3].intervals[0].rtt_us and results[3].intervals[0].cwnd_bytes


def test_progress_grows_until_the_end(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path / "lab") as lab:
        flows = [Flow(0, 0, 1, volume_bytes=VOLUME), Flow(1, 2, 3, duration_s=60.0)]
        with closing(Iperf3(lab, flows, Sending(timeout_s=WAIT_S))) as tool:
            tool.prepare()
            assert [one.messages for one in tool._sessions] == [MESSAGES] * 2
            assert [one.delivered_bytes for one in tool.progress()] == [0, 0]
            tool.start(time.monotonic())
            deadline = time.monotonic() + WAIT_S
            while not (tool.progress()[0].ended and tool.progress()[1].delivered_bytes > VOLUME):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert not tool.ended()
            # Its socket is closed, and what it read beyond its volume is not told.
            assert tool.progress()[0].delivered_bytes == VOLUME
        assert_nothing_is_left()


def test_a_flow_with_a_duration_can_be_ended_before_it_is_over(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path) as lab:
        flow = Flow(0, 0, 1, duration_s=WAIT_S)
        with closing(Iperf3(lab, [flow], Sending(timeout_s=2 * WAIT_S))) as tool:
            tool.prepare()
            tool.start(time.monotonic())
            deadline = time.monotonic() + WAIT_S
            # What iperf3 has read, but not to the end of a block, is lost with a signal.
            while tool.progress()[0].delivered_bytes < VOLUME:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            tool.finish()
            (result,) = ended(tool)
    assert (result.status, result.reason) == (COMPLETED, "")
    assert result.end_s is not None and result.end_s < WAIT_S


def test_a_port_that_is_taken_fails_its_flow_alone(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path / "lab") as lab:
        with lab.host(0).live_namespace():
            taken = socket.create_server((lab.topology.ip(0), FIRST_PORT))
        with taken:
            results = run(lab, [Flow(0, 0, 1, volume_bytes=1), Flow(1, 0, 2, volume_bytes=1)])
    assert [one.status for one in results] == [FAILED, COMPLETED]
    in_use = f"another program listens on the TCP port of its iperf3 server, {FIRST_PORT}"
    assert results[0].reason == in_use


def test_a_server_killed_in_the_middle_fails_its_flow_and_keeps_its_rows(tmp_path: Path) -> None:
    with (
        lab_of("tree,2,2", tmp_path / "lab") as lab,
        closing(Iperf3(lab, [ENDLESS], Sending(timeout_s=WAIT_S))) as tool,
    ):
        tool.prepare()
        tool.start(time.monotonic())
        deadline = time.monotonic() + WAIT_S
        while not tool.progress()[0].delivered_bytes > 3 * VOLUME:  # two intervals or three
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server = tool._sessions[0].server
        assert server is not None
        os.kill(server.pid, 9)
        (result,) = ended(tool)
    assert (result.status, result.reason) == (FAILED, "control socket has closed unexpectedly")
    assert result.delivered_bytes >= VOLUME and result.goodput_bps is None


def test_a_lab_server_that_dies_fails_the_flows_of_both_directions(tmp_path: Path) -> None:
    flows = [ENDLESS, Flow(1, 3, 0, duration_s=60.0), Flow(2, 1, 2, duration_s=0.2)]
    with (
        lab_of("tree,2,2", tmp_path / "lab") as lab,
        closing(Iperf3(lab, flows, Sending(timeout_s=5.0))) as tool,
    ):
        tool.prepare()
        tool.start(time.monotonic())
        lab.kill(3)
        results = ended(tool)
    assert [one.status for one in results] == [FAILED, FAILED, COMPLETED]
    # Its client was killed, or had found the network gone a moment before.
    assert "signal 9" in results[0].reason or results[0].reason == "server 1.1 is dead"
    assert results[1].reason.startswith(("nothing arrived within 5 s", "not ended 5 s after"))


def test_no_client_is_tried_again_on_a_dead_server(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path / "lab") as lab:
        lab.host(3).cmd("ip link set h3-eth0 down")
        with closing(Iperf3(lab, [ENDLESS], Sending())) as tool:
            tool._connect_s = 0.3  # prepare() goes on without it
            tool.prepare()
            tool.start(time.monotonic())
            lab.kill(3)
            (result,) = ended(tool)
    assert result.reason in ("server 1.1 is dead", "its iperf3 client was ended by signal 9")


def test_whoever_never_answers_fails_within_the_timeout(tmp_path: Path) -> None:
    silent = tmp_path / "silent-iperf3"
    silent.write_text(SILENT)
    silent.chmod(0o700)
    with lab_of("tree,2,2", tmp_path / "lab") as lab:
        begun_s = time.monotonic()
        (result,) = run(lab, [Flow(0, 0, 1, volume_bytes=1)], 0.5, program=str(silent))
        assert time.monotonic() - begun_s < WAIT_S
    assert (result.status, result.delivered_bytes) == (FAILED, 0)
    assert result.reason == "nothing arrived within 0.5 s of the barrier"


def test_who_cannot_be_reached_is_tried_again_until_the_end(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path / "lab") as lab:
        fault = lab.begin(Fault("switch", ("s0",)))
        with closing(Iperf3(lab, [Flow(0, 0, 2, volume_bytes=1000)], Sending())) as tool:
            session = tool._sessions[0]
            tool._connect_s = 0.3  # prepare() goes on without it
            tool.prepare()
            tool.start(time.monotonic())
            deadline = time.monotonic() + WAIT_S
            while session.result.tries < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            lab.end(fault)
            (result,) = ended(tool)
    assert (result.status, result.delivered_bytes) == (COMPLETED, 1000)
    assert result.tries >= 2


def test_a_server_that_ends_at_once_is_told_in_its_own_words(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path / "lab") as lab:
        with lab.host(0).live_namespace():
            taken = socket.socket()
            taken.bind((lab.topology.ip(0), FIRST_PORT))  # and nobody can know of it beforehand
        with taken:
            (result,) = run(lab, [Flow(0, 0, 1, volume_bytes=1)])
    assert result.status == FAILED
    assert "Address already in use" in result.reason


def test_no_congestion_control_of_that_name_is_a_reason(tmp_path: Path) -> None:
    with (
        lab_of("tree,2,2", tmp_path / "lab") as lab,
        closing(Iperf3(lab, [ENDLESS], Sending(congestion="nope", timeout_s=5.0))) as tool,
    ):
        tool.prepare()
        tool.start(time.monotonic())
        (result,) = ended(tool)
    assert result.status == FAILED
    assert "congestion" in result.reason.lower()


def test_no_iperf3_or_one_too_old_is_said(tmp_path: Path) -> None:
    with pytest.raises(PillarboxError, match="install"):
        version(str(tmp_path / "none"))
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'iperf 3.7 (cJSON)'\n")
    old.chmod(0o700)
    with pytest.raises(PillarboxError, match=r"3\.7 is too old: install 3\.9"):
        version(str(old))
