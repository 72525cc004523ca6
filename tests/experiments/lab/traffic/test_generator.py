"""The generator's loop over connections of this machine, without a lab: how flows end, and why."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from pillarbox.experiments.lab.linux import mptcp
from pillarbox.experiments.lab.traffic.generator import check_congestion_control, interval_length_s
from pillarbox.experiments.lab.traffic.generator_sockets import FlowConnection
from pillarbox.experiments.lab.traffic.generator_worker import (
    PAUSE_S,
    ROW,
    SUBFLOW_ROW,
    FlowEventLoop,
    ServerDeathReader,
    allow_open_files,
)
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED, Flow
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.lab.traffic.connections import connected, task_of

TIMEOUT_S = 0.3
NEVER_BYTES = 1 << 50
NAMES = {"0.0": 0, "0.1": 1}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The event log of a lab in which nothing has happened yet."""
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "up"}\n')
    return path


class Run:
    """A loop over some connections, until its end."""

    def __init__(self, connections: list[FlowConnection], log: Path, timeout_s: float) -> None:
        task = task_of(len(connections), NAMES, timeout_s)
        self.loop = FlowEventLoop(
            connections, task, ServerDeathReader(str(log), log.stat().st_size, NAMES)
        )
        os.close(task["board"])
        self.cost = self.loop.run(time.monotonic())
        self.outcomes = [self.loop.flow_result_fields(one) for one in connections]
        self.board = (list(self.loop._delivered), list(self.loop._ended))
        for one in connections:
            one.close()

    def rows(self, number: int) -> list[tuple[Any, ...]]:
        return [row[1:] for row in ROW.iter_unpack(self.loop.rows) if row[0] == number]


def run(*connections: FlowConnection, log: Path, timeout_s: float = TIMEOUT_S) -> Run:
    return Run(list(connections), log, timeout_s)


@pytest.mark.parametrize("sends", [True, False])
def test_a_process_that_only_receives_lets_much_gather(
    sends: bool, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(
        "pillarbox.experiments.lab.traffic.generator_worker.time.sleep", pauses.append
    )
    whole = connected(Flow(0, 0, 1, 3_000_000))
    assert whole.sender is not None
    if sends:
        done = run(whole, log=log, timeout_s=20.0)
    else:
        whole.sender.setblocking(True)
        sending = threading.Thread(target=whole.sender.sendall, args=[bytes(3_000_000)])
        sending.start()
        done = run(
            FlowConnection(whole.flow, None, whole.receiver, tries=1), log=log, timeout_s=20.0
        )
        sending.join()
        whole.close()
    assert done.board == ([3_000_000], [1])
    assert (PAUSE_S in pauses) != sends


def test_volumes_are_delivered_to_the_last_byte(log: Path) -> None:
    volumes = (1, 100_000, 3_000_001)
    flows = [Flow(number, 0, 1, volume) for number, volume in enumerate(volumes)]
    done = run(*map(connected, flows), log=log, timeout_s=20.0)
    assert done.board == (list(volumes), [1, 1, 1])
    for volume, outcome, number in zip(volumes, done.outcomes, range(3), strict=True):
        status, reason, begin_s, end_s, delivered, retransmits, tries, connect_s, *_ = outcome
        assert connect_s is None  # connected before, not by the worker
        assert (status, reason, delivered, retransmits, tries) == (COMPLETED, "", volume, 0, 1)
        assert 0 <= begin_s <= end_s
        rows = done.rows(number)
        assert sum(row[2] for row in rows) == volume
        assert [row[0] for row in rows[1:]] == [row[1] for row in rows[:-1]]  # without a gap
        assert rows[-1][1] == pytest.approx(end_s, abs=1e-5)


def test_durations_last_and_late_flows_wait(log: Path) -> None:
    flows = [Flow(0, 0, 1, duration_s=0.4), Flow(1, 0, 1, duration_s=0.4, start_s=0.05)]
    done = run(*map(connected, flows), log=log, timeout_s=20.0)
    for flow, (status, _, begin_s, end_s, delivered, *_) in zip(flows, done.outcomes, strict=True):
        assert status == COMPLETED
        assert begin_s >= flow.start_s
        assert end_s >= flow.start_s + 0.4
        assert delivered == sum(row[2] for row in done.rows(flow.number)) > 0
    assert done.rows(1)[0][0] >= 0.05


def test_silence_ends_at_the_timeout(log: Path) -> None:
    mute = connected(Flow(0, 0, 1, NEVER_BYTES))
    timed = connected(Flow(1, 0, 1, duration_s=0.1))
    real = mute.receiver, timed.receiver
    # To these, nothing ever comes.
    mute.receiver, timed.receiver = (socket.create_server(("127.0.0.1", 0)) for _ in real)
    done = run(mute, timed, log=log)
    assert done.outcomes[0][:2] == [
        FAILED,
        f"no end within 0.3 s: 0 of {NEVER_BYTES} bytes delivered",
    ]
    assert done.outcomes[1][:2] == [FAILED, "nothing arrived in 0.1 s"]
    for end in real:
        assert end is not None
        end.close()


def test_endless_flow_tells_how_far_it_came(log: Path) -> None:
    done = run(connected(Flow(0, 0, 1, NEVER_BYTES)), log=log)
    status, reason, begin_s, end_s, delivered, *_ = done.outcomes[0]
    assert (status, end_s) == (FAILED, None)
    assert begin_s is not None
    assert re.search(
        rf"{delivered} of {NEVER_BYTES} bytes delivered, the last at \d+\.\d s", reason
    )


def test_broken_connections_have_a_reason(log: Path) -> None:
    reset, closed, sent = (connected(Flow(number, 0, 1, 10_000)) for number in range(3))
    for one in (reset, sent):  # their far ends are somebody else's, and abort
        with socket.create_server(("127.0.0.1", 0)) as listener:
            far = socket.create_connection(listener.getsockname())
            assert one.sender is not None
            one.sender.close()
            one.sender, _ = listener.accept()
            one.sender.setblocking(False)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if one is reset:
            far.close()
        else:  # only once everything has been sent
            threading.Timer(0.05, far.close).start()
    assert closed.sender is not None
    closed.sender.shutdown(socket.SHUT_WR)
    done = run(reset, closed, sent, log=log, timeout_s=20.0)
    assert [outcome[0] for outcome in done.outcomes] == [FAILED] * 3
    for outcome in done.outcomes:
        assert outcome[1].startswith(("its connection broke: ", "its connection was closed"))


def test_death_of_a_server_ends_its_flows(log: Path) -> None:
    log_it = f"{json.dumps({'event': 'kill', 'server': '0.1'})}\n"
    half = len(log_it) // 2

    def kill() -> None:
        with log.open("a", buffering=1) as opened:
            opened.write('{"event": "kill", "server": "7.7"}\n' + log_it[:half])
            opened.flush()
            time.sleep(0.1)  # a line that is not whole yet is none
            opened.write(log_it[half:])

    killer = threading.Timer(0.05, kill)
    killer.start()
    flows = [Flow(0, 0, 1, NEVER_BYTES), Flow(1, 0, 0, duration_s=0.3)]
    done = run(*map(connected, flows), log=log, timeout_s=20.0)
    killer.join()
    assert done.outcomes[0][:2] == [FAILED, "server 0.1 died"]
    assert done.outcomes[1][0] == COMPLETED


def test_flow_that_was_never_connected_stays_failed(log: Path) -> None:
    lost, good = FlowConnection(Flow(0, 0, 1, 10)), connected(Flow(1, 0, 1, 10))
    lost.fail("could not connect: No route to host")
    done = run(lost, good, log=log, timeout_s=20.0)
    assert done.outcomes[0][:2] == [FAILED, "could not connect: No route to host"]
    assert done.outcomes[1][0] == COMPLETED
    assert done.board == ([0, 10], [1, 1])


def test_intervals_are_longer_where_flows_are_many() -> None:
    assert interval_length_s(10, 0.1) == interval_length_s(500, 0.1) == 0.1
    assert interval_length_s(501, 0.1) == 0.2
    assert interval_length_s(20_000, 1.0) == 4.0
    with pytest.raises(PillarboxError, match="more than 0"):
        interval_length_s(1, 0.0)


def test_what_this_machine_cannot_is_said() -> None:
    check_congestion_control("reno")
    with pytest.raises(PillarboxError, match=r"congestion control 'nosuch': choose .*reno"):
        check_congestion_control("nosuch")
    allow_open_files(1)
    with pytest.raises(ValueError, match="need 1000000000000 open files"):
        allow_open_files(10**12)


@pytest.mark.skipif(bool(mptcp.missing()), reason=mptcp.missing())
@pytest.mark.parametrize(
    ("listens", "fell_back"), [(socket.IPPROTO_TCP, True), (socket.IPPROTO_MPTCP, False)]
)
def test_a_fallback_to_tcp_is_reported(listens: int, fell_back: bool, log: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, listens) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP)
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
    for end in (sender, receiver):
        end.setblocking(False)
    one = FlowConnection(Flow(0, 0, 1, 3_000_000), sender, receiver, tries=1)
    task = {**task_of(1, NAMES, 20.0), "multipath": True}
    deaths = ServerDeathReader(str(log), log.stat().st_size, NAMES)
    loop = FlowEventLoop([one], cast("Any", task), deaths)
    os.close(task["board"])
    loop.run(time.monotonic())
    *_, delivered, _, _, _, _, found, _ = loop.flow_result_fields(one)
    assert (delivered, found) == (3_000_000, fell_back)
    rows = list(SUBFLOW_ROW.iter_unpack(loop.subflow_rows))
    assert bool(rows) is not fell_back
    assert fell_back or sum(row[5] for row in rows) > 0
    one.close()
