"""Packet logs of live labs: flows are explained completely, and the memory has a limit."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from pillarbox.experiments.lab.emulation import packet_log
from pillarbox.experiments.lab.emulation.packet_log import PacketRecorder
from pillarbox.experiments.lab.traffic.generator import Generator
from pillarbox.experiments.models.packets import critical_path
from pillarbox.experiments.models.packets.critical_path import CriticalPaths, FlowToExplain
from pillarbox.experiments.models.packets.packet_log import NO_LINK
from pillarbox.experiments.models.workloads.flows import Flow, Sending
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.reporting.slow_flows import ports_of
from pillarbox.experiments.runs.trials.packet_records import packet_log_of
from pillarbox.hosts.linux import tcx
from tests.experiments.labs import EBPF, lab_of, wait_until

pytestmark = [pytest.mark.root, EBPF]
VOLUME = 150_000
PAIRS = ((0, 3), (1, 3), (2, 3))


@pytest.mark.parametrize("spec", ["bcube,2,1", "tree,2,2"])
def test_all_of_a_flows_time_is_explained(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(spec, rate_mbit=20, mtu=1500)
    flows = [Flow(number, *pair, VOLUME) for number, pair in enumerate(PAIRS)]
    with lab_of(spec, tmp_path, rate_mbit=20, mtu=1500) as lab:
        with closing(Generator(lab, flows, Sending(timeout_s=60.0))) as tool:
            tool.prepare()
            with PacketRecorder(lab, 1000) as recorder:
                barrier_s = time.monotonic() + 0.05
                tool.start(barrier_s)
                wait_until(tool.ended, "no end")
                results = tool.results()
                found = recorder.sightings()
        monkeypatch.setattr(packet_log, "LEAST_ENTRIES", 8)
        with closing(Generator(lab, flows[:1], Sending(timeout_s=60.0))) as tool:
            tool.prepare()
            with PacketRecorder(lab, 0) as short:
                tool.start(time.monotonic() + 0.05)
                wait_until(tool.ended, "no end")
                few = short.sightings()
        with lab.host(0).live_namespace():
            interface = lab.host(0).intfs[0].ifindex
            left = len(tcx.attached_program_ids(interface, egress=False))
    assert found.lost == 0
    assert len(few.rows) == 8 and few.lost > 100
    assert left <= 1  # the forwarder's
    log = packet_log_of(system, results, barrier_s, found.rows)
    paths = CriticalPaths(log, ports_of(system))
    kinds = set()
    for one in results:
        assert one.begin_s is not None and one.end_s is not None
        ends = one.flow.source, one.flow.destination
        parts = paths.parts(FlowToExplain(one.flow.number, *ends, 0.0, one.end_s, VOLUME))
        assert sum(part.seconds for part in parts) == pytest.approx(one.end_s, abs=1e-3)
        kinds |= {part.kind for part in parts}
        # The sender hands all data down, and the receiver gets each byte.
        own = (log.flow == one.flow.number) & ~log.is_ack
        assert log.end[own].max() == VOLUME and (log.link[own] == NO_LINK).any()
    assert critical_path.UNKNOWN not in kinds
    assert {critical_path.SENDING, critical_path.WAITING} <= kinds
