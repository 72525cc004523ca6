"""Faults of a trial in a live lab: done and undone in time, noticed, and each a row."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pillarbox import topos
from pillarbox.experiments.runs.trials.schema import EVENTS
from pillarbox.experiments.runs.trials.trial_faults import NEVER, FaultInjector, hops_interrupted_by
from pillarbox.hosts.base.failures import Failures, parse_failures
from pillarbox.hosts.base.faults import Fault
from pillarbox.hosts.base.path import Step

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab


def test_who_notices_a_switch_is_everybody_on_it() -> None:
    bcube = topos.parse("bcube,4,1")
    found = hops_interrupted_by(bcube, parse_failures(bcube, ["stop s0"]))
    assert set(found) == set(bcube.peers(0, 0)) | {0}
    assert all({step.port for step in steps} == {0} for steps in found.values())


@pytest.mark.parametrize(
    "spec", ["bcube,4,1", "dcell,2,2", "dpillar,4,2", "ficonn,4,1", "fattree,4"]
)
def test_no_server_that_notices_is_forgotten(spec: str) -> None:
    """Whichever node or cable fails, looking at all servers finds no other hops."""
    topology = topos.parse(spec)
    hops = {
        server: [Step(port, peer) for port in range(topology.ports)
                 for peer in topology.peers(server, port)]
        for server in range(topology.servers)
    }  # fmt: skip
    failures = [Failures(nodes=frozenset([node])) for node in range(0, topology.nodes, 3)]
    failures += [Failures(links=frozenset([frozenset([a, b])])) for a, _, b, *_ in topology.links()]
    for failed in failures:
        wanted = {
            server: stopped
            for server, steps in hops.items()
            if server not in failed.nodes
            and (stopped := {one for one in steps if failed.of_hop(topology, server, one)})
        }
        assert hops_interrupted_by(topology, failed) == wanted, failed


def test_the_dead_notice_nothing() -> None:
    dcell = topos.parse("dcell,4,1")
    found = hops_interrupted_by(dcell, parse_failures(dcell, ["kill 0.3"]))
    assert {dcell.address(server) for server in found} == {"0.0", "0.1", "0.2", "4.0"}


def _has_settled(lab: Lab) -> bool:
    """Tell whether 3.1 misses its switch, and whose neighbours are back has them back."""
    links = {name: lab.state(lab.server(name))["links"] for name in ("3.1", "0.0", "0.2")}
    silent = all(not link["up"] for link in links["3.1"] if link["port"] == 0)
    return silent and all(link["up"] for name in ("0.0", "0.2") for link in links[name])


@pytest.mark.root
def test_faults_come_and_go_when_they_should(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    schedule = [
        # The papers' timers do not take a busy machine for a failure, but need 5 s for a real one.
        Fault("cut", ("0.2", "3.0"), 0.1, 8.0),
        Fault("server", ("1.0",), 0.2, 8.1),
        Fault("server", ("1.0",), 0.3, 8.2),  # while it is dead
        Fault("rack", ("s2",), 0.4),
        Fault("silent cut", ("3.1", "s3"), 0.5),
        Fault("switch", ("s3",), 60.0),
    ]
    said: list[str] = []
    settings = LabSettings(plane="python", timers="paper")
    with running(topos.parse("dcell,3,1"), settings, tmp_path) as lab:
        lab.wait_converged()
        faulting = FaultInjector(lab, schedule, said.append)
        faulting.begin(time.monotonic() + 0.1)
        deadline = time.monotonic() + 40
        while len(said) < 7 or not _has_settled(lab):
            assert time.monotonic() < deadline, said
            time.sleep(0.02)
        lab_failures = lab.failures()
        rows = faulting.end()
        assert lab_failures.nodes == {lab.topology.servers + 2, *range(6, 9)}
        assert not lab.failures().nodes
        assert not lab.failures().links
        lab.wait_converged()
    assert all(set(row) == set(EVENTS) for row in rows)
    told = [(row["event"], row["what"], row["reason"]) for row in rows]
    dead = "server 1.0 is dead already"
    assert told == [
        ("cut", "0.2 3.0", ""),
        ("kill", "1.0", ""),
        ("kill", "1.0", dead),
        ("rack", "s2", ""),
        ("silent cut", "3.1 s3", ""),
        ("healed", "0.2 3.0", ""),
        ("revive", "1.0", ""),
        ("switch", "s3", NEVER),
    ]
    for row, planned_s in zip(rows, (0.1, 0.2, 0.3, 0.4, 0.5, 8.0, 8.1, 60.0), strict=True):
        assert row["at_s"] >= planned_s
        assert (row["detected_s"] is None) == bool(row["reason"])
        assert row["reason"] or row["detected_s"] >= 0


@pytest.mark.root
def test_who_noticed_and_died_is_asked_before(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    schedule = [Fault("cut", ("0.1", "s0"), 0.1, 2.6), Fault("server", ("0.1",), 2.7, 2.8)]
    said: list[str] = []
    settings = LabSettings(plane="python", timers="paper")
    with running(topos.parse("bcube,2,1"), settings, tmp_path) as lab:
        lab.wait_converged()
        faulting = FaultInjector(lab, schedule, said.append)
        faulting.begin(time.monotonic())
        deadline = time.monotonic() + 40
        while len(said) < 4:
            assert time.monotonic() < deadline, said
            time.sleep(0.02)
        cut, *_ = faulting.end()
    # The others would miss it after 5 s of silence; it sees its own cable before it is mended.
    assert 0 <= cut["detected_s"] < 2.6
