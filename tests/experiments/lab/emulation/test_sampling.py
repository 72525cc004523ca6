"""What a sample of a running lab counts: pings, where they went and nowhere else."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import small

pytestmark = pytest.mark.root

PINGS, PING_BYTES = 40, 1000
SENT = PINGS * PING_BYTES


def carried(before: dict[str, Any], after: dict[str, Any], key: str) -> list[int]:
    return [new - old for old, new in zip(before[key], after[key], strict=True)]


@pytest.mark.parametrize("spec", small())
def test_pings_are_counted_on_the_cables_that_they_took(spec: str, tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.experiments.lab.emulation.sampling import LabSampler

    with running(topos.parse(spec), LabSettings(), tmp_path / "lab") as lab:
        lab.wait_converged()
        topology, sampler = lab.topology, LabSampler(lab)
        cables = list(topology.links())
        source, destination = 0, topology.servers - 1
        # The first one waits for servers to decide; a flood would not wait for it.
        to = f"-s {PING_BYTES} {topology.ip(destination)}"
        assert "1 received" in lab.host(source).cmd(f"ping -c 1 {to}")
        before = sampler.sample()
        assert f"{PINGS} received" in lab.host(source).cmd(f"ping -f -c {PINGS} {to}")
        after = sampler.sample(before["log_to"])
    sent = carried(before, after, "sent_bytes")
    # What passes through a node comes in and goes out again, all but what ends there.
    into, out_of = [0] * topology.nodes, [0] * topology.nodes
    for cable, (from_a, from_b) in zip(
        cables, zip(sent[::2], sent[1::2], strict=True), strict=True
    ):
        for sender, receiver, count in ((cable.a, cable.b, from_a), (cable.b, cable.a, from_b)):
            out_of[sender] += count
            into[receiver] += count
    passed = [min(pair) for pair in zip(into, out_of, strict=True)]
    busy = [node for node, count in enumerate(passed) if count > SENT // 4]
    assert {source, destination} < set(busy)
    assert all(abs(into[node] - out_of[node]) < SENT // 4 for node in busy)
    assert all(passed[node] > SENT for node in (source, destination))
    received = carried(before, after, "received_bytes")
    assert [server for server, count in enumerate(received) if count > SENT] == [
        source,
        destination,
    ]


def test_faults_and_the_log_are_in_it(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.experiments.lab.emulation.sampling import LabSampler

    with running(topos.parse("dcell,4,1"), LabSettings(), tmp_path / "lab") as lab:
        sampler = LabSampler(lab)
        first = sampler.sample()
        lab.cut(lab.node("0.3"), lab.node("4.0"))
        lab.kill(lab.server("1.1"))
        second = sampler.sample(first["log_to"])
        third = sampler.sample(second["log_to"])
    assert [json.loads(line)["event"] for line in first["log"]] == ["up"]
    assert second["faults"] == [["cut", "0.3", "4.0"]]
    assert second["dead"] == ["1.1"]
    events = [json.loads(line) for line in second["log"]]
    assert [event["event"] for event in events][:2] == ["cut", "kill"]
    assert first["at_s"] < events[0]["at_s"] < second["at_s"]
    assert third["log"] == []


def test_what_waits_and_is_dropped_is_at_the_port_where_it_does(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.experiments.lab.emulation.sampling import LabSampler

    slow = LabSettings(rate_mbit=1.0, queue_length="5 packets")
    with running(topos.parse("bcube,2,1"), slow, tmp_path / "lab") as lab:
        lab.wait_converged()
        sampler = LabSampler(lab)
        assert lab.net.queue_bytes == 5 * (lab.net.cable["mtu"] + 14)
        # Six times what the cable carries, as long as anybody looks; -S: by its socket's default
        # buffer ping waits for what waits at the port, and no more is dropped.
        flood = f"ping -q -l 50 -i 0.002 -S 200000 -s 1400 {lab.topology.ip(1)}"
        pinging = lab.host(0).popen(flood.split())
        most, deadline = [0] * (2 * lab.topology.cables), time.monotonic() + 30.0
        sample = sampler.sample()
        while not (max(most) and max(sample["dropped"])):
            assert time.monotonic() < deadline, sample
            sample = sampler.sample()
            most = [max(pair) for pair in zip(most, sample["waiting_bytes"], strict=True)]
        pinging.kill()
        pinging.wait()
    ends = [end for cable in lab.topology.links() for end in (cable.a, cable.b)]
    assert {ends[i] for i, count in enumerate(sample["dropped"]) if count} == {0}
    assert 1400 <= most[ends.index(0)] <= 5 * (lab.net.cable["mtu"] + 14) + 2000


def test_a_cable_is_changed_and_as_usual_again(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.experiments.lab.emulation.sampling import LabSampler
    from pillarbox.experiments.models.port_bursts import burst_bytes
    from pillarbox.experiments.runs.control.verbs import answer

    with running(topos.parse("tree,2,1"), LabSettings(rate_mbit=50.0), tmp_path / "lab") as lab:
        lab.wait_converged()
        sampler, ends = LabSampler(lab), [lab.name(0), lab.name(1)]
        cable = f"{ends[0]}-s0"
        found = answer(lab, "cable", [cable, "rate_mbit=2", "loss=100"])
        assert found.said == f"{cable} is now: 2 Mbit/s, loses 100 %"
        assert sampler.sample()["shapes"] == [[ends[0], "s0", "2 Mbit/s, loses 100 %", 2.0]]
        unheard = answer(lab, "ping", ends).data["ms"]
        answer(lab, "cable", [cable, "loss=0"])  # of the rate nothing was said
        slow = answer(lab, "iperf", [*ends, "0.5"]).data["mbit"]
        for wrong in (["rate_mbit=0"], ["rate_mbit=fast"], ["loss=101"], ["colour=3"], ["loss"]):
            with pytest.raises(PillarboxError):
                answer(lab, "cable", [cable, *wrong])
        with pytest.raises(PillarboxError, match="no cable joins"):
            answer(lab, "cable", ["-".join(ends), "loss=1"])
        assert answer(lab, "cable", [cable]).said == f"{cable} is as usual now: 50 Mbit/s"
        fast = answer(lab, "iperf", [*ends, "0.5"]).data["mbit"]
        sample = sampler.sample()
    assert unheard is None
    at_once_mbit = burst_bytes(2.0, 1500) * 8 / 0.5 / 1e6  # passes a port at rest
    assert slow < 2.0 + at_once_mbit < fast
    assert sample["shapes"] == []
    events = [json.loads(line) for line in sample["log"]]
    assert [event["usual"] for event in events if event["event"] == "cable"] == [False, False, True]
