"""A live network grows and shrinks while connections go on."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pillarbox import topos
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.faults import Fault
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.lab.emulation.test_lab_faults import Stream
from tests.experiments.labs import EBPF, lab_of, wait_until
from tests.experiments.runs.control.test_commands import pillarbox

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.lab.emulation.lab_network import LabNet

pytestmark = [pytest.mark.root, pytest.mark.without_root]

LONG_EBPF = [EBPF, pytest.mark.long]
# Part of a network, what it grows to, and connections between servers that are there all the time.
CASES = [
    pytest.param("dcell,4,1,servers=16", 20, ["0.0 3.3", "1.3 2.3", "2.0 0.1"], "python"),
    pytest.param("dcell,4,1,servers=16", 20, ["0.0 3.3", "2.0 0.1"], "ebpf", marks=EBPF),
    pytest.param("dcell,2,2,servers=7", 18, ["0.0.0 1.0.0"], "python", marks=pytest.mark.long),
    # Of level 3: AddDCell puts the first DCell_1 into each DCell_2.
    pytest.param("dcell,2,3,servers=12", 24, ["0.0.0.0 1.0.0.0"], "ebpf", marks=LONG_EBPF),
    pytest.param(
        "bcube,4,1,servers=8", 16, ["0.0 1.3", "1.1 0.2"], "python", marks=pytest.mark.long
    ),
    pytest.param("bcube,2,2,servers=4", 8, ["0.0.0 0.1.1"], "ebpf", marks=EBPF),
]


@pytest.mark.parametrize(("spec", "servers", "connections", "plane"), CASES)
def test_connections_go_on_while_the_network_grows_and_shrinks(
    spec: str, servers: int, connections: list[str], plane: str, tmp_path: Path
) -> None:
    small = topos.parse(spec)
    with lab_of(spec, tmp_path, plane=plane) as lab, ExitStack() as running:
        at_first = kernel_names(lab.net)
        ends = [[lab.server(name) for name in pair.split()] for pair in connections]
        streams = [running.enter_context(Stream(lab, *pair)) for pair in ends]
        processes = dict(lab.forwarders.pids) if lab.forwarders else {}
        for size in (small.resized(servers), small, small.resized(servers)):
            for stream in streams:
                stream.goes_on(f"as {lab.topology.spec}")
            lab.resize(size.servers)
            check(lab)
        for stream in streams:
            stream.goes_on("at the end")
        assert lab.forwarders
        assert processes.items() <= lab.forwarders.pids.items(), "a server was started anew"
        lab.resize(small.servers)
        assert kernel_names(lab.net) == at_first
        events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    resized = [event["network"] for event in events if event["event"] == "resized"]
    assert resized == [small.resized(servers).spec, spec] * 2


def check(lab: Lab) -> None:
    """See that the lab is the network that it says it is, with nothing missing and nothing lost."""
    topology = lab.topology
    assert kernel_names(lab.net) == expected_names(lab)
    status = lab.status()
    assert status["network"] == topology.spec and status["servers"] == topology.servers
    assert not status["dead"] and not status["links_down"]
    for server in range(topology.servers):
        other = (server + topology.servers // 2) % topology.servers
        found = lab.trace(server, other, source_port=5001)
        path = route(topology, lab.routing, server, other).paths[0]
        assert found["delivered"], found
        assert found["path"] == [topology.address(each) for each in path.servers]
        assert found["path"] == lab.computed(server, other)


def kernel_names(net: LabNet) -> set[tuple[str, str]]:
    """Return the name and the MAC address of each bridge's ports, as the kernel has them."""
    from pillarbox.experiments.lab.linux.namespaces import fabric

    links = list(fabric().netlink.links())
    bridges = {link.ifindex: link.name for link in links}
    return {(link.name, link.mac) for link in links if bridges.get(link.master, "?")[0] == "s"}


def expected_names(lab: Lab) -> set[tuple[str, str]]:
    topology = lab.topology
    return {
        (topology.interface(cable.b, cable.b_port), topology.mac(cable.b, cable.b_port))
        for cable in topology.links()
        if cable.b >= topology.servers
    }


def at_prompt(folder: Path, spec: str, *lines: str, code: int = 0) -> list[str]:
    """Return what the prompt of a lab says to these lines; code 1 tells that one has failed."""
    script = folder / "script"
    script.write_text("\n".join(lines))
    done = pillarbox("up", spec, "--quiet", "--plane", "python", "--exec", str(script))
    assert done.returncode == code, done.stderr
    return done.stdout.splitlines()


REFUSED = {
    "dcell,4,1,servers=16": {
        "grow 5": "dcell,4,1 holds 1 to 20 servers, not 21",
        "shrink 16": "dcell,4,1 holds 1 to 20 servers, not 0",
        "grow many": "write: grow [SERVERS | all]",
    },
    "ficonn,4,1": {
        "grow": "ficonn,4,1 is complete: no server is missing",
        "shrink": "ficonn,4,1 neither grows nor shrinks: its paper has no partial networks",
    },
}


@pytest.mark.parametrize("spec", REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(spec: str, tmp_path: Path) -> None:
    lines = at_prompt(tmp_path, spec, *REFUSED[spec], "status", code=1)
    *said, network = lines[: len(REFUSED[spec]) + 1]
    assert said == [f"*** {sentence}" for sentence in REFUSED[spec].values()]
    assert network.split()[:2] == ["network", f"{spec},"]


def test_faults_come_first(tmp_path: Path) -> None:
    with lab_of("dcell,4,1,servers=16", tmp_path, plane="python") as lab:
        lab.begin(Fault("switch", ("s0",)))
        with pytest.raises(PillarboxError, match="a fault is in effect: `heal all`"):
            lab.grow()
        assert lab.topology.servers == 16


def test_the_prompt_grows_and_shrinks(tmp_path: Path) -> None:
    lines = "grow 1", "grow all", "path 0.0 4.3", "shrink"
    assert at_prompt(tmp_path, "dcell,4,1,servers=12", *lines) == [
        "dcell,4,1,servers=13: 13 servers, 4 switches",
        "dcell,4,1: 20 servers, 5 switches",
        "computed: 0.0 0.3 4.0 4.3",
        "taken:    0.0 0.3 4.0 4.3 (arrived)",
        "dcell,4,1,servers=16: 16 servers, 4 switches",
    ]


def test_a_dead_server_comes_back_into_the_larger_network(tmp_path: Path) -> None:
    with lab_of("dcell,4,1,servers=16", tmp_path, plane="python") as lab:
        dead, new = lab.server("0.3"), 16
        lab.kill(dead)
        lab.grow()
        assert lab.dead == {dead}
        lab.revive(dead)
        lab.wait_converged()
        assert lab.trace(dead, new)["path"] == ["0.3", "4.0"]


@EBPF
@pytest.mark.long
def test_a_death_is_noticed_where_servers_have_come_to_a_switch(tmp_path: Path) -> None:
    """With five servers at a switch the kernel counts all as heard when each was heard by one."""
    with lab_of("dcell,5,1,servers=23", tmp_path, plane="ebpf") as lab:
        for size in (25, 23, 25):
            lab.resize(size)
            for name in ("0.3", "3.1", "4.1"):
                dead = lab.server(name)
                lab.kill(dead)
                wait_until(lambda dead=dead: is_missed(lab, dead), f"{name} of {size} is missed")
                lab.revive(dead)
                lab.wait_converged()


def is_missed(lab: Lab, server: int) -> bool:
    """Tell whether all neighbours of a server know that it is dead."""
    assert lab.forwarders
    name, ports = lab.name(server), range(lab.topology.ports)
    neighbours = {peer for port in ports for peer in lab.topology.peers(server, port)}
    for neighbour in neighbours:
        state = lab.forwarders.ask(neighbour, "state")
        if not state or name not in {link["peer"] for link in state["down"]}:
            return False
    return True
