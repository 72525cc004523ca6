"""Multipath TCP in live labs: subflows on disjoint paths, and a cut that breaks no connection."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pillarbox.experiments.lab.linux import mptcp
from pillarbox.experiments.lab.traffic.generator import Generator
from pillarbox.experiments.lab.traffic.iperf3 import Iperf3
from pillarbox.experiments.models.workloads.flows import COMPLETED, Flow, FlowResult, Sending
from pillarbox.topos.base.topology import Topology
from tests.experiments.labs import PLANES, WAIT_S, lab_of, wait_until

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(mptcp.missing()), reason=mptcp.missing()),
]
MULTIPATH = {"transport": "mptcp", "rate_mbit": 20.0, "mtu": 9000}
SENDING = Sending(timeout_s=WAIT_S, interval_s=0.05, multipath=True)
VOLUME = 1_000_000


def results_of(tool: Any) -> list[FlowResult]:
    tool.start(time.monotonic() + 0.02)
    wait_until(tool.ended, "no end")
    found: list[FlowResult] = tool.results()
    return found


def acked_by_port(topology: Topology, result: FlowResult) -> dict[int, int]:
    """Return the acknowledged bytes of a flow's subflows by the client's port."""
    found: dict[int, int] = defaultdict(int)
    for row in result.subflows:
        known = topology.port_of_ipv4(row.local)
        found[known.port if known else 0] += row.acked_bytes
    return dict(found)


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("spec", ["bcube,4,1", "dcell,4,1"])
def test_a_connection_has_a_subflow_by_each_port(spec: str, plane: str, tmp_path: Path) -> None:
    with lab_of(spec, tmp_path, plane=plane, **MULTIPATH) as lab:
        topology, last = lab.topology, lab.topology.servers - 1
        assert lab.status()["transport"] == "mptcp"
        flows = [Flow(0, 0, last, VOLUME), Flow(1, last, 0, VOLUME)]
        before = lab.fabric.bytes_sent()
        with closing(Generator(lab, flows, SENDING)) as tool:
            tool.prepare()
            results = results_of(tool)
            assert tool.versions()["transport"] == "mptcp"
        after = lab.fabric.bytes_sent()
    for result in results:
        assert (result.status, result.fell_back) == (COMPLETED, False)
        acked = acked_by_port(topology, result)
        assert set(acked) == {0, 1}
        assert min(acked.values()) > VOLUME // 10
        assert (
            sum(acked.values()) > 0.9 * VOLUME
        )  # the last acknowledgements are still on their way
        for port, octets in acked.items():  # the bytes of a subflow leave by its port
            name = topology.interface(result.flow.source, port)
            assert after[name] - before[name] > octets


def test_a_connection_has_as_many_subflows_as_are_asked_for(tmp_path: Path) -> None:
    with lab_of("bcube,2,2", tmp_path, subflows=2, **MULTIPATH) as lab:
        with closing(Generator(lab, [Flow(0, 0, 7, VOLUME)], SENDING)) as tool:
            tool.prepare()
            (result,) = results_of(tool)
        assert set(acked_by_port(lab.topology, result)) == {0, 1}


@pytest.mark.parametrize("port", [0, 1])
def test_a_cut_breaks_no_connection(port: int, tmp_path: Path) -> None:
    with lab_of("bcube,4,1", tmp_path, **MULTIPATH) as lab:
        switch = lab.topology.server_plug(0, port).node
        with closing(Generator(lab, [Flow(0, 0, 15, duration_s=WAIT_S)], SENDING)) as tool:
            tool.prepare()
            tool.start(time.monotonic() + 0.02)

            def delivered() -> int:
                return tool.progress()[0].delivered_bytes

            wait_until(lambda: delivered() > VOLUME, "nothing arrives")
            fault = lab.cut(0, switch)
            at_cut = delivered()
            wait_until(lambda: delivered() > at_cut + VOLUME, "nothing arrives after the cut")
            lab.end(fault)
            at_repair = delivered()
            wait_until(lambda: delivered() > at_repair + VOLUME, "nothing arrives afterwards")
            tool.finish()
            wait_until(tool.ended, "no end")
            (result,) = tool.results()
        assert (result.status, result.reason, result.fell_back) == (COMPLETED, "", False)


def test_iperf3_sends_by_multipath_tcp(tmp_path: Path) -> None:
    if mptcp.lack_for_programs():
        pytest.skip(mptcp.lack_for_programs())
    with lab_of("bcube,4,1", tmp_path, **MULTIPATH) as lab:
        before = lab.fabric.bytes_sent()
        with closing(Iperf3(lab, [Flow(0, 0, 15, VOLUME)], SENDING)) as tool:
            tool.prepare()
            (result,) = results_of(tool)
        after = lab.fabric.bytes_sent()
        assert (result.status, result.reason, result.fell_back) == (COMPLETED, "", False)
        for port in range(lab.topology.ports):
            name = lab.topology.interface(0, port)
            assert after[name] - before[name] > VOLUME // 10


def test_a_revived_server_has_its_endpoints(tmp_path: Path) -> None:
    with lab_of("bcube,4,1", tmp_path, **MULTIPATH) as lab:
        lab.kill(0)
        lab.revive(0)
        lab.wait_converged()
        assert _endpoints(lab, 0) == ["172.17.0.1"]
        with closing(Generator(lab, [Flow(0, 0, 15, VOLUME)], SENDING)) as tool:
            tool.prepare()
            (result,) = results_of(tool)
        assert set(acked_by_port(lab.topology, result)) == {0, 1}


def test_new_servers_have_endpoints(tmp_path: Path) -> None:
    with lab_of("bcube,2,1,servers=2", tmp_path, **MULTIPATH) as lab:
        lab.grow()
        assert [_endpoints(lab, server) for server in lab.here()] == [
            [f"172.17.0.{server + 1}"] for server in lab.here()
        ]


def _endpoints(lab: Lab, server: int) -> list[str]:
    with lab.host(server).live_namespace():
        words = ["ip", "mptcp", "endpoint", "show"]
        shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in shown.splitlines()]
