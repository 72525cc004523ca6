"""Live servers when things fail: a connection goes on, whatever is lost has a reason."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation import convergence
from pillarbox.experiments.runs.plans.fault_schedule import failures_of
from pillarbox.experiments.runs.trials.trial_faults import begun
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.faults import Fault
from pillarbox.topos.base.errors import PillarboxError
from tests.benches.failover import FAULTS, latest_flow_path, path_faults
from tests.experiments.labs import PLANES, WAIT_S, lab_of, wait_until

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = pytest.mark.root

# Each has a relay, and another way when one on the first breaks.
CONNECTIONS = {
    "dpillar,4,2": ("mp-both", "0.0.0", "1.1.1"),
    "dcell,4,1": ("dfr", "0.0", "4.3"),
    "bcube,4,1": ("bsr", "0.0", "3.3"),
    "ficonn,4,1": ("tar", "0.0", "2.3"),
}
PATTERN = random.Random(0).randbytes(1 << 16)
CHUNK = 1000
CHUNK_S = 0.002  # between two chunks: half a megabyte in a second
SOME_BYTES = 20 * CHUNK


class Stream:
    """A TCP connection that always carries something; what arrives is what was sent."""

    def __init__(self, lab: Lab, source: int, destination: int) -> None:
        address = lab.topology.ip(destination), 5001
        with lab.host(destination).live_namespace():
            listener = socket.create_server(address)
        with lab.host(source).live_namespace():
            self._client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._client.settimeout(WAIT_S)
        with listener:
            self._client.connect(address)
            self._server, _ = listener.accept()
        self._server.settimeout(WAIT_S)
        self.received, self.wrong, self._ended = 0, "", threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for end in (self._client, self._server):
            end.close()
        for thread in self._threads:
            thread.join(WAIT_S)

    def goes_on(self, when: str) -> None:
        """See that more arrives, and still in order."""
        least = self.received + SOME_BYTES
        wait_until(lambda: bool(self.received >= least or self.wrong), f"nothing arrives: {when}")
        assert not self.wrong, f"{self.wrong}: {when}"

    def _send(self) -> None:
        at = 0
        while not self._ended.wait(CHUNK_S):
            try:
                self._client.sendall(expected(at, CHUNK))
            except OSError as error:
                self.wrong = self.wrong or f"the sender fails: {error}"
                return
            at += CHUNK

    def _receive(self) -> None:
        while not self._ended.is_set():
            try:
                data = self._server.recv(CHUNK)
            except OSError as error:
                self.wrong = self.wrong or f"the receiver fails: {error}"
                return
            if data != expected(self.received, len(data)):
                self.wrong = f"other bytes than were sent at {self.received}"
                return
            self.received += len(data)


def expected(at: int, size: int) -> bytes:
    at %= len(PATTERN)
    return (PATTERN[at:] + PATTERN)[:size]


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("spec", CONNECTIONS)
def test_a_connection_survives_every_fault_on_its_path(
    spec: str, plane: str, tmp_path: Path
) -> None:
    routing, *names = CONNECTIONS[spec]
    with lab_of(spec, tmp_path, routing=routing, plane=plane) as lab:
        ends = lab.server(names[0]), lab.server(names[1])
        with Stream(lab, *ends) as stream:
            for fault in FAULTS:
                stream.goes_on(f"before {fault}")
                # Where it is now: it need not have gone back to where it was.
                scenario = path_faults(lab.topology, latest_flow_path(lab, *ends)).get(fault)
                if scenario is None:
                    continue
                failures = failures_of(lab.topology, scenario.fault)
                if route(lab.topology, routing, *ends, failures).paths:
                    repair = begun(lab, scenario.fault)
                    stream.goes_on(f"after {fault}")
                    repair()
                    stream.goes_on(f"after the repair of {fault}")
            lab.wait_converged()
        events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    kinds = Counter(event["event"] for event in events)
    assert kinds["cut"] and kinds["silent cut"] and kinds["kill"] == kinds["revive"] == 1, kinds
    assert kinds["healed"] == kinds["cut"] + kinds["silent cut"] + kinds["switch"]
    moments = [event["at_s"] for event in events if event["event"] != "forwarder ended"]
    assert moments == sorted(moments)


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("spec", CONNECTIONS)
def test_late_frames_of_a_connection_arrive(spec: str, plane: str, tmp_path: Path) -> None:
    """Let a connection with super-packets go over cables that deliver every second frame late."""
    routing, *names = CONNECTIONS[spec]
    with lab_of(spec, tmp_path, routing=routing, plane=plane, mtu=1500) as lab:
        source, destination = map(lab.server, names)
        for _, plug in lab.topology.neighbours(source):
            lab.begin(Fault("reorder", (names[0], lab.name(plug.node)), amounts=(50.0, 1.0)))
        address, received = (lab.topology.ip(destination), 5001), bytearray()
        with lab.host(destination).live_namespace():
            listener = socket.create_server(address)
        with listener, lab.host(source).live_namespace():
            client = socket.create_connection(address, WAIT_S)
            server, _ = listener.accept()
        with client, server:
            sending = threading.Thread(target=client.sendall, args=[PATTERN * 8])
            sending.start()
            while len(received) < len(PATTERN) * 8 and (data := server.recv(1 << 16)):
                received += data
            sending.join(WAIT_S)
        assert received == PATTERN * 8
        interfaces = list(Path("/sys/class/net").glob("late*/statistics"))
        assert sum(int((one / "tx_packets").read_text()) for one in interfaces)
        assert not sum(int((one / "tx_dropped").read_text()) for one in interfaces)


@pytest.mark.parametrize("plane", PLANES)
def test_what_is_lost_has_a_reason_and_flows_again_after_the_repair(
    plane: str, tmp_path: Path
) -> None:
    """Let a routing that goes around nothing meet each kind of fault."""
    # The papers' timers do not take a busy machine for a failure.
    with lab_of("dcell,4,1", tmp_path, routing="dcell", plane=plane, timers="paper") as lab:
        source, destination = lab.server("0.0"), lab.server("4.3")
        path = ["0.0", "0.3", "4.0", "4.3"]
        assert lab.trace(source, destination)["path"] == path
        relay, far = lab.server("0.3"), lab.server("4.0")

        cut = lab.cut(relay, far)
        wait_until(lambda: not hears(lab, relay, far), "0.3 goes on hearing 4.0")
        assert lost(lab, source, destination) == (["0.0", "0.3"], "next hop is down")
        assert lab.computed(source, destination) == []
        lab.end(cut)
        lab.wait_converged()
        assert lab.trace(source, destination)["delivered"]

        lab.kill(relay)
        assert lab.state(relay) == {"server": "0.3", "dead": True}
        wait_until(lambda: not hears(lab, source, relay), "0.0 goes on hearing 0.3")
        assert lost(lab, source, destination) == (["0.0"], "next hop is down")
        lab.revive(relay)
        lab.wait_converged()
        assert lab.trace(source, destination)["delivered"]
        drops = lab.status()["drops"]
        rack = lab.begin(Fault("rack", ("s0",)))
        assert lab.dead == set(range(4))
        assert lab.trace(destination, lab.server("4.0"))["delivered"]
        lab.end(rack)
        lab.wait_converged()
        assert lab.trace(source, destination)["path"] == path
    assert drops["next hop is down"] == 1  # the source's; what a server has counted dies with it
    assert all(reason and count for reason, count in drops.items())


def hears(lab: Lab, server: int, peer: int) -> bool:
    links = {link["peer"]: link["up"] for link in lab.state(server)["links"]}
    return bool(links[lab.name(peer)])


def lost(lab: Lab, source: int, destination: int) -> tuple[list[str], str]:
    found = lab.trace(source, destination)
    return found["path"], found["dropped"]


def test_death_ends_every_program_of_the_server(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path, plane="python") as lab:
        program = lab.host(1).popen(["sleep", "1000"])
        other = lab.host(2).popen(["sleep", "1000"])
        lab.kill(1)
        assert program.wait(WAIT_S) == -9
        assert other.poll() is None
        for deed, said in (
            (lambda: lab.kill(1), "dead already"),
            (lambda: lab.revive(2), "is alive"),
            (lambda: lab.cut(0, 3), "no cable joins"),
        ):
            with pytest.raises(topos.PillarboxError, match=said):
                deed()


def test_what_has_not_converged_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence, "CONVERGED_S", 0.2)
    # The papers' timers do not take a busy machine for a failure.
    with lab_of("bcube,2,1", tmp_path, plane="python", timers="paper") as lab:
        switch = lab.topology.server_plug(0, 0).node
        lab.cut(0, switch)
        wait_until(lambda: not hears(lab, 0, 1), "0.0 goes on hearing 0.1")
        wait_until(lambda: not hears(lab, 1, 0), "0.0 has told 0.1")
        monkeypatch.setattr(
            convergence, "link_has_failed", lambda *_: False
        )  # as if the cable worked
        with pytest.raises(
            PillarboxError, match=r"2 servers .* `status` \(0\.1 misses 0\.1 port 0 to 0\.0\)"
        ):
            lab.wait_converged()
