"""Processes that a whole lab depends on: each is started again, and the network goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pillarbox.experiments.lab.emulation import forwarders
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.labs import PLANES, lab_of, wait_until

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = pytest.mark.root

PINGS = ["ping", "-n", "-i0.02", "-c100", "-W2"]  # a packet more often than a heartbeat


def kill(lab: Lab, *names: str) -> None:
    """Kill the lab's processes of these names, and wait until others do their work."""
    assert lab.forwarders
    before = [getattr(lab.forwarders, name) for name in names]
    for process in before:
        os.kill(process, signal.SIGKILL)

    def are_new() -> bool:
        now = [getattr(lab.forwarders, name) for name in names]
        return all(now) and not set(now) & set(before)

    wait_until(are_new, f"another {names}")


@pytest.mark.alone  # a machine that has no time for another pacer within a second loses links
@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("names", [("pacer",), ("nursery",)])
def test_no_link_goes_down_and_no_packet_is_lost(
    names: tuple[str, ...], plane: str, tmp_path: Path
) -> None:
    with lab_of("dcell,4,1", tmp_path, plane=plane) as lab:
        ping = lab.host(0).popen([*PINGS, lab.topology.ip(19)], text=True)
        kill(lab, *names)
        said, _ = ping.communicate()
        assert " 0% packet loss" in said, said
        assert lab.status()["link_losses"] == 0
        assert not lab.dead
        lab.kill(3)
        wait_until(lambda: lab.state(2)["down"], "heartbeats that tell of a dead server")
        lab.revive(3)
        lab.wait_converged()
    events = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").open()]
    for name in names:
        assert f"{name} ended" in events


def test_both_are_started_again(tmp_path: Path) -> None:
    with lab_of("dcell,4,1", tmp_path) as lab:
        kill(lab, "nursery", "pacer")
        lab.wait_converged()
        lab.kill(3)
        wait_until(lambda: lab.state(2)["down"], "heartbeats that tell of a dead server")
        lab.revive(3)
        lab.wait_converged()
        assert lab.trace(0, 3)["delivered"]


def test_the_next_nursery_tells_of_forwarders_that_end(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path, plane="python") as lab:
        said: list[str] = []
        lab.print_event = said.append  # type: ignore[method-assign]
        assert lab.forwarders
        nursery = lab.forwarders.nursery
        os.kill(nursery, signal.SIGKILL)
        os.kill(lab.forwarders.pids[3], signal.SIGKILL)  # perhaps while there is none
        wait_until(lambda: said, "news of the forwarder")
        assert "server 1.1 has ended unexpectedly, with code unknown" in said[0]
        assert lab.status()["dead"] == ["1.1"]
        lab.revive(3)
        os.kill(lab.forwarders.pids[0], signal.SIGKILL)
        wait_until(lambda: lab.dead == {0}, "news of a forwarder of the nursery before")
        os.kill(lab.forwarders.pids[3], signal.SIGSEGV)
        wait_until(lambda: lab.dead == {0, 3}, "news of its own forwarder")
        assert f"code {-signal.SIGSEGV}" in said[-1]


def test_a_nursery_that_ends_again_and_again_is_given_up_and_forwarders_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarders, "MOST_RESTARTS", 0)
    with lab_of("bcube,2,1", tmp_path, plane="python") as lab:
        said: list[str] = []
        lab.print_event = said.append  # type: ignore[method-assign]
        assert lab.forwarders
        processes = [*lab.forwarders.pids.values(), lab.forwarders.pacer]
        os.kill(lab.forwarders.nursery, signal.SIGKILL)
        wait_until(lambda: said, "news of the nursery")
        assert len(said) == 1 and "no server can be revived" in said[0]
        assert not lab.dead
        assert lab.trace(0, 3)["delivered"]
        lab.kill(1)
        with pytest.raises(PillarboxError, match="start it again"):
            lab.revive(1)
    wait_until(
        lambda: not any(Path(f"/proc/{process}").exists() for process in processes),
        "the end of all forwarders with the lab",
    )
