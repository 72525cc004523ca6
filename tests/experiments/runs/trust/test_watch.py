"""Watching live labs: what is seen is what happened."""

from __future__ import annotations

import os
import signal
import socket
import time
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pillarbox.experiments.lab.linux.kernel_settings import KernelSettings
from pillarbox.experiments.models.workloads.flows import Flow, Sending
from pillarbox.experiments.runs.trust import Readings, Watch
from pillarbox.experiments.runs.trust import canary as singing
from pillarbox.experiments.runs.trust import canary_pacer as pacing
from pillarbox.experiments.runs.trust.canary import Canary
from pillarbox.experiments.runs.trust.canary_pacer import CanaryPacer
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments import labs

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = pytest.mark.root

RATE_MBIT = 5.0
lab_of = partial(labs.lab_of, "bcube,2,1", rate_mbit=RATE_MBIT, timers="paper")
DEADLINE_S = 30.0
# Of a full segment: Ethernet's, BCube's, IP's and TCP's. A queue counts those of each segment, a
# port those of a super-packet once.
WITH_HEADERS = (14 + 36 + 52 + 1448) / 1448


def watched(lab: Lab, pairs: list[tuple[int, int]], duration_s: float = 1.5) -> Readings:
    """Return the readings of greedy flows."""
    from pillarbox.experiments.lab.traffic.generator import Generator

    flows = [Flow(n, a, b, duration_s=duration_s) for n, (a, b) in enumerate(pairs)]
    generator = Generator(lab, flows, Sending())
    try:
        generator.prepare()
        with Watch(lab) as watch:
            at_s = time.monotonic() + 0.1
            watch.begin(at_s)
            generator.start(at_s)
            wait_for(generator.ended)
            so_far = watch.so_far()
            readings = watch.end()
            assert so_far and so_far.duration_s < readings.duration_s
            assert 0 < so_far.round_trip.times <= readings.round_trip.times
            assert watch.so_far() is None
            return readings
    finally:
        generator.close()


def wait_for(happened: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def row(readings: Readings, sender: str, port: int) -> dict[str, Any]:
    (found,) = [one for one in readings.links if (one["from"], one["port"]) == (sender, port)]
    return found


def test_what_is_seen_is_what_happened(tmp_path: Path) -> None:
    with lab_of(tmp_path) as lab:
        before = lab.fabric.bytes_sent()
        readings = watched(lab, [(0, 1)])
        sent = lab.fabric.bytes_sent()["h0-eth0"] - before["h0-eth0"]
    used, unused = row(readings, "0.0", 0), row(readings, "0.0", 1)
    assert len(readings.links) == 2 * lab.topology.cables
    assert used["to"] == "s0"
    # The port was looked at before and after; what it sent outside of the watch is the rest.
    assert 0.5 * sent < used["sent_bytes"] <= sent * WITH_HEADERS
    assert of_its_rate(readings, used, RATE_MBIT)
    assert unused["busy_share"] < 0.1 < used["busy_share"]
    assert unused["conserved"] is None
    assert readings.faults == 0
    # Turns that were slept over count: there are as many as the time has room for.
    turns = readings.lateness.times
    assert 0 < readings.round_trip.times <= turns
    assert turns * singing.INTERVAL_S > 0.5 * readings.duration_s
    # One at the beginning, one for each of the two reports, and one after the first.
    assert 2 < readings.samples <= readings.duration_s / readings.interval_s + 4


def of_its_rate(readings: Readings, row: dict[str, Any], rate_mbit: float) -> bool:
    """Tell whether a cable sent at that rate, and not at twice or half of it.

    It cannot send more; a machine that stands still for a moment lets it send less.
    """
    calm = readings.foreign < 0.1 and readings.idle > 0.1 and readings.lateness.most_s < 0.02
    least = 0.95 if calm else 0.75
    return least * rate_mbit < row["conserved"] * RATE_MBIT < 1.05 * rate_mbit


def test_a_cable_that_does_not_keep_its_rate_is_found(tmp_path: Path) -> None:
    with lab_of(tmp_path) as lab:
        lab.host(0).intf("h0-eth0").config(bw=RATE_MBIT / 2)  # and nobody is told
        readings = watched(lab, [(0, 1), (2, 3)])
    assert of_its_rate(readings, row(readings, "0.0", 0), RATE_MBIT / 2)
    assert of_its_rate(readings, row(readings, "1.0", 0), RATE_MBIT)


def test_drops_outside_the_queues_and_faults_are_counted(tmp_path: Path) -> None:
    with lab_of(tmp_path, plane="python") as lab, Watch(lab) as watch:
        watch.begin(time.monotonic())
        mac = lab.topology.mac_number(0, 0).to_bytes(6, "big")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as port:
            port.bind(("s0-eth0", 0))
            for _ in range(50):  # of a protocol that nobody on a server speaks
                port.send(mac + bytes.fromhex("0200000000ff9999") + bytes(50))
        wait_for(lambda: dropped_at_port(lab) >= 50)
        lab.end(lab.cut(0, lab.topology.servers))
        readings = watch.end()
    assert readings.strays["h0-eth0 in"] == 50
    assert readings.faults == 2


def dropped_at_port(lab: Lab) -> int:
    """Return how many packets the first port of server 0 has dropped on their way in."""
    with lab.host(0).live_namespace():
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    (line,) = [line for line in lines if line.strip().startswith("h0-eth0:")]
    return int(line.split(":")[1].split()[3])


def test_without_a_rate_there_is_nothing_to_say_of_cables(tmp_path: Path) -> None:
    with lab_of(tmp_path, rate_mbit=None) as lab, Watch(lab) as watch:
        watch.begin(time.monotonic())
        readings = watch.end()
    assert (readings.rate_bps, readings.links) == (None, [])


def test_a_watcher_that_dies_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with lab_of(tmp_path) as lab, Watch(lab) as watch:
        watch.begin(time.monotonic())
        assert len(watchers()) == 3  # the watcher, the canary and its echo
        os.kill(watch._process.pid, signal.SIGKILL)
        with pytest.raises(PillarboxError, match="cannot be judged"):
            watch.end()
        wait_for(lambda: not watchers())


def test_a_watch_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    with lab_of(tmp_path) as lab:
        with Watch(lab):
            assert watchers()
        wait_for(lambda: not watchers())


def watchers() -> list[str]:
    """Return the watching processes of this sandbox."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"import watcher" in entry.read_bytes():
                found.append(entry.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_canary_hears_that_nobody_had_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(singing, "GATHER_S", DEADLINE_S)
    canary = Canary()
    told, tell = Pipe()
    begin_s = time.monotonic()
    os.kill(canary.echo, signal.SIGSTOP)
    stopped_s = 0.1

    def answer_later(*_: object) -> None:
        os.kill(canary.echo, signal.SIGCONT)
        signal.signal(signal.SIGALRM, end_when_heard)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)

    def end_when_heard(*_: object) -> None:
        if len(canary._round_trips) > 2 * stopped_s / singing.INTERVAL_S:
            signal.setitimer(signal.ITIMER_REAL, 0)
            tell.send(None)

    signal.signal(signal.SIGALRM, answer_later)
    signal.setitimer(signal.ITIMER_REAL, stopped_s)
    heard = canary.sing(begin_s, told)
    os.kill(canary.echo, signal.SIGKILL)
    assert heard.round_trip.most_s > 0.9 * stopped_s
    assert heard.lost == 0
    # Each turn counts, those that were slept over as well; the first of them waited longest.
    assert heard.round_trip.times == heard.lateness.times
    assert heard.round_trip.median_s < heard.round_trip.most_s


def test_a_pacer_does_not_mind_that_its_program_is_late_nor_that_ports_send_in_bursts() -> None:
    with KernelSettings():
        pacer = CanaryPacer()
        begin_s = time.monotonic()
        pacer.tend()
        time.sleep(0.4)  # nobody tends it
        untended_s = 0.35  # what was due at the very end may not be back
        late, lost = pacer.heard(begin_s, begin_s + untended_s)
        assert late.times + lost == pytest.approx(untended_s / pacing.INTERVAL_S, abs=1)  # rounding
        # Half as late as the program was would be its own lateness, not the kernel's.
        assert late.times > lost
        assert late.median_s < untended_s / 4
        assert late.median_s <= late.p99_s <= late.most_s
