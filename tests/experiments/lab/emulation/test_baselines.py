"""The networks whose switches do it all, live: bridges, Linux routers, Open vSwitch."""

from __future__ import annotations

import hashlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice, permutations
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.kits import OPENFLOW_KITS, missing_kit
from pillarbox.experiments.lab.emulation.switch_tables import tables
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.faults import Fault
from pillarbox.hosts.linux.calls import duplicate_from_process
from pillarbox.topos.base.errors import PillarboxError

ROOT = Path(topos.__file__).parents[1]
PORT = 9
SOON_S = 30.0
ATTEMPTS = 3  # to send a packet that does not arrive
IP_RECVTTL = 12  # Python has no name for it


@contextmanager
def lab(
    spec: str, folder: Path, routing: str = "", plane: str = "auto", switches: str = "bridges"
) -> Iterator[Any]:
    from mininet.log import setLogLevel

    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    setLogLevel("critical")
    kit = plane if plane in OPENFLOW_KITS else ""
    plane = "ovs" if kit else plane
    settings = LabSettings(routing=routing, plane=plane, switches=switches, kit=kit, rate_mbit=100)
    with running(topos.parse(spec), settings, folder) as live:
        yield live


def needs_ovs(kit: str = "") -> pytest.MarkDecorator:
    from pillarbox.experiments.lab.emulation.ovs import missing_ovs_parts

    lack = missing_ovs_parts(kit)
    return pytest.mark.skipif(bool(lack), reason=lack or "it is here")


PLANES = [pytest.param("auto", id="routers"), pytest.param("ovs", marks=needs_ovs())]
WITH_RYU = pytest.param("ryu", marks=needs_ovs("ryu"))


def live_paths(
    live: Any, flows: list[tuple[int, int, int]], patience_s: float = SOON_S
) -> list[tuple[list[str], int]]:
    """Return the nodes that a packet of each flow (source, destination, source port) passes.

    With each stands the time to live that was left of 64; 0 if the packet was lost.
    """
    from pillarbox.experiments.lab.observe.switch_tracing import SwitchTracer
    from pillarbox.hosts.wire.marks import udp_payload

    found: list[tuple[list[str], int]] = []
    came: Counter[bytes] = Counter()
    with SwitchTracer(live.net, PORT) as follower:
        listeners = {}
        for server in {flow[1] for flow in flows}:
            listeners[server] = udp_socket(live, server, live.topology.ip(server), PORT)
            listeners[server].setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        serials = count()
        for source, destination, source_port in flows:
            # The kernel's receive backlog is shared with other tests: one packet may be lost there.
            for serial in islice(serials, ATTEMPTS):
                with udp_socket(live, source, "", source_port) as sender:
                    sender.sendto(udp_payload(serial), (live.topology.ip(destination), PORT))
                wait_s = patience_s / ATTEMPTS
                left = arrived(listeners[destination], udp_payload(serial), wait_s, came)
                if left:
                    break
            path = [live.name(source), *follower.passed(serial)]
            found.append(([*path, live.name(destination)] if left else path, left))
        for listener in listeners.values():
            arrived(listener, b"", 0, came)
            listener.close()
    assert set(came.values()) <= {1}, "a packet came twice"
    return found


def arrived(listener: socket.socket, wanted: bytes, patience_s: float, came: Counter[bytes]) -> int:
    """Return the time to live of that packet when it has arrived, 0 if it does not.

    Everything that has come until then is counted.
    """
    while select.select([listener], [], [], patience_s)[0]:
        payload, notes, _, _ = listener.recvmsg(100, 100)
        came[payload] += 1
        if payload == wanted:
            return int.from_bytes(notes[0][2], sys.byteorder)
    return 0


def udp_socket(live: Any, server: int, address: str, port: int) -> socket.socket:
    return bound(live, server, socket.SOCK_DGRAM, address, port)


def bound(live: Any, server: int, kind: int, address: str = "", port: int = 0) -> socket.socket:
    with live.host(server).live_namespace():
        made = socket.socket(socket.AF_INET, kind)
    made.bind((address, port))
    made.settimeout(SOON_S)
    return made


def assert_tcp_arrives(live: Any, source: int, destination: int, size: int = 500_000) -> None:
    data = os.urandom(size)
    address = (live.topology.ip(destination), 7000)
    with bound(live, destination, socket.SOCK_STREAM, *address) as listener:
        listener.listen()
        sender = bound(live, source, socket.SOCK_STREAM)
        sender.connect(address)
        receiver, _ = listener.accept()
        receiver.settimeout(SOON_S)

    def send() -> None:
        with sender:
            sender.sendall(data)

    thread = threading.Thread(target=send)
    thread.start()
    digest = hashlib.sha256()
    with receiver:
        while block := receiver.recv(1 << 16):
            digest.update(block)
    thread.join()
    assert digest.digest() == hashlib.sha256(data).digest()


def reached(live: Any, source: int, destination: int, wait_s: int = 10) -> bool:
    target = live.topology.ip(destination)
    return live.host(source).popen(f"ping -c1 -W{wait_s} {target}").wait() == 0


def cut_off(live: Any, source: int, destination: int) -> bool:
    return not reached(live, source, destination, wait_s=1)


@pytest.mark.root
@pytest.mark.parametrize(
    ("spec", "routing", "plane", "lowered"),
    [
        ("tree,4,4", "bridge", "auto", False),
        ("fattree,4", "two-level", "auto", True),
        ("fattree,4,levels=2", "two-level", "auto", True),
        ("fattree,4,levels=4", "two-level", "auto", True),
        pytest.param("fattree,4", "two-level", "ovs", True, marks=needs_ovs()),
        pytest.param("tree,3,2", "bridge", "ovs", True, marks=needs_ovs()),
        pytest.param("tree,3,2", "bridge", "ryu", True, marks=needs_ovs("ryu")),
    ],
)
def test_live_ways_are_the_computed_ones(
    spec: str, routing: str, plane: str, lowered: bool, tmp_path: Path
) -> None:
    with lab(spec, tmp_path, routing, plane) as live:
        servers = range(live.topology.servers)
        flows = [(a, b, 0) for a, b in permutations(servers, 2)][: 16 * 15]
        for (source, destination, _), (path, left) in zip(
            flows, live_paths(live, flows), strict=True
        ):
            assert path == live.computed(source, destination)
            assert left == 64 - (len(path) - 2 if lowered else 0)
        last = servers[-1]
        trace = live.trace(0, last)
        assert (trace["path"], trace["delivered"]) == (live.computed(0, last), True)
        assert not trace["dropped"] and not trace["lost_to"]
        assert reached(live, 0, last) and reached(live, last, 1)
        assert_tcp_arrives(live, 0, last)
        assert_tcp_arrives(live, 1, 0)


def nodes_of_ways(live: Any, failures: Failures, source: int, destination: int) -> set[tuple]:
    """Return all ways that the routing's tables allow, as names."""
    network, found = live.topology, tables(live.topology, live.routing, failures)
    complete, pending = set(), [(source, network.server_plug(source, 0).node)]
    while pending:
        way = pending.pop()
        if way[-1] == destination:
            complete.add(tuple(live.name(node) for node in way))
            continue
        switch = way[-1] - network.servers
        pending += [
            (*way, network.switch_plug(switch, port).node)
            for port in found[switch].get(destination, ())
        ]
    return complete


def taken(live: Any, flows: int = 48) -> set[tuple]:
    """Return the ways that flows from the first server to the last take."""
    ends = 0, live.topology.servers - 1
    found = live_paths(live, [(*ends, 20_000 + port) for port in range(flows)], 0.1)
    return {tuple(path) for path, _ in found}


def wait_until_taken(live: Any, wanted: set[tuple]) -> None:
    """Wait until all of the ways are taken, and no other."""
    deadline = time.monotonic() + SOON_S
    while (found := taken(live)) != wanted:
        assert time.monotonic() < deadline, f"{found} instead of {wanted}"


@pytest.mark.root
@pytest.mark.parametrize("plane", [*PLANES, WITH_RYU])
def test_flows_are_spread_over_all_ways_that_work(plane: str, tmp_path: Path) -> None:
    with lab("fattree,4", tmp_path, "hashed", plane) as live:
        last, first_switch = live.topology.servers - 1, live.topology.servers
        every = nodes_of_ways(live, Failures(), 0, last)
        assert len(every) == 4
        wait_until_taken(live, every)
        near = live.cut(first_switch, first_switch + 8)  # the server's switch to its pod's first
        wait_until_taken(live, nodes_of_ways(live, live.failures(), 0, last))
        far = live.cut(first_switch + 19, first_switch + 15)  # a core to the other pod
        left = nodes_of_ways(live, live.failures(), 0, last)
        assert len(left) == 1
        wait_until_taken(live, left)
        live.end(near)
        live.end(far)
        live.begin(Fault("switch", ("s15",)))
        left = nodes_of_ways(live, live.failures(), 0, last)
        assert len(left) == 2
        wait_until_taken(live, left)
        assert_tcp_arrives(live, 0, last)
        live.end(live.faults.active[0])
        wait_until_taken(live, every)


@pytest.mark.root
@pytest.mark.parametrize("plane", PLANES)
def test_two_level_tables_know_nothing_of_failures(plane: str, tmp_path: Path) -> None:
    with lab("fattree,4", tmp_path, "two-level", plane) as live:
        computed = live.computed(0, 15)
        a, b = (live.node(name) for name in computed[2:4])
        fault = live.cut(a, b)
        assert live.computed(0, 15) == []
        found = live.trace(0, 15)
        assert not found["delivered"] and found["path"] == computed[:3]
        live.end(fault)
        deadline = time.monotonic() + SOON_S
        while not live.trace(0, 15)["delivered"]:
            assert time.monotonic() < deadline
        fault = live.cut(a, b, silent=True)
        assert not live.trace(0, 15)["delivered"]
        live.end(fault)
        assert live.trace(0, 15)["path"] == computed


@pytest.mark.root
@pytest.mark.parametrize(
    ("spec", "plane"),
    [
        ("tree,2,2", "auto"),
        ("fattree,4", "auto"),
        pytest.param("fattree,4", "ovs", marks=needs_ovs()),
    ],
)
def test_a_dead_server_is_silent_until_it_is_revived(spec: str, plane: str, tmp_path: Path) -> None:
    with lab(spec, tmp_path, plane=plane) as live:
        program = live.host(1).popen("sleep 1000")
        live.kill(1)
        assert program.wait(SOON_S) == -9
        assert cut_off(live, 0, 1)
        sent = live.trace(1, 0)
        assert not sent["delivered"] and "cannot send" in sent["dropped"]
        live.revive(1)
        deadline = time.monotonic() + SOON_S
        while cut_off(live, 0, 1):
            assert time.monotonic() < deadline
        assert reached(live, 1, 3)
        rack = live.begin(Fault("rack", ("s0",)))
        assert live.dead == {0, 1}
        assert cut_off(live, 3, 0)
        live.end(rack)
        deadline = time.monotonic() + SOON_S
        while cut_off(live, 3, 0):
            assert time.monotonic() < deadline


@pytest.mark.root
def test_servers_of_a_tree_need_not_ask_for_mac_addresses(tmp_path: Path) -> None:
    with lab("tree,2,3", tmp_path) as live, live.host(0).live_namespace():
        known = Path("/proc/thread-self/net/arp").read_text().splitlines()[1:]
        permanent = {line.split()[0] for line in known if line.split()[2] == "0x6"}
        assert permanent == {live.topology.ip(server) for server in range(1, 6)}


@pytest.mark.root
def test_a_tcp_connection_survives_while_a_way_is_left(tmp_path: Path) -> None:
    with lab("fattree,4", tmp_path, "hashed") as live:
        switch = live.topology.servers
        with bound(live, 15, socket.SOCK_STREAM, live.topology.ip(15), 7000) as listener:
            listener.listen()
            sender = bound(live, 0, socket.SOCK_STREAM)
            sender.connect((live.topology.ip(15), 7000))
            receiver, _ = listener.accept()
        receiver.settimeout(SOON_S)
        with sender, receiver:
            for a, b in ((0, 8), (9, 19), (0, 8)):
                fault = live.cut(switch + a, switch + b)
                sender.sendall(b"x" * 1000)
                got = 0
                while got < 1000:
                    got += len(receiver.recv(1000))
                live.end(fault)


def ovs_processes(folder: Path) -> list[str]:
    listed = subprocess.run(
        ["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if str(folder) in line and "ovs" in line]


@pytest.mark.root
@needs_ovs()
def test_open_vswitch_keeps_the_shapers_of_cables(tmp_path: Path) -> None:
    with lab("tree,2,2", tmp_path, plane="ovs") as live:
        for name in ("h0", "s0"):
            for intf in live.net[name].intfs.values():
                shown = live.net[name].popen(["tc", "qdisc", "show", "dev", intf.name])
                assert b"qdisc htb" in shown.communicate(timeout=SOON_S)[0], intf.name


@pytest.mark.root
@needs_ovs()
def test_frames_may_wait_in_the_queues_of_all_cables(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation import ovs

    with lab("tree,2,2", tmp_path, plane="ovs") as live:
        if live.switches.datapath == ovs.KERNEL:
            pytest.skip("the kernel forwards, and no socket counts frames")
        daemon = live.switches._running["vswitchd"].pid
        pidfd = os.pidfd_open(daemon)
        sizes = []
        for file in Path(f"/proc/{daemon}/fd").iterdir():
            if str(file.readlink()).startswith("socket:"):
                with socket.socket(fileno=duplicate_from_process(pidfd, int(file.name))) as shared:
                    if shared.family == socket.AF_PACKET:
                        sizes.append(shared.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
        os.close(pidfd)
        # a socket for each of the 6 ports of switches, and the one that sends all frames
        assert len(sizes) > 6
        assert min(sizes) > ovs.SEND_BUFFER_BYTES / 2


@pytest.mark.root
@needs_ovs()
def test_open_vswitch_ends_with_its_lab(tmp_path: Path) -> None:
    with lab("tree,2,2", tmp_path, plane="ovs"):
        assert len(ovs_processes(tmp_path)) == 2
    assert ovs_processes(tmp_path) == []
    interfaces = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in interfaces.stdout.splitlines()] == ["lo"]


@pytest.mark.root
def test_what_cannot_be_had_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pillarbox.experiments.lab.emulation import ovs

    for spec, routing, plane, told in [
        ("fattree,4", "dfr", "auto", "no routing 'dfr': there are two-level, hashed, shortest"),
        ("bcube,2,1", "", "ovs", "no plane 'ovs' for bcube,2,1: auto, python, ebpf"),
    ]:
        with pytest.raises(PillarboxError, match=told), lab(spec, tmp_path, routing, plane):
            pass
    monkeypatch.setattr(
        "pillarbox.experiments.lab.emulation.kits._is_installed", lambda kit: kit == "ryu"
    )
    assert missing_kit() == missing_kit("ryu") == ""
    assert missing_kit("os-ken") == "os-ken is not installed: sudo ./pillarbox setup openflow"
    monkeypatch.setattr(ovs.shutil, "which", lambda program: None)
    assert "sudo ./pillarbox setup openflow" in ovs.missing_ovs_parts()
    monkeypatch.setattr(ovs.sandbox, "inside", lambda: False)
    with pytest.raises(PillarboxError, match="leave out --no-sandbox"):
        ovs.check_installed()
