"""Live labs with port addresses: packets keep to their ports, on both planes."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pillarbox import topos
from pillarbox.hosts.base.path import Path as Route
from pillarbox.hosts.base.pinned_paths import pinned_path, ports_of_ends
from pillarbox.topos.base.addressing import End
from pillarbox.topos.base.topology import Topology
from tests.experiments.labs import PLANES, WAIT_S, lab_of, wait_until
from tests.experiments.runs.control.test_commands import own_run, pillarbox, up

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

__all__ = ["own_run"]  # a fixture

pytestmark = pytest.mark.root

NETWORKS = ("bcube,4,1", "dcell,4,1", "dpillar,4,2", "ficonn,4,1")
TRANSFER_BYTES = 300_000
# Upper bound for other traffic of a port during a transfer: heartbeats, probes, acknowledgements.
OTHER_BYTES = 60_000
PORT = 5001
QUEUE_FULL = "port refused the frame: No buffer space available"  # a drop that TCP expects


def pinned(topology: Topology, most: int) -> Iterator[tuple[Route, int]]:
    """Yield paths over several hops that are pinned to a port of their source."""
    servers = range(topology.servers)
    pairs = [(a, b) for a in servers for b in servers if a != b]
    random.Random(1).shuffle(pairs)
    found = (
        (path, port)
        for a, b in pairs
        for port in range(topology.ports)
        if (path := pinned_path(topology, a, port, b, None)) and len(path) > 1
    )
    for one, _ in zip(found, range(most), strict=False):
        yield one


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("spec", NETWORKS)
def test_packets_of_port_addresses_keep_to_their_ports(
    spec: str, plane: str, tmp_path: Path
) -> None:
    with lab_of(spec, tmp_path, plane=plane, timers="paper", port_addresses=True) as lab:
        check_pings(lab)
        check_traces(lab)
        for path, port in pinned(lab.topology, 3):
            check_transfer(lab, path, port)
        assert lab.status()["drops"].keys() <= {QUEUE_FULL}


def check_pings(lab: Lab) -> None:
    """See that every server's ports answer, between the addresses of equal ports and others."""
    topology = lab.topology
    for source in range(topology.servers):
        others = [server for server in range(topology.servers) if server != source]
        for ports in ((0, 0), (topology.ports - 1, None), (None, topology.ports - 1)):
            found = lab.fabric.echoes(source, others, WAIT_S, ports)
            assert None not in found.values(), (source, ports, found)


def check_traces(lab: Lab) -> None:
    for path, port in pinned(lab.topology, 8):
        names = [lab.name(server) for server in path.servers]
        ends = path.source, path.destination
        found = lab.trace(*ends, ports=(port, None))
        assert found["delivered"], found
        assert found["path"] == names == lab.computed(*ends, (port, None))
        back = lab.trace(*ends[::-1], ports=(None, port))
        assert back["path"] == names[::-1]


def check_transfer(lab: Lab, path: Route, port: int) -> None:
    """See that a connection's bytes leave by the port, and its acknowledgements come over it."""
    topology = lab.topology
    before, slow = lab.fabric.bytes_sent(), packets_sent_by_routers(lab)
    send_bytes(lab, End(path.source, port), End(path.destination))
    after = lab.fabric.bytes_sent()
    assert packets_sent_by_routers(lab) - slow < TRANSFER_BYTES / 1448 / 2, "no decision is cached"

    def sent(server: int, by: int) -> int:
        name = topology.interface(server, by)
        return after.get(name, 0) - before.get(name, 0)

    for server, step in zip(path.servers, path.steps, strict=False):
        assert sent(server, step.port) > TRANSFER_BYTES
    for other in range(topology.ports):
        assert other == port or sent(path.source, other) < OTHER_BYTES
    in_by = ports_of_ends(topology, path)[1]
    acknowledged = {by: sent(path.destination, by) for by in range(topology.ports)}
    assert max(acknowledged, key=lambda by: acknowledged[by]) == in_by


def send_bytes(lab: Lab, source: End, destination: End) -> None:
    """Send TRANSFER_BYTES over a TCP connection between two addresses."""
    with lab.host(destination.server).live_namespace():
        listening = socket.create_server((lab.topology.end_ip(destination), PORT))
    with lab.host(source.server).live_namespace():
        client = socket.socket()
    received: list[int] = []

    def receive() -> None:
        connection, _ = listening.accept()
        with connection:
            while data := connection.recv(1 << 16):
                received.append(len(data))

    with listening, client:
        listening.settimeout(WAIT_S)
        client.settimeout(WAIT_S)
        thread = threading.Thread(target=receive)
        thread.start()
        client.bind((lab.topology.end_ip(source), 0))
        client.connect(listening.getsockname())
        client.sendall(bytes(TRANSFER_BYTES))
        client.shutdown(socket.SHUT_WR)
        thread.join(WAIT_S)
    assert sum(received) == TRANSFER_BYTES


def packets_sent_by_routers(lab: Lab) -> int:
    states = (lab.state(server) for server in range(lab.topology.servers))
    return sum(state["counters"].get("frames out", 0) for state in states)


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("spec", NETWORKS)
def test_cut_on_the_pinned_path_is_routed_around(spec: str, plane: str, tmp_path: Path) -> None:
    topology = topos.parse(spec)
    path, port = next(pinned(topology, 1))
    nodes = path.nodes(topology)
    at = nodes.index(path.servers[1])
    with lab_of(spec, tmp_path, plane=plane, port_addresses=True) as lab:
        ends = path.source, path.destination
        names = [lab.name(server) for server in path.servers]
        assert lab.trace(*ends, ports=(port, None))["path"] == names
        cut = lab.cut(nodes[at], nodes[at + 1])

        def answers() -> bool:
            found = lab.fabric.echoes(ends[0], [ends[1]], 0.5, (port, None))
            return found[ends[1]] is not None

        wait_until(answers, "no packet gets around the cut cable")
        found = lab.trace(*ends, ports=(port, None))
        assert found["delivered"]
        assert found["path"] != names
        send_bytes(lab, End(path.source, port), End(path.destination))
        lab.end(cut)
        wait_until(
            lambda: lab.trace(*ends, ports=(port, None))["path"] == names,
            "packets do not return to their path",
        )


def addresses(lab: Lab, server: int) -> set[str]:
    with lab.host(server).live_namespace():
        shown = subprocess.run(
            ["ip", "-4", "-o", "address", "show", "dev", "dcn0"],
            capture_output=True,
            text=True,
            check=True,
        )
    return {line.split()[3].partition("/")[0] for line in shown.stdout.splitlines()}


def port_ips(topology: Topology, server: int) -> set[str]:
    return {topology.end_ip(End(server, port)) for port in range(topology.ports)}


def test_revived_and_joining_servers_have_their_addresses(tmp_path: Path) -> None:
    with lab_of("dcell,4,1,servers=16", tmp_path, plane="python", port_addresses=True) as lab:
        lab.kill(3)
        lab.revive(3)
        assert addresses(lab, 3) == {lab.topology.ip(3), *port_ips(lab.topology, 3)}
        lab.grow(4)
        topology = lab.topology
        assert addresses(lab, 19) == {topology.ip(19), *port_ips(topology, 19)}
        for path, port in pinned(topology, 6):
            ends = path.source, path.destination
            found = lab.trace(*ends, ports=(port, None))
            assert found["path"] == [lab.name(server) for server in path.servers], found
        lab.shrink(4)
        assert lab.trace(0, 15, ports=(1, None))["delivered"]


def test_names_of_ports(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path, plane="python", port_addresses=True) as lab:
        with lab.host(0).live_namespace():
            found = subprocess.run(
                [sys.executable, "-c", "import socket; print(socket.gethostbyname('h3-1'))"],
                capture_output=True,
                text=True,
                check=True,
            )
        assert found.stdout.strip() == lab.topology.end_ip(End(3, 1))
        assert lab.packet_end("1.1%1") == lab.packet_end("h3-1") == End(3, 1)


COMMANDS = """\
ping 0.0%1 1.1
ping 1.1 0.0%1
path 0.0%1 1.1
0.0 ping -c 1 -I 0.0%1 1.1%0
"""


@pytest.mark.parametrize("machines", [[], ["--machines", "2"]], ids=["one", "two"])
def test_commands_and_machines(
    own_run: Callable[[], None], machines: list[str], tmp_path: Path
) -> None:
    own_run()
    if machines:
        pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
    (tmp_path / "commands").write_text(COMMANDS)
    script = "--exec", str(tmp_path / "commands")
    done = pillarbox("up", "bcube,2,1", "--port-addresses", "--quiet", *machines, *script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "an answer from 1.1 to 0.0%1 after" in done.stdout
    assert "an answer from 0.0%1 to 1.1 after" in done.stdout
    assert "computed: 0.0 1.0 1.1\ntaken:    0.0 1.0 1.1 (arrived)" in done.stdout
    assert "PING 172.16.0.4 (172.16.0.4) from 172.17.0.1" in done.stdout


def test_hosts_lists_the_addresses_of_ports(own_run: Callable[[], None]) -> None:
    own_run()
    with up("bcube,2,1", "--port-addresses", "--plane", "python"):
        lines = pillarbox("hosts").stdout.splitlines()
        assert lines[3] == "10.0.0.4 slots=1 # 1.1 h3 %0 172.16.0.4 %1 172.17.0.4"
        traced = pillarbox("trace", "0.0%1", "1.1")
        assert traced.returncode == 0
        assert "taken:    0.0 1.0 1.1 (arrived)" in traced.stdout


def test_without_the_option_ports_have_no_address(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path, plane="python") as lab:
        assert addresses(lab, 0) == {lab.topology.ip(0)}
        assert lab.fabric.echoes(0, [3], 0.2, (None, 1)) == {3: None}
        with pytest.raises(Exception, match="up bcube,2,1 --port-addresses"):
            lab.packet_end("1.1%1")
