"""Cables between machines, each a network namespace: what they carry, and what does not fit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.cluster.placement import place
from pillarbox.experiments.lab.emulation.vxlan_cables import PACKED, SINGLE, WHOLE
from pillarbox.experiments.lab.linux import offloads
from pillarbox.experiments.lab.traffic.tcp_info import tcp_info
from pillarbox.experiments.runs.control.client import ask, entrance
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.calls import inside
from pillarbox.hosts.live.settings import LabSettings
from tests.experiments.labs import WAIT_S, wait_until

pytestmark = pytest.mark.root

SPEC = "bcube,4,1"  # of its 16 servers the first 8 are on machine 0
OTHERS = ["dcell,4,1", "dpillar,4,2"]
LONG = pytest.mark.long
BYTES = 120_000  # fewer segments than a queue holds: none has to be lost
MOST_RETRANSMITTED = 8  # of 83 segments; of super-packets that a tunnel loses, all


class Parts:
    """Two parts of a lab, without the lab that would lead them.

    `crossing` says how super-packets cross; only where that is whole cards cut what is in tunnels.
    """

    def __init__(self, folder: Path, card_mtu: int | None, crossing: str, spec: str) -> None:
        from pillarbox.experiments.apps.cluster.local_machines import CARD, EmulatedMachines

        self.topology = topos.parse(spec)
        self.machine_of = place(self.topology, 2).machine_of.tolist()
        self.folders = [folder / f"machine{machine}" for machine in range(2)]
        self.computer = EmulatedMachines(2, 1500, card_mtu, cuts_tunnels=crossing == WHOLE)
        self.processes = []
        for machine, namespace in enumerate(self.computer.namespaces):
            order = {
                "network": spec,
                "underlay": self.computer.addresses,
                "machine": machine,
                "settings": LabSettings().plain(),
                "seed": 0,
                "router": None,
                "remove": False,
                "folder": str(self.folders[machine]),
                "crossing": crossing,
                "weights": [],
                "clock": ["198.18.0.1", 9],  # nobody asks
            }
            with namespace:
                assert offloads.is_on(CARD, offloads.TUNNEL_SEGMENTS) == (crossing == WHOLE)
                part = subprocess.Popen(
                    [sys.executable, "-m", "pillarbox.experiments.apps.cluster.part"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            assert part.stdin
            part.stdin.write(json.dumps(order).encode() + b"\n")
            part.stdin.flush()
            self.processes.append(part)
        self.said = [json.loads(part.stdout.readline()) for part in self.processes if part.stdout]

    def folder_of(self, server: int) -> Path:
        return self.folders[self.machine_of[server]]

    def ask(self, at: int, kind: str, **request: Any) -> Any:
        return ask(self.folder_of(at), ask=kind, **request)

    def state(self, server: int) -> Any:
        return self.ask(server, "forwarder", server=server, what="state")

    def wait_converged(self) -> None:
        for server in range(self.topology.servers):
            wait_until(lambda server=server: not self.state(server)["down"], f"{server} misses one")

    def socket_at(self, server: int) -> socket.socket:
        files = entrance(self.folder_of(server), self.topology.address(server)).files
        try:
            with inside(files[0]):
                return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        finally:
            for file in files:
                os.close(file)

    def close(self) -> None:
        for part in self.processes:
            part.communicate(timeout=WAIT_S)  # its input ends, and it does
        self.computer.close()


@pytest.mark.root
def test_tunnels_hear_the_machines_alone() -> None:
    from pillarbox.experiments.apps.cluster.local_machines import EmulatedMachines
    from pillarbox.experiments.lab.emulation.underlay import PORT, Underlay

    computer = EmulatedMachines(2, 1500)
    with computer.namespaces[1]:
        underlay = Underlay(computer.addresses, 1)
        heard = {port: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for port in (PORT, 9)}
    for port, one in heard.items():
        one.bind(("", port))
    underlay.guard()

    def say(word: bytes) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for port in heard:
                out.sendto(word, (computer.addresses[1], port))

    say(b"a stranger's")
    with computer.namespaces[0]:
        say(b"a machine's")
    assert [heard[9].recv(64) for _ in range(2)] == [b"a stranger's", b"a machine's"]
    assert heard[PORT].recv(64) == b"a machine's"
    underlay.unguard()
    say(b"a stranger's")
    assert heard[PORT].recv(64) == b"a stranger's"
    for one in heard.values():
        one.close()
    computer.close()


def test_machines_are_switched_past_the_bridge_but_not_past_their_guard() -> None:
    from pillarbox.experiments.apps.cluster.local_machines import CARD, EmulatedMachines
    from pillarbox.experiments.lab.emulation.underlay import PORT, Underlay

    def counted(name: str, way: str) -> int:
        shown = subprocess.check_output(["ip", "-s", "-j", "link", "show", name])
        return int(json.loads(shown)[0]["stats64"][way]["packets"])

    def say(port: int, source: str, times: int = 1) -> None:
        with computer.namespaces[0], socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.bind((source, 0))
            for _ in range(times):
                out.sendto(source.encode(), (computer.addresses[late], port))

    computer = EmulatedMachines(2, 1500)
    late = computer.add()
    with computer.namespaces[late]:
        underlay = Underlay(computer.addresses, late)
        heard = {port: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for port in (PORT, 9)}
    for port, one in heard.items():
        one.bind(("", port))
        one.settimeout(WAIT_S)
    say(9, computer.addresses[0])  # both know each other's MAC address then
    heard[9].recv(64)
    by_bridge = counted(f"machine{late}", "tx")
    with computer.namespaces[late]:
        by_card = counted(CARD, "rx")
    say(9, computer.addresses[0], 50)
    for _ in range(50):
        heard[9].recv(64)
    with computer.namespaces[late]:
        assert counted(CARD, "rx") >= by_card + 50
    assert counted(f"machine{late}", "tx") < by_bridge + 10

    underlay.guard()
    stranger = "198.18.9.9"
    with computer.namespaces[0]:
        subprocess.run(["ip", "addr", "add", f"{stranger}/32", "dev", CARD], check=True)
    for source in (stranger, computer.addresses[0]):
        say(PORT, source)
    assert heard[PORT].recv(64).decode() == computer.addresses[0]
    for one in heard.values():
        one.close()
    computer.close()


def test_a_card_is_left_as_it_was() -> None:
    from pillarbox.experiments.apps.cluster.local_machines import EmulatedMachines
    from pillarbox.experiments.lab.emulation.underlay import Underlay
    from pillarbox.experiments.lab.linux import cable_programs
    from pillarbox.hosts.linux.netlink import NetlinkError

    computer = EmulatedMachines(2, 1500)
    with computer.namespaces[1]:
        underlay = Underlay(computer.addresses, 1)
    tap = cable_programs.CableTap(underlay.card.ifindex, nl.CLSACT_INGRESS)
    for there_before in (False, True):  # what others' programs are attached to
        underlay.guard()
        assert not cable_programs.is_empty(underlay.netlink, tap)
        underlay.unguard()
        assert cable_programs.is_empty(underlay.netlink, tap)
        with pytest.raises(NetlinkError) if there_before else nullcontext():
            underlay.netlink.send([cable_programs.hook(tap, new=True)])
    computer.close()


@contextmanager
def parts(
    folder: Path, card_mtu: int | None = None, crossing: str = WHOLE, spec: str = SPEC
) -> Iterator[Parts]:
    made = Parts(folder, card_mtu, crossing, spec)
    try:
        yield made
    finally:
        made.close()


def carry(lab: Parts, source: int, destination: int) -> int:
    """Send some bytes by TCP; return how many segments went twice."""
    received = []

    def receive() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(WAIT_S)
            while data := peer.recv(1 << 16):
                received.append(data)
            peer.sendall(b"all")

    with lab.socket_at(destination) as listener, lab.socket_at(source) as sender:
        for end in (listener, sender):
            end.settimeout(WAIT_S)
        listener.bind((lab.topology.ip(destination), 5001))
        listener.listen()
        receiver = threading.Thread(target=receive)
        receiver.start()
        sender.connect((lab.topology.ip(destination), 5001))
        sent = os.urandom(BYTES)
        sender.sendall(sent)
        sender.shutdown(socket.SHUT_WR)
        assert sender.recv(3) == b"all"
        receiver.join(WAIT_S)
        assert b"".join(received) == sent
        return tcp_info(sender)["total_retrans"]


@pytest.mark.parametrize(
    ("crossing", "spec"),
    [
        (PACKED, SPEC),
        *(pytest.param(PACKED, spec, marks=LONG) for spec in OTHERS),
        pytest.param(SINGLE, SPEC, marks=LONG),
        pytest.param(WHOLE, SPEC, marks=LONG),
    ],
)
def test_what_cables_between_machines_carry(crossing: str, spec: str, tmp_path: Path) -> None:
    with parts(tmp_path, crossing=crossing, spec=spec) as lab:
        assert [one["event"] for one in lab.said] == ["up", "up"], lab.said
        lab.wait_converged()
        last = lab.topology.servers - 1
        for ends in ((0, last), (last - 1, 1)):
            assert len({lab.machine_of[end] for end in ends}) == 2
            retransmitted = carry(lab, *ends)
            assert retransmitted < MOST_RETRANSMITTED
        for folder in lab.folders if crossing == PACKED else ():
            tallies = ask(folder, ask="tallies")
            assert tallies["packed"] and tallies["mended"] and not tallies["refused"], tallies


def test_packets_that_do_not_fit(tmp_path: Path) -> None:
    with parts(tmp_path, card_mtu=1500) as lab:
        for one in lab.said:
            assert one["event"] == "failed"
            assert "choose --mtu 1386 or less" in one["why"]
