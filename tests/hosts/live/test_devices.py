"""A server's port: which frames come up by which of its sockets, and whose."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

import pytest

from pillarbox.hosts.live.devices import BROADCAST_MAC, Port
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from tests.benches._three_servers import RELAY, A, B, ThreeServers, mac
from tests.hosts.live.cables import inject

pytestmark = pytest.mark.root

WAIT_S = 20.0
HEARTBEAT = DcnHeader(A, A, Protocol.HEARTBEAT).pack(b"")
MESSAGE = DcnHeader(A, A, Protocol.PROBE).pack(b"")
DATA = DcnHeader(A, B, Protocol.IPV4).pack(b"payload")
TO_THE_PORT, TO_ANOTHER = mac(RELAY, 0), mac(B, 0)


@pytest.fixture(params=[False, True], ids=["packets", "super-packets"])
def lab_and_port(request: pytest.FixtureRequest) -> Iterator[tuple[ThreeServers, Port]]:
    with ThreeServers() as lab:
        with lab.servers[RELAY].entered():
            port = Port(0, "eth0", TO_THE_PORT, ebpf=request.param)
        yield lab, port
        port.close()


def came(port: Port, which: socket.socket) -> list[tuple[bytes, Frame]]:
    """Return what has come by a socket, at least one frame."""
    assert select.select([which], [], [], WAIT_S)[0]
    found = []
    while taken := port.receive_raw(which):
        found += port.packets_of(taken)
    return found


def by_share(port: Port, neighbour: int) -> tuple[socket.socket, socket.socket, socket.socket]:
    """Return by which sockets comes what a neighbour sends: messages, DCN's and IP's packets."""
    shares = len(port.messages)
    place = mac(neighbour, 0)[-1] % shares
    return port.messages[place], port.packets[place], port.packets[shares + place]


def injected(lab: ThreeServers, to: bytes, ethertype: int, data: bytes) -> None:
    inject(lab, to + mac(A, 0) + ethertype.to_bytes(2, "big") + data)


def test_heartbeats_messages_and_packets_come_by_sockets_of_their_own(
    lab_and_port: tuple[ThreeServers, Port],
) -> None:
    lab, port = lab_and_port
    packet = bytes(range(46))
    injected(lab, BROADCAST_MAC, ETH_DCN, HEARTBEAT)
    injected(lab, TO_THE_PORT, ETH_DCN, MESSAGE)
    injected(lab, TO_THE_PORT, ETH_DCN, DATA)
    injected(lab, TO_THE_PORT, ETH_IP, packet)
    messages, data, ip = by_share(port, A)
    assert came(port, messages) == [(mac(A, 0), Frame(ETH_DCN, MESSAGE))]
    assert came(port, ip) == [(mac(A, 0), Frame(ETH_IP, packet))]
    assert came(port, data) == [(mac(A, 0), Frame(ETH_DCN, DATA))]
    assert came(port, port.heartbeats) == [(mac(A, 0), Frame(ETH_DCN, HEARTBEAT))]


def test_who_floods_waits_in_a_queue_of_its_own(
    lab_and_port: tuple[ThreeServers, Port],
) -> None:
    lab, port = lab_and_port
    _, flooding, _ = by_share(port, A)
    _, other, _ = by_share(port, B)
    assert flooding is not other
    flood = TO_THE_PORT + mac(A, 0) + ETH_DCN.to_bytes(2, "big") + DATA
    for _ in range(5):
        inject(lab, flood, times=2000)  # more than a queue holds
    inject(lab, TO_THE_PORT + mac(B, 0) + ETH_DCN.to_bytes(2, "big") + DATA)
    assert came(port, other) == [(mac(B, 0), Frame(ETH_DCN, DATA))]
    assert len(came(port, flooding)) > 1


@pytest.mark.parametrize("ebpf", [False, True])
def test_a_heartbeat_is_as_old_as_it_is(ebpf: bool) -> None:
    with ThreeServers() as lab:
        if ebpf:
            lab.add_table(RELAY)
        with lab.servers[RELAY].entered():
            port = Port(0, "eth0", TO_THE_PORT, ebpf=ebpf)
        sent_s = time.monotonic()
        injected(lab, BROADCAST_MAC, ETH_DCN, HEARTBEAT)
        assert select.select([port.heartbeats], [], [], WAIT_S)[0]
        there_s = time.monotonic()
        asked_s = time.monotonic()
        ((age_s, _),) = port.receive_heartbeats(2)
        assert asked_s - there_s <= age_s <= time.monotonic() - sent_s
        assert age_s > 0


def test_what_a_learning_bridge_floods_is_not_taken() -> None:
    with ThreeServers() as lab:
        with lab.servers[RELAY].entered():
            port = Port(0, "eth0", TO_THE_PORT, ebpf=False)
        injected(lab, TO_ANOTHER, ETH_DCN, DATA)
        injected(lab, TO_THE_PORT, ETH_DCN, DATA + b"padding")
        assert came(port, by_share(port, A)[1]) == [(mac(A, 0), Frame(ETH_DCN, DATA + b"padding"))]


def test_a_link_state_is_told_from_traffic(lab_and_port: tuple[ThreeServers, Port]) -> None:
    lab, port = lab_and_port
    injected(lab, TO_THE_PORT, ETH_DCN, DcnHeader(A, A, Protocol.LINK_STATE).pack(b""))
    injected(lab, TO_THE_PORT, ETH_DCN, DATA)
    injected(lab, TO_THE_PORT, ETH_DCN, MESSAGE)
    messages, data, _ = by_share(port, A)
    found = []
    for which in (messages, messages, data):
        assert select.select([which], [], [], WAIT_S)[0]
        taken = port.receive_raw(which)
        assert taken is not None
        found.append(port.is_link_state(taken))
    assert found == [True, False, False]
