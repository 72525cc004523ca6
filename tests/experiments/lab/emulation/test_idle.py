"""A network at rest leaves its machine at rest."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.lab import Lab
from pillarbox.experiments.lab.emulation.local_fabric import running
from pillarbox.hosts.live.devices import BROADCAST_MAC, PROTOCOL_AT
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_DCN
from tests.experiments.labs import EBPF, PLANES, WAIT_S, lab_of, wait_until

pytestmark = pytest.mark.root

LISTENED_S = 1.0
ETH_ALL = 3
SERVER = 5


def wake_ups(lab: Lab) -> int:
    """Return how often the server's forwarder has gone to sleep."""
    assert lab.forwarders is not None
    text = Path(f"/proc/{lab.forwarders.pids[SERVER]}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def heartbeats_heard(lab: Lab) -> int:
    """Return how many the server has received."""
    heard: int = lab.state(SERVER)["heartbeats heard by the kernel"]
    return heard


@pytest.mark.parametrize("plane", ["python", "ebpf"])
def test_a_server_is_not_woken_up_by_heartbeats(tmp_path: Path, plane: str) -> None:
    with running(topos.parse("bcube,4,1"), LabSettings(plane=plane), tmp_path) as lab:
        lab.wait_converged()
        woken, heard = wake_ups(lab), heartbeats_heard(lab)
        deadline = time.monotonic() + 20
        while heartbeats_heard(lab) - heard < 100 and time.monotonic() < deadline:
            time.sleep(LISTENED_S)  # each question wakes it up as well
        heard = heartbeats_heard(lab) - heard
        assert heard >= 100
        assert wake_ups(lab) - woken < 0.2 * heard


def takes_turns(port: socket.socket, mac: bytes, others: set[bytes]) -> None:
    """Wait until a server hears all others by heartbeats that are sent to it alone."""
    told: set[bytes] = set()
    deadline = time.monotonic() + WAIT_S
    while told != others:
        assert time.monotonic() < deadline
        frame, (_, ethertype, kind, *_) = port.recvfrom(200)
        is_sent = kind == socket.PACKET_OUTGOING
        if is_sent or ethertype != ETH_DCN or frame[PROTOCOL_AT] != Protocol.HEARTBEAT:
            continue
        assert frame[:6] in (mac, BROADCAST_MAC), "a switch sends a port what is for it"
        told = told | {frame[6:12]} if frame[:6] == mac else set()


@EBPF
@pytest.mark.parametrize("plane", PLANES)
def test_at_a_switch_of_five_each_beats_to_one_until_one_is_missed(
    tmp_path: Path, plane: str
) -> None:
    with lab_of("bcube,5,1", tmp_path, plane=plane) as lab:
        topology, here, lost = lab.topology, 2, 4  # at the first switch
        macs = {server: topology.mac_number(server, 0).to_bytes(6, "big") for server in range(5)}
        with lab.host(here).live_namespace():
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL))
        port.bind((topology.interface(here, 0), ETH_ALL))
        port.settimeout(WAIT_S)
        mine = macs.pop(here)
        with port:
            takes_turns(port, mine, {*macs.values()})
            fault = lab.cut(lost, topology.servers, silent=True)
            wait_until(lambda: works(lab) == [3, 3, 3, 3, 0], "silence is noticed")
            lab.end(fault)
            wait_until(lambda: works(lab) == [4] * 5, "all hear each other again")
            takes_turns(port, mine, {*macs.values()})


def works(lab: Lab) -> list[int]:
    """Return how many links of each server at the first switch do, over it."""
    links = (lab.state(server)["links"] for server in range(5))
    return [sum(link["up"] for link in those if link["port"] == 0) for those in links]
