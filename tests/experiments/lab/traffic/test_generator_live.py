"""The generator in small live labs: what is delivered, what the cables allow, what faults leave."""

from __future__ import annotations

import os
import signal
import time
from array import array
from contextlib import closing
from dataclasses import replace
from fcntl import ioctl
from functools import partial
from itertools import permutations
from pathlib import Path
from termios import FIONREAD
from typing import TYPE_CHECKING, Any

import pytest

from pillarbox.experiments.lab.linux import link_requests
from pillarbox.experiments.lab.traffic.generator import Generator
from pillarbox.experiments.lab.traffic.tools import PINNED, chosen_tool, pinned_sysctls, tool_for
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED, Flow, Sending
from pillarbox.experiments.models.workloads.patterns import flows_of
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.hosts.base.timers import PAPER
from tests.experiments import labs
from tests.experiments.labs import WAIT_S, wait_until

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = pytest.mark.root

RATE_MBIT = 20.0
VOLUME = 100_000
NEVER_BYTES = 1 << 40
# The papers' timers do not take a busy machine for a failure.
lab_of = partial(labs.lab_of, rate_mbit=RATE_MBIT, timers="paper")


def begun(lab: Lab, flows: list[Flow], **sending: Any) -> Generator:
    tool = Generator(lab, flows, Sending(**{"timeout_s": WAIT_S, **sending}))
    tool.prepare()
    tool.start(time.monotonic() + 0.02)
    return tool


@pytest.mark.parametrize("spec", ["bcube,2,1", "tree,2,2"])
def test_all_to_all_delivers_all_and_no_more_than_cables_carry(spec: str, tmp_path: Path) -> None:
    with lab_of(spec, tmp_path) as lab:
        pinned = pinned_sysctls(lab)
        assert {name.replace("/", ".") for name in PINNED} >= set(pinned)
        assert pinned["net.ipv4.tcp_rmem"] == PINNED["net/ipv4/tcp_rmem"]
        flows = flows_of(lab.topology, Workload(volume_bytes=VOLUME), 1)
        tool = tool_for("generator", lab, flows, Sending(timeout_s=WAIT_S, congestion="reno"))
        with closing(tool):
            tool.prepare()
            assert not tool.ended()
            tool.start(time.monotonic() + 0.02)
            wait_until(tool.ended, "no end")
            assert {one.delivered_bytes for one in tool.progress()} == {VOLUME}
            results = tool.results()
    assert [one.flow for one in results] == flows
    assert {(one.status, one.reason, one.tries) for one in results} == {(COMPLETED, "", 1)}
    for one in results:
        assert one.begin_s is not None and one.end_s is not None
        assert 0 <= one.begin_s < one.end_s
        assert one.delivered_bytes == sum(i.delivered_bytes for i in one.intervals) == VOLUME
        assert one.retransmits == sum(i.retransmits or 0 for i in one.intervals)
        assert all(i.rtt_us and i.cwnd_bytes for i in one.intervals)
    # Into each server no more than its cables bring, headers and queues left out of account.
    last_s = max(one.end_s or 0.0 for one in results)
    assert lab.topology.ports * RATE_MBIT * 1e6 / 8 * last_s >= 3 * VOLUME
    assert tool.versions()["congestion"] == "reno"
    assert tool.versions()["cpu_s"] >= 0


def test_time_is_filled(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path) as lab:
        flows = flows_of(lab.topology, Workload("permutation", duration_s=0.6), 1)
        with closing(begun(lab, flows, interval_s=0.05)) as tool:
            wait_until(tool.ended, "no end")
            results = tool.results()
    assert {one.status for one in results} == {COMPLETED}
    for one in results:
        assert one.end_s is not None and one.end_s >= 0.6
        carried = RATE_MBIT * 1e6 / 8 * one.end_s
        assert 0 < one.delivered_bytes <= carried
        assert len(one.intervals) > 1


def test_flows_with_a_duration_can_be_ended_before_it_is_over(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path) as lab:
        flow = Flow(0, 0, 1, duration_s=WAIT_S)
        with closing(begun(lab, [flow], interval_s=0.05, timeout_s=2 * WAIT_S)) as tool:
            wait_until(lambda: tool.progress()[0].delivered_bytes > 0, "nothing arrives")
            tool.finish()
            wait_until(tool.ended, "no end")
            (result,) = tool.results()
    assert result.status == COMPLETED
    assert result.end_s is not None and result.end_s < WAIT_S
    assert result.intervals[-1].end_s == result.end_s


def test_an_end_that_is_asked_for_too_late_costs_no_interval(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path) as lab:
        flows = [
            Flow(i, *pair, duration_s=10.0) for i, pair in enumerate(permutations(range(4), 2))
        ]
        with closing(begun(lab, flows, interval_s=0.005)) as tool:
            waiting = array("i", [0])

            def is_full() -> bool:
                """Tell whether each process waits for somebody to read what it writes."""
                for process in tool._processes:
                    ioctl(process.output, FIONREAD, waiting)
                    if waiting[0] <= 1 << 15:
                        return False
                return True

            wait_until(is_full, "it writes nothing")
            tool.finish()
            results = tool.results()
    for one in results:
        assert one.delivered_bytes == sum(each.delivered_bytes for each in one.intervals) > 0


def test_death_fails_a_servers_flows_and_a_revival_does_not_help(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path) as lab:
        flows = [
            # With the one that dies they cannot end before.
            replace(flow, volume_bytes=NEVER_BYTES)
            if 3 in (flow.source, flow.destination)
            else flow
            for flow in flows_of(lab.topology, Workload(volume_bytes=VOLUME * 5), 1)
        ]
        with closing(begun(lab, flows)) as tool:
            wait_until(lambda: all(p.delivered_bytes for p in tool.progress()), "nothing moves")
            lab.kill(3)
            lab.revive(3)
            wait_until(tool.ended, "no end")
            results = tool.results()
    for one in results:
        if 3 in (one.flow.source, one.flow.destination):
            assert (one.status, one.reason) == (FAILED, "server 1.1 died")
            assert one.goodput_bps is None
            assert 0 < one.delivered_bytes < NEVER_BYTES
        else:
            assert (one.status, one.delivered_bytes) == (COMPLETED, VOLUME * 5)


def test_what_cannot_arrive_ends_in_time_and_with_a_reason(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path) as lab:
        dead, far, near = (lab.topology.servers - 1, 2, 1)
        flows = [Flow(n, 0, to, NEVER_BYTES) for n, to in enumerate((dead, far))]
        flows.append(Flow(2, 0, near, VOLUME))
        lab.kill(dead)
        with closing(Generator(lab, flows, Sending(timeout_s=4.0))) as tool:
            tool.prepare()
            lab.cut(2, lab.topology.server_plug(2, 0).node)
            tool.start(time.monotonic())
            wait_until(tool.ended, "no end")
            results = tool.results()
        name = lab.topology.address(dead)
    assert results[0].reason == f"server {name} is dead"
    assert results[1].reason == f"no end within 4 s: 0 of {NEVER_BYTES} bytes delivered"
    assert results[2].status == COMPLETED


def test_unreachable_server_is_tried_and_given_up(tmp_path: Path) -> None:
    with lab_of("tree,2,2", tmp_path) as lab:
        lab.host(0).intfs[0].ifconfig("down")  # and with it every route
        gone = lab.host(3).intfs[0]
        gone.node.send(link_requests.delete_address(gone.ifindex, gone.ip, int(gone.prefixLen)))
        flows = [Flow(0, 0, 1, VOLUME), Flow(1, 1, 2, VOLUME), Flow(2, 1, 3, VOLUME)]
        with closing(begun(lab, flows)) as tool:
            wait_until(tool.ended, "no end")
            unreachable, reachable, deaf = tool.results()
    assert deaf.reason == (
        "its destination server could not open a listening TCP socket: "
        "Cannot assign requested address"
    )
    assert unreachable.reason == "could not connect: Network is unreachable"
    assert unreachable.tries == 3
    assert reachable.status == COMPLETED


def test_generator_that_is_ended_leaves_failures(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path) as lab:
        flows = flows_of(lab.topology, Workload(duration_s=1000.0), 1)
        early = begun(lab, flows)
        early.close()
        assert "stopped before its end" in early.results()[0].reason
        with closing(begun(lab, flows)) as tool:
            wait_until(lambda: bool(tool.progress()[0].delivered_bytes), "nothing moves")
            assert not tool.ended()
            os.kill(tool._processes[-1].pid, signal.SIGKILL)
            wait_until(tool.ended, "its death is not seen")
            results = tool.results()
        tool.close()  # twice is no harm
    assert {one.status for one in results} == {FAILED}
    assert results[0].delivered_bytes > 0


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    from pillarbox.topos.base.errors import PillarboxError

    with lab_of("tree,2,2", tmp_path) as lab:
        flows = flows_of(lab.topology, Workload(volume_bytes=1), 1)
        refused = Generator(lab, flows, Sending(congestion="nosuch"))
        with closing(refused), pytest.raises(PillarboxError, match="no TCP congestion control"):
            refused.prepare()
        with pytest.raises(PillarboxError, match="no flows to send"):
            Generator(lab, [], Sending())
        with pytest.raises(PillarboxError, match="no traffic tool 'nosuch'"):
            tool_for("nosuch", lab, flows, Sending())
    assert chosen_tool("auto", 401) == chosen_tool("generator", 1) == "generator"


def test_flows_of_a_pair_that_wait_before_they_send_part_before_their_turn(tmp_path: Path) -> None:
    """As iperf3's do: its connections stand, and nothing is sent for a moment."""
    with lab_of("bcube,2,1", tmp_path) as lab:
        flows = [Flow(number, 0, 3, NEVER_BYTES) for number in range(2)]
        with closing(Generator(lab, flows, Sending(timeout_s=WAIT_S))) as tool:
            tool.prepare()
            began_s = time.monotonic()
            tool.start(began_s + 0.5)
            # A look has begun when it is counted, and the flow moves when its answers are in.
            wait_until(lambda: len(ways_from(lab, "1.1")) == 2, "they do not part")
            assert time.monotonic() - began_s < PAPER.probe_interval_s, "its turn has come"
            assert lab.state(0)["counters"]["looks ahead"]


def ways_from(lab: Lab, destination: str) -> set[tuple[str, ...]]:
    """Return the ways in use from the first server to another."""
    ways = (tuple(one["path"]) for one in lab.state(0)["flows"])
    return {way for way in ways if way[-1] == destination}
