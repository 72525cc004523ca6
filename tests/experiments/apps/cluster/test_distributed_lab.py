"""A lab over machines is a lab: every ping and path, faults between machines, and losses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path
from socket import inet_ntoa
from typing import TYPE_CHECKING, Any

import pytest

from pillarbox.experiments.lab.linux import sandbox
from pillarbox.experiments.models.workloads.flows import COMPLETED
from pillarbox.experiments.runs.trust import judge
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.faults import Fault
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.apps.cluster.over import SOON_S, apart, lab_over, running, trial_in, worker
from tests.experiments.labs import WAIT_S, wait_until

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
pytest.importorskip("cryptography", reason="pip install cryptography")
pytestmark = pytest.mark.root

EVERYTHING = "import sys; from pillarbox.experiments.cli.main import main; main(sys.argv[1:])"
PART, WORKER = (
    "pillarbox.experiments.apps.cluster.part",
    "pillarbox.experiments.apps.cluster.dask_process",
)
TOLD = "cmdline", "environ"  # where others could read keys
NURSERY = "pillarbox.hosts.live.nursery"
FIRST_ANSWERED = (
    "mp-far-side"  # of DPillar's paths of one length, the one whose probe is answered first
)
VOLUME = 300_000
LISTENING = "0A"  # in /proc/net/tcp
LONG = pytest.mark.long
MISSED_S = 30.0  # half of the time for which servers that start are excused
# Cables between servers, and Linux routers; those of the others cross machines as BCube's do.
NETWORKS = [
    "dcell,4,1",
    *(
        pytest.param(spec, marks=LONG)
        for spec in ("fattree,4", "dpillar,4,2", "ficonn,4,1", "tree,4,4")
    ),
]
CASES = [
    pytest.param("bcube,4,1", 2),
    pytest.param("fattree,4", 2, marks=LONG),
    pytest.param("dcell,4,1", 2, marks=LONG),
    pytest.param("dcell,4,1", 3, marks=LONG),
    pytest.param("dpillar,4,2", 2, marks=LONG),
    pytest.param("ficonn,4,1", 2, marks=LONG),
]


@pytest.mark.parametrize("spec", NETWORKS)
def test_every_network(spec: str, tmp_path: Path) -> None:
    with lab_over(spec, 2, tmp_path) as lab:
        if spec == "dcell,4,1":
            check_kill_before_first_heartbeats(lab)
        check_pings(lab)
        check_paths(lab)
        check_cut(lab)


def check_kill_before_first_heartbeats(lab: Lab) -> None:
    """See that the killed neighbour of a server on another machine is missed soon after a start."""
    cables = ((cable.a, cable.b) for cable in lab.topology.links())
    servers = (ends for ends in cables if max(ends) < lab.topology.servers)
    killed, other = next(ends for ends in servers if apart(lab, ends))
    begin_s = time.monotonic()
    lab.kill(killed)
    wait_until(lambda: not all(link["up"] for link in lab.state(other)["links"]), "it is missed")
    assert time.monotonic() - begin_s < MISSED_S
    lab.revive(killed)
    lab.wait_converged()


def links() -> set[str]:
    from pillarbox.experiments.lab.linux.namespaces import fabric

    return {link.name for link in fabric().netlink.links()}


@pytest.mark.parametrize(("spec", "machines"), CASES)
def test_a_lab_over_machines(spec: str, machines: int, tmp_path: Path) -> None:
    before = links()
    with lab_over(spec, machines, tmp_path) as lab:
        check_listeners(lab, machines)
        check_pings(lab)
        check_paths(lab)
        check_trial(lab)
        check_cut(lab)
        check_frame_faults(lab)
        check_kill(lab)
        if lab.relays:
            check_end(lab)
        check_verbs(lab)
        check_counts(lab)
        check_cable(lab)
        check_loss(lab, machines - 1)
        check_another(lab, machines - 1)
    assert links() == before
    assert not running(PART) and not running(WORKER)


def check_listeners(lab: Lab, machines: int) -> None:
    """See that whoever leads and whoever is led listen on the machines' own network alone."""
    files = [
        Path("/proc/net/tcp"),
        *(Path(f"/proc/{worker(lab, m)}/net/tcp") for m in range(machines)),
    ]
    for file in files:
        rows = [line.split() for line in file.read_text().splitlines()[1:]]
        places = [row[1].partition(":")[0] for row in rows if row[3] == LISTENING]
        addresses = [inet_ntoa(bytes.fromhex(place)[::-1]) for place in places]
        assert any(address.startswith("198.18.0.") for address in addresses)
        assert all(address.startswith(("198.18.0.", "127.0.0.1")) for address in addresses)
    assert not list(lab.folder.rglob("*.pem"))
    begun = [Path(f"/proc/{worker(lab, m)}/{what}") for m in range(machines) for what in TOLD]
    assert not any(b"PRIVATE KEY" in file.read_bytes() for file in begun)


def check_pings(lab: Lab) -> None:
    servers = range(lab.topology.servers)
    for source in servers:
        others = [server for server in servers if server != source]
        # Again, where a busy machine has taken a silence for a failure.
        wait_until(
            lambda a=source, b=others: None not in lab.fabric.echoes(a, b, SOON_S).values(),
            f"{source} does not reach all",
        )


def check_paths(lab: Lab) -> None:
    """See that packets go as on one machine, hop by hop."""
    last = lab.topology.servers - 1
    for source, destination in ((0, last), (last, 0), (1, last - 1)):
        known = [lab.computed(source, destination)]
        if lab.routing == FIRST_ANSWERED:
            ways = route(lab.topology, lab.routing, source, destination, several=True).paths
            known = [[lab.name(server) for server in way.servers] for way in ways]
        wait_until(
            lambda a=source, b=destination, ways=known: lab.trace(a, b)["path"] in ways,
            f"packets from {source} to {destination} take none of {known}",
        )


def check_trial(lab: Lab) -> None:
    """See that flows within and between machines deliver all, and that all machines are watched."""
    cable = next(one for one in lab.topology.links() if apart(lab, (one.a, one.b)))
    ends = "-".join(lab.name(node) for node in (cable.a, cable.b))
    found = trial_in(lab, f"cut {ends} at 0 until 0.05", volume_bytes=VOLUME)
    within = [
        lab.fabric.machine_of(one.flow.source) == lab.fabric.machine_of(one.flow.destination)
        for one in found.results
    ]
    assert any(within) and not all(within)
    assert {(one.status, one.reason) for one in found.results} == {(COMPLETED, "")}
    for one in found.results:
        assert one.delivered_bytes == sum(row.delivered_bytes for row in one.intervals) == VOLUME
        assert one.begin_s is not None and one.end_s is not None
        assert any(row.rtt_us and row.cwnd_bytes for row in one.intervals)
    assert [event["event"] for event in found.events] == ["cut", "healed"]
    seen = found.readings
    assert len(seen.links) == 2 * lab.topology.cables and seen.faults == 2
    assert [one.machine for one in seen.machines] == list(range(lab.fabric.machines))
    assert all(one.clock_s and one.crossed_out and not one.away for one in seen.machines)
    assert sum(one.card_sent_bytes for one in seen.machines) > VOLUME
    assert "clock_moved_ms" in judge(seen).figures
    assert (
        found.lab["machines"]["servers"] and found.tool_versions["processes"] == lab.fabric.machines
    )


def check_cut(lab: Lab) -> None:
    """See that a cut between machines takes the carrier at both ends, and packets go around.

    Usual switches know no way around: packets arrive again when the cable is mended.
    """
    source, destination = 0, lab.topology.servers - 1
    way = [lab.node(name) for name in lab.trace(source, destination)["path"]]
    ends = next(
        cable for hop in pairwise(way) for cable in cables_of(lab, *hop) if apart(lab, cable)
    )
    assert all(carrier(lab, *end) for end in server_ends(lab, ends))
    fault = lab.cut(*ends)
    for end in server_ends(lab, ends):
        wait_until(lambda end=end: not carrier(lab, *end), f"{end} has its carrier still")
    around = bool(lab.computed(source, destination))
    assert around == lab.relays
    wait_until(
        lambda: lab.trace(source, destination)["delivered"] == around, "no packet goes around"
    )
    lab.wait_converged()
    assert lab.failures().links == {frozenset(ends)}
    lab.end(fault)
    wait_until(lambda: lab.trace(source, destination)["delivered"], "it is not mended")
    for end in server_ends(lab, ends):
        wait_until(lambda end=end: carrier(lab, *end), f"{end} has no carrier again")


def check_frame_faults(lab: Lab) -> None:
    """See that frames between machines come twice or late; one-way cuts are refused."""
    source, destination = 0, lab.topology.servers - 1
    ping = ["ping", "-c", "2", "-i", "0.2", "-W", "2", lab.topology.ip(destination)]

    def crossing() -> tuple[str, str]:
        """Return the first cable between machines on the current path."""
        way = [lab.node(name) for name in lab.trace(source, destination)["path"]]
        cables = (cable for hop in pairwise(way) for cable in cables_of(lab, *hop))
        one, other = next(cable for cable in cables if apart(lab, cable))
        return lab.name(one), lab.name(other)

    def answer() -> str:
        with lab.host(source).popen(ping, text=True) as process:
            text: str = process.communicate()[0]
            return text

    def duplicated() -> bool:
        return "DUP!" in answer()

    def late() -> bool:
        return any(float(ms) >= 500 for ms in re.findall(r"time=([\d.]+)", answer()))

    def is_seen(kind: str, amounts: tuple[float, ...], seen: Callable[[], bool]) -> bool:
        """Inject a fault on the current path; flows of several paths may take another one."""
        fault = lab.begin(Fault(kind, crossing(), amounts=amounts))
        found = seen()
        lab.end(fault)
        return found

    with pytest.raises(PillarboxError, match="several machines have no faults in one direction"):
        lab.begin(Fault("one-way cut", crossing()))
    assert not duplicated()
    wait_until(lambda: is_seen("duplicate", (100.0,), duplicated), "no packet arrives twice")
    wait_until(lambda: not duplicated(), "packets still arrive twice")
    wait_until(lambda: is_seen("reorder", (50.0, 500.0), late), "no packet arrives late")
    wait_until(lambda: not late(), "packets still arrive late")


def cables_of(lab: Lab, a: int, b: int) -> list[tuple[int, int]]:
    """Return the cables of a hop, from the lower node each; a tree's hop is one to a switch."""
    if b in {plug.node for _, plug in lab.topology.neighbours(a)}:
        return [(min(a, b), max(a, b))]
    switches = {plug.node for _, plug in lab.topology.neighbours(a)}
    switches &= {plug.node for _, plug in lab.topology.neighbours(b)}
    nodes = [a, *sorted(node for node in switches if node >= lab.topology.servers)[:1], b]
    return [(min(pair), max(pair)) for pair in pairwise(nodes)]


def server_ends(lab: Lab, cable: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the servers' ports of a cable."""
    return [
        (server, port)
        for server, far in (cable, cable[::-1])
        if server < lab.topology.servers
        for port, plug in lab.topology.neighbours(server)
        if plug.node == far
    ]


def carrier(lab: Lab, server: int, port: int) -> bool:
    return bool(lab.state(server)["carrier"][str(port)])


def check_kill(lab: Lab) -> None:
    """See that a server dies with what the prompt started on it, and comes back."""
    server = lab.topology.servers - 1
    program = lab.host(server).popen(["sleep", "1000"])
    lab.kill(server)
    assert program.wait(WAIT_S) == -signal.SIGKILL
    program.communicate()
    assert lab.state(server)["dead"]
    lab.revive(server)
    lab.wait_converged()
    wait_until(lambda: lab.fabric.echoes(0, [server], SOON_S)[server], "it does not answer")


def check_end(lab: Lab) -> None:
    """See that a forwarder that ends by itself, on its machine, is a dead server here."""
    server = lab.topology.servers - 1
    log = str(lab.folder / f"machine{lab.fabric.machine_of(server)}" / f"h{server}.log")
    [forwarder] = (
        pid for pid in running(NURSERY) if str(Path(f"/proc/{pid}/fd/1").readlink()) == log
    )
    os.kill(forwarder, signal.SIGKILL)
    wait_until(lambda: server in lab.dead, "nobody has told")
    assert '"forwarder ended"' in (lab.folder / "events.jsonl").read_text()
    lab.revive(server)
    lab.wait_converged()


def check_verbs(lab: Lab) -> None:
    """See what the prompt says that is not as on one machine."""
    from pillarbox.experiments.runs.control.verbs import answer

    status = answer(lab, "status", []).data
    assert [one["state"] for one in status["machines"]] == ["up"] * len(status["machines"])
    cabled = [list(lab.topology.neighbours(server)) for server in range(lab.topology.servers)]
    assert len(lab.fabric.bytes_sent()) == sum(map(len, cabled))
    with pytest.raises(PillarboxError, match="run on one machine only"):
        answer(lab, "run", ["all-reduce", "volume_bytes=1000"])
    with pytest.raises(PillarboxError, match="cannot be resized"):
        lab.resize(lab.topology.servers)


def check_counts(lab: Lab) -> None:
    """See that all cables and servers are counted, each where it is."""
    fabric, topology = lab.fabric, lab.topology
    before, sent, after = fabric.counters(), fabric.bytes_sent(), fabric.counters()
    assert sorted(after.directions) == list(range(2 * topology.cables))
    assert sorted(after.received) == list(range(topology.servers))
    ends = (end for one in topology.links() for end in ((one.a, one.a_port), (one.b, one.b_port)))
    for number, end in enumerate(ends):
        if end[0] < topology.servers:  # which count for themselves as well
            known = sent[topology.interface(*end)]
            assert before.directions[number][0] <= known <= after.directions[number][0]
    assert 0 < after.at_s - before.at_s < WAIT_S


def check_cable(lab: Lab) -> None:
    """See that a cable between machines is changed at both its ends, and made as it was."""
    from pillarbox.experiments.runs.control.verbs import answer

    if not lab.relays:
        return
    cable = next(one for one in lab.topology.links() if apart(lab, (one.a, one.b)))
    ends = "-".join(lab.name(node) for node in (cable.a, cable.b))

    for words, is_up in ((["loss=100"], False), ([], True)):
        answer(lab, "cable", [ends, *words])
        for server, port in server_ends(lab, (cable.a, cable.b)):
            wait_until(
                lambda s=server, p=port, up=is_up: hears(lab, s, p) == up and carrier(lab, s, p),
                f"{server} does not hear that {ends} is changed",
            )
    assert not lab.net.shapes.changed


def hears(lab: Lab, server: int, port: int) -> bool:
    """Tell whether a server hears all its neighbours at a port."""
    return all(one["up"] for one in lab.state(server)["links"] if one["port"] == port)


def check_loss(lab: Lab, machine: int) -> None:
    """See that a lost machine's servers are dead, and that the others go on."""
    lost = [node for node in nodes_of(lab, machine) if node < lab.topology.servers]
    parts, victim = len(running(PART)), worker(lab, machine)
    if machine > 1:  # the part itself, with which its worker ends
        threads = Path(f"/proc/{victim}/task").iterdir()
        [victim] = (int(pid) for one in threads for pid in (one / "children").read_text().split())
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: lab.status()["machines"][machine]["state"] == "lost", "nobody noticed")
    assert lab.dead == set(lost)
    assert set(nodes_of(lab, machine)) <= lab.failures().nodes
    crossing = [(c.a, c.b) for c in lab.topology.links() if machine in machines_of(lab, c)]
    for cable in filter(lambda cable: apart(lab, cable), crossing):
        for server, port in server_ends(lab, cable):
            if server not in lab.dead:
                wait_until(lambda s=server, p=port: not carrier(lab, s, p), "a carrier is left")
    wait_until(lambda: len(running(PART)) < parts, "its part is still there")
    lab.wait_converged()
    living = [server for server in range(lab.topology.servers) if server not in lab.dead]
    source, other = next(pair for pair in permutations(living, 2) if lab.computed(*pair))
    wait_until(lambda: lab.trace(source, other)["delivered"], "the others do not go on")


def check_another(lab: Lab, machine: int) -> None:
    """See that another machine takes a lost one's place, in all that is as it was, and is cut."""
    cables = [(c.a, c.b) for c in lab.topology.links() if machine in machines_of(lab, c)]
    crossing = [cable for cable in cables if apart(lab, cable)]
    [within] = [one for one in cables if not apart(lab, one) and one[0] < lab.topology.servers][:1]
    faults = [lab.cut(*crossing[0]), lab.cut(*crossing[1], silent=True), lab.cut(*within)]
    lost = [node for node in nodes_of(lab, machine) if node < lab.topology.servers]
    lab.revive(lost[-1])
    assert lab.status()["machines"][machine]["state"] == "up" and not lab.dead
    assert lab.failures().nodes == frozenset()
    lab.wait_converged()
    if lab.relays:
        for server, port in [*server_ends(lab, crossing[0]), *server_ends(lab, within)]:
            wait_until(lambda s=server, p=port: not carrier(lab, s, p), "a cut is forgotten")
    for fault in faults:
        lab.end(fault)
    lab.wait_converged()
    check_pings(lab)
    check_paths(lab)
    assert '"machine replaced"' in (lab.folder / "events.jsonl").read_text()


def nodes_of(lab: Lab, machine: int) -> list[int]:
    nodes = range(lab.topology.nodes)
    return [node for node in nodes if lab.fabric.machine_of(node) == machine]


def machines_of(lab: Lab, cable: Any) -> set[int]:
    return {lab.fabric.machine_of(cable.a), lab.fabric.machine_of(cable.b)}


@pytest.mark.parametrize("how", ["kill", pytest.param("end", marks=LONG)])
def test_nothing_is_left_of_a_caller(how: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop(sandbox.INSIDE)  # the test's own is not the lab's
    command = [sys.executable, "-c", EVERYTHING, "up", "dcell,4,1", "--machines", "2", "--hold"]
    caller = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert caller.stdout and caller.stdin
    said = b""
    while not said.endswith(b"\0"):  # it is there
        more = caller.stdout.read(1)
        assert more, said
        said += more
    assert b"2 machines, 6 of 30 cables cross" in said
    started = [pid for word in (PART, WORKER, NURSERY) for pid in running(word)]
    assert len(started) > 4
    if how == "kill":
        caller.kill()
    caller.communicate(timeout=WAIT_S)
    assert caller.returncode == (-signal.SIGKILL if how == "kill" else 0)
    wait_until(lambda: not any(map(running, (PART, WORKER, NURSERY))), "something is left")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tree,2,1", "--machines", "2", "--plane", "ovs"], "works in labs on one machine only"),
        (["bcube,4,1", "--machines", "2", "--weights", "15,1,1"], "2 machines need 2 weights"),
        (["bcube,4,1", "--weights", "2,1"], "--weights needs --machines"),
        (["bcube,4,1", "--machines", "17"], "too few for each of 17 machines"),
        (["bcube,4,1", "--machines", "2", "--no-sandbox"], "--machines cannot be combined with"),
    ],
)
def test_refused(words: list[str], said: str) -> None:
    from click.testing import CliRunner

    from pillarbox.experiments.cli.main import cli

    assert said in str(CliRunner().invoke(cli, ["up", *words]).exception)
