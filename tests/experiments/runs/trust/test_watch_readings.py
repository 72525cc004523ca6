"""What a watch makes of a report and of a lab's settings, without a lab."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.linux import shaping
from pillarbox.experiments.models import port_bursts
from pillarbox.experiments.runs.trust import watch as watching
from pillarbox.experiments.runs.trust.canary import CanaryReport
from pillarbox.experiments.runs.trust.machine import ProcessorLoad
from pillarbox.experiments.runs.trust.queues import Counted
from pillarbox.experiments.runs.trust.readings import DurationStatistics
from pillarbox.experiments.runs.trust.watch import (
    Watch,
    _Direction,
    _ForwarderCounters,
    base_rtt_s,
    enough_bytes,
    faults_since,
)
from pillarbox.experiments.runs.trust.watcher import WatchOrder, WatchReport
from pillarbox.topos.base.errors import PillarboxError


def lab_of(spec: str = "bcube,4,1", **settings: Any) -> Any:
    values = {"rate_mbit": 100.0, "mtu": 1500, "delay": ""} | settings
    return SimpleNamespace(settings=SimpleNamespace(**values), topology=topos.parse(spec))


def test_a_port_with_more_than_two_super_packets_is_backlogged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shaping, "kernel_has_netem", lambda: True)
    two = 2 * port_bursts.super_packet_bytes(100.0, 1500)
    assert enough_bytes(lab_of()) == two
    assert enough_bytes(lab_of(delay="2ms")) == two + 25_000  # 100 Mbit/s x 2 ms
    assert enough_bytes(lab_of(delay="1s")) == two + 12_500_000
    without = enough_bytes(lab_of(delay="2ms", rate_mbit=None))
    assert without == 2 * port_bursts.super_packet_bytes(None, 1500)
    monkeypatch.setattr(shaping, "kernel_has_netem", lambda: False)
    assert enough_bytes(lab_of(delay="2ms")) == two


@pytest.mark.parametrize(
    ("spec", "settings", "milliseconds"),
    [
        ("bcube,4,1", {}, 2 * 2 * 1514 * 8 / 1e5),
        ("dcell,4,1", {}, 2 * 1514 * 8 / 1e5),
        ("bcube,4,1", {"delay": "2ms"}, 2 * 2 * (2 + 1514 * 8 / 1e5)),
        ("bcube,4,1", {"rate_mbit": None, "delay": "2ms"}, 8),
        ("bcube,4,1", {"rate_mbit": None}, 0),
    ],
)
def test_round_trip_of_an_idle_network(
    spec: str, settings: dict[str, Any], milliseconds: float
) -> None:
    assert base_rtt_s(lab_of(spec, **settings)) * 1e3 == pytest.approx(milliseconds)


EVENTS = [
    {"at_s": 1.0, "event": "cut"},
    {"at_s": 2.0, "event": "cut"},
    {"at_s": 3.0, "event": "heal"},
    {"at_s": 3.0, "event": "late"},
    {"at_s": 4.0, "event": "ready"},
]


def test_faults_and_repairs_count_from_the_beginning_on(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in EVENTS))
    assert [faults_since(tmp_path, at_s) for at_s in (0.0, 2.0, 2.5, 3.5)] == [3, 2, 1, 0]


PORTS = [
    Counted(1_000_000, 700, 3, 0.5, 6_250_000),
    None,
    Counted(99_000_000, 5, 0, 0.5, 3_125_000),
]
TIMES = [DurationStatistics(n, n / 1e3, n / 1e2, n / 10) for n in (1, 2, 3)]


def watch_of(folder: Path, plane: str, **settings: Any) -> Any:
    """Return a watch of three ports, the last of a cable whose rate was changed to 50 Mbit/s."""
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in EVENTS))
    lab = lab_of(**settings)
    lab.folder, lab.plane, lab.name = folder, plane, lab.topology.node_name
    lab.status = lambda: {"drops": {"TTL expired": 9}, "link_losses": 7}
    changed = {frozenset({"h2", "s0"}): SimpleNamespace(rate_mbit=50.0)}
    lab.net = SimpleNamespace(shapes=SimpleNamespace(changed=changed))
    watch = Watch.__new__(Watch)
    watch._lab, watch._begin_s = lab, 2.0
    watch._before = _ForwarderCounters(Counter({"forwarders: TTL expired": 4}), 5)
    watch._directions = [_Direction(server, 0, 16, 0, "", server) for server in range(3)]
    return watch


@pytest.mark.parametrize("plane", ["python", "ebpf"])
def test_readings_of_a_report(plane: str, tmp_path: Path) -> None:
    report = WatchReport(
        2.0, 50, 0.04, PORTS, ProcessorLoad(0.1, 0.2, 0.3, 0.4),
        CanaryReport(TIMES[0], 5, TIMES[1], TIMES[2], 6), {"s0-eth1 in": 2}, 0.01,
    )  # fmt: skip
    found = watch_of(tmp_path, plane)._readings(report)
    assert (found.duration_s, found.samples, found.interval_s) == (2.0, 50, 0.04)
    assert (found.rate_bps, found.base_rtt_s) == (1e8, base_rtt_s(lab_of()))
    assert (found.round_trip, found.lateness, found.pacing) == tuple(TIMES)
    assert (found.lost, found.pacing_lost) == (5, 6)
    assert (found.pressure, found.steal, found.idle, found.foreign) == (0.1, 0.2, 0.3, 0.4)
    assert found.programs_forward == (plane == "python")
    assert (found.packets, found.faults, found.link_losses, found.watching) == (705, 2, 2, 0.01)
    assert found.strays == {"s0-eth1 in": 2, "forwarders: TTL expired": 5}
    first, last = found.links
    assert (first["from"], first["to"], first["port"]) == ("h0", "s0", 0)
    assert (first["sent_bytes"], first["dropped_packets"], first["rate_bps"]) == (10**6, 3, 1e8)
    assert first["busy_share"] == pytest.approx(8e6 / (1e8 * 2))
    assert first["conserved"] == pytest.approx(1.0)
    assert (last["from"], last["rate_bps"], last["busy_share"]) == ("h2", 5e7, 1.0)
    assert last["conserved"] is None


def test_cables_without_a_rate_have_no_rows(tmp_path: Path) -> None:
    rows = watch_of(tmp_path, "python", rate_mbit=None)._link_rows(PORTS, None, 2.0)
    assert [row["from"] for row in rows] == ["h2"]


@pytest.mark.parametrize(
    ("rate_mbit", "come_and_go", "rate_bytes_s"),
    [(100.0, True, 12_500_000), (100.0, False, 0), (None, True, 0)],
)
def test_ports_are_watched_for_empty_queues_if_flows_come_and_go(
    rate_mbit: float | None,
    come_and_go: bool,
    rate_bytes_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders: list[WatchOrder] = []
    ports = [_Direction(0, 0, 16, 9, "h0", 2), _Direction(1, 0, 16, 5, "h1", 2)]
    ports.append(_Direction(0, 1, 17, 9, "h0", 3))
    monkeypatch.setattr(watching, "_directions", lambda _: ports)
    monkeypatch.setattr(watching, "enough_bytes", lambda _: 7)
    monkeypatch.setattr(watching.subprocess, "Popen", lambda *_, **__: None)
    monkeypatch.setattr(Watch, "_send", lambda _, order: orders.append(order))
    monkeypatch.setattr(Watch, "_receive", lambda _: None)
    lab = lab_of(rate_mbit=rate_mbit)
    lab.status = lambda: {"drops": {}, "link_losses": 0}
    watch = Watch(lab, come_and_go=come_and_go)
    places = [(5, "h1", [2]), (9, "h0", [2, 3])]
    assert orders == [WatchOrder(places, 7, rate_bytes_s)]
    with pytest.raises(PillarboxError, match="call begin before end"):
        watch.end()
    Watch(lab)
    assert orders[-1].rate_bytes_s == 0  # flows are greedy by default


def test_every_port_of_this_machine_is_one_direction() -> None:
    def node(name: str, number: int, is_server: bool) -> Any:
        ports = {port: SimpleNamespace(ifindex=10 * number + port) for port in range(2)}
        place = SimpleNamespace(descriptor=number if is_server else 99)
        return SimpleNamespace(
            name=name, inNamespace=is_server, intfs=ports, live_namespace=lambda: place
        )

    lab = lab_of("bcube,2,1")  # 4 servers; switches 4 to 7, of which switch 4 joins servers 0 and 1
    lab.net = {"h0": node("h0", 0, True), "h1": node("h1", 1, True), "s0": node("s0", 4, False)}
    assert [*watching._directions(lab)] == [
        _Direction(0, 0, 4, 0, "h0", 0),
        _Direction(0, 1, 6, 0, "h0", 1, level=1),
        _Direction(1, 0, 4, 1, "h1", 10),
        _Direction(1, 1, 7, 1, "h1", 11, level=1),
        _Direction(4, 0, 0, 99, "", 40),
        _Direction(4, 1, 1, 99, "", 41),
    ]
