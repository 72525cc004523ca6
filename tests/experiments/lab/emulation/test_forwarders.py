"""How the forwarders of a lab start: some at a time, and patient with those that start later."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation import forwarders
from pillarbox.experiments.lab.emulation.defaults import chosen_plane
from pillarbox.hosts.live.settings import MOST_AT_ONCE, LabSettings
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.labs import EBPF, WAIT_S, lab_of, wait_until

pytestmark = pytest.mark.root

SERVERS = list(range(200))
NOTHING_S = 0.2  # so long it is watched that nothing comes, which would come at once
PATIENCE_S = 2.0
NO_PROCESS = 1 << 22  # larger than any process id (PID_MAX_LIMIT)


class Nursery:
    """Stands for the process, starts nobody, and tells what it is told to."""

    def __init__(self, command: list[str], **_: Any) -> None:
        self._lab = socket.socket(fileno=os.dup(int(command[-2])))
        self._lab.settimeout(WAIT_S)
        self.start_s = 0.0  # as the last message said
        self.gates: list[int] = []  # of forwarders that are to wait
        self.pid = NO_PROCESS

    def asked(self) -> list[Any]:
        """Return the servers of the next message, or its event."""
        data, files, _, _ = socket.recv_fds(self._lab, 1 << 16, MOST_AT_ONCE + 1)
        request = json.loads(data)
        if "event" in request:
            return [request["event"]]
        if request["waits"]:
            self.gates.append(files.pop())
        for each in files:
            os.close(each)
        self.start_s = request["start_s"]
        servers: list[int] = request["servers"]
        return servers

    def has_another(self) -> bool:
        return bool(select.select([self._lab], [], [], NOTHING_S)[0])

    def tell_ready(self, servers: list[int]) -> None:
        for server in servers:
            news = {"server": server, "pid": NO_PROCESS, "event": "ready", "tun": -1}
            self._lab.send(json.dumps(news).encode())

    def wait(self, _: float) -> None:
        self._lab.close()


def _started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[forwarders.Forwarders, Nursery]:
    made: list[Nursery] = []

    def popen(*words: Any, **others: Any) -> Nursery:
        made.append(Nursery(*words, **others))
        return made[0]

    monkeypatch.setattr(forwarders.subprocess, "Popen", popen)
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    settings = LabSettings(routing="dfr", plane="python")
    started = forwarders.Forwarders(
        topos.parse("dcell,4,2"), settings, 0, tmp_path, lambda _: here, lambda *_: None
    )
    (nursery,) = made
    assert nursery.asked() == []  # but it can prepare
    return started, nursery


def test_forwarders_that_were_forked_wait_for_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, nursery = _started(tmp_path, monkeypatch)
    started.fork(SERVERS)
    asked: list[int] = []
    while asked != SERVERS:
        asked += nursery.asked()
    assert nursery.start_s == forwarders.start_limit_s(len(SERVERS))

    def opened() -> int:
        return len(select.select(nursery.gates, [], [], NOTHING_S)[0])

    assert opened() == 0
    starting = threading.Thread(target=started.start, args=[SERVERS])
    starting.start()
    wait_until(lambda: opened() == 2, "two groups start")
    nursery.tell_ready(SERVERS[:MOST_AT_ONCE])
    wait_until(lambda: opened() == 3, "a third group starts")
    nursery.tell_ready(SERVERS)
    starting.join(WAIT_S)
    assert not starting.is_alive() and opened() == len(nursery.gates)
    assert not nursery.has_another()
    for each in nursery.gates:
        os.close(each)
    started.kill_all()
    started.close()


def test_only_so_many_start_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, nursery = _started(tmp_path, monkeypatch)
    starting = threading.Thread(target=started.start, args=[SERVERS])
    starting.start()
    asked = nursery.asked() + nursery.asked()
    for ready in range(0, len(SERVERS) - 2 * MOST_AT_ONCE, MOST_AT_ONCE):
        assert not nursery.has_another()
        nursery.tell_ready(SERVERS[ready : ready + MOST_AT_ONCE])
        asked += nursery.asked()
    assert asked == SERVERS
    assert nursery.start_s == forwarders.start_limit_s(len(SERVERS))
    assert starting.is_alive()
    nursery.tell_ready(SERVERS)
    starting.join(WAIT_S)
    assert not starting.is_alive()
    started.end_start()
    assert nursery.asked() == ["all started"]
    # A server that is revived later excuses its neighbours for a short time, even if all are dead.
    revival = threading.Thread(target=started.start, args=[SERVERS[:1]])
    revival.start()
    assert nursery.asked() == SERVERS[:1] and nursery.start_s == forwarders.START_EACH_S
    nursery.tell_ready(SERVERS[:1])
    revival.join(WAIT_S)
    started.kill_all()
    started.close()


@EBPF
def test_kernel_settings_return_only_when_all_forwarders_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[int] = []

    class Settings:
        def end(self) -> None:
            alive.extend(pid for pid in pids if not _has_ended(pid))

    monkeypatch.setattr(forwarders, "KernelSettings", Settings)
    with lab_of("dcell,4,1", tmp_path, plane="ebpf") as lab:
        assert lab.forwarders
        pids = [*lab.forwarders.pids.values()]
        assert len(pids) == lab.topology.servers
    assert not alive


def _has_ended(pid: int) -> bool:
    """Return True if a process has ended, even if its parent does not know yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@EBPF
def test_who_was_never_heard_is_missed_once_all_have_had_time_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric

    for limit in ("START_S", "START_EACH_S"):
        monkeypatch.setattr(forwarders, limit, PATIENCE_S)
    monkeypatch.setattr(forwarders, "may_raise_priority", lambda: False)  # others are not forked
    lab = Lab(topos.parse("dcell,4,1"), LabSettings(plane="ebpf"), tmp_path, fabric=LocalFabric())
    try:
        lab.net.start()
        assert lab.forwarders
        begin_s = time.monotonic()
        lab.forwarders.start([0])
        wait_until(lambda: not any(one["up"] for one in lab.state(0)["links"]), "all are missed")
        assert all(news["at_s"] > begin_s + PATIENCE_S for news in lab.state(0)["news"])
        lab.forwarders.start(lab.here()[1:])
        lab.wait_converged()
        assert not lab.state(0)["down"]
    finally:
        lab.stop()


def test_a_machine_without_tun_has_only_the_python_plane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.hosts.live.devices.TUN", tmp_path / "tun")
    assert chosen_plane("auto") == "python"
    with pytest.raises(PillarboxError, match="modprobe tun"):
        chosen_plane("ebpf")
