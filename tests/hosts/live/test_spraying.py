"""Sprayed flows in both tables: turns, headers, counters, and TCP's super-packets on two paths."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter

import pytest

from pillarbox.hosts.live.python_table import PythonTable
from pillarbox.hosts.live.table import DecisionUse, PushDecision, RelayDecision
from pillarbox.hosts.wire.bcube import BCubeHeader, Hop
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.ipv4 import UDP, Ipv4Header, Tunnel, decapsulate, encapsulate, flow_key
from tests.benches._three_servers import (
    RELAY,
    THERE,
    A,
    B,
    ThreeServers,
    bcube_hop_lookup_key,
    encapsulations,
    forwarding,
    ipv4,
    mac,
)
from tests.hosts.live.test_bpf_frames import REDIRECT, Outlet, SingleRun

HOPS = [Hop(0, value) for value in (2, 3, 4)]
PEERS = [bytes([2, 0, 0, 0, 0, number]) for number in range(3)]
VOLUME = 3_000_000


def packet(size: int = 20, source_port: int = 4000) -> bytes:
    ports = source_port.to_bytes(2, "big") + (80).to_bytes(2, "big")
    return Ipv4Header(ipv4(A), ipv4(B), UDP).pack(ports + bytes(4 + size))


def bcube_header(hop: Hop) -> bytes:
    return BCubeHeader(A, B, Protocol.IPV4, (Hop(1, 2), hop), 1, 77).pack(b"")


def tunnel_header(far: int) -> bytes:
    return encapsulate(packet(), Tunnel(6, far, 1), 64, 5)[:20]


def pushes(*headers: bytes) -> list[PushDecision]:
    return [PushDecision(0, *both) for both in zip(PEERS, headers, strict=False)]


class PythonLab:
    def __init__(self) -> None:
        self.port = Outlet(b"", mac(A, 0))
        self.table = PythonTable({0: self.port}, Outlet(b""), pytest.fail)

    def sent(self, data: bytes) -> bytes:
        assert self.table.send_by_decision(data)
        return self.port.left.pop()


def test_paths_take_turns_after_that_of_the_packet_which_the_router_sent() -> None:
    lab = PythonLab()
    first, *others = pushes(*map(bcube_header, HOPS))
    lab.table.install_flow(flow_key(packet()), first, others)
    frames = [lab.sent(packet(size)) for size in range(7)]
    assert [frame[:6] for frame in frames] == [PEERS[turn] for turn in (1, 2, 0, 1, 2, 0, 1)]
    headers = [BCubeHeader.parse(frame[14:]) for frame in frames]
    assert [header.path[1] for header, _ in headers] == [HOPS[n] for n in (1, 2, 0, 1, 2, 0, 1)]
    assert [header.identification for header, _ in headers] == list(range(7))
    assert [inside for _, inside in headers] == [packet(size) for size in range(7)]
    sizes = sum(len(packet(size)) for size in range(7))
    assert lab.table.flows_used() == {flow_key(packet()): DecisionUse(7, sizes)}
    assert lab.table.flows_used() == {}
    lab.table.forget_flow(flow_key(packet()))
    assert not lab.table.send_by_decision(packet())


def test_tunnels_take_turns() -> None:
    lab = PythonLab()
    first, *others = pushes(*map(tunnel_header, (8, 10)))
    lab.table.install_flow(flow_key(packet()), first, others)
    outer = [decapsulate(lab.sent(packet())[14:]) for _ in range(4)]
    assert [tunnel.destination for tunnel, _, _ in outer] == [10, 8, 10, 8]
    assert {inside for _, _, inside in outer} == {packet()}


@pytest.mark.root
@pytest.mark.parametrize("headers", [HOPS, (8, 10, 12)], ids=["BCube", "IP in IP"])
def test_the_kernel_sprays_as_the_forwarder_does(headers: list[Hop] | tuple[int, ...]) -> None:
    made = [bcube_header(one) if isinstance(one, Hop) else tunnel_header(one) for one in headers]
    first, *others = pushes(*made)
    ours = PythonLab()
    with ThreeServers() as lab:
        lab.add_applications(A)
        table = lab.add_table(A)
        for one in (table, ours.table):
            one.install_flow(flow_key(packet()), first, others)
        with lab.servers[A].entered():
            run = SingleRun(table.programs.programs["app_out"], socket.if_nametoindex("eth0"))
            for size in range(7):
                verdict, frame = run(packet(size))
                assert (verdict, frame) == (REDIRECT, ours.sent(packet(size)))
        assert table.flows_used() == ours.table.flows_used()
        assert table.counters()["done pushed"] == 7
        # Without its first action a flow is undecided, whatever is left of the others.
        table.forget_flow(flow_key(packet()))
        with lab.servers[A].entered():
            assert run(packet())[0] != REDIRECT
        assert table.counters()["slow undecided"] == 1
        # A flow that is no longer sprayed takes its only path.
        table.install_flow(flow_key(packet()), first)
        with lab.servers[A].entered():
            assert {run(packet())[1][:6] for _ in range(4)} == {PEERS[0]}


@pytest.mark.root
def test_super_packets_of_a_connection_take_both_paths() -> None:
    with forwarding(encapsulations()["BCube"]) as (lab, tables):
        there, other = encapsulations()["BCube"].there[0], Hop(0, 3)
        header = BCubeHeader.parse(there + packet())[0]
        second = header._replace(path=(header.path[0], other)).pack(packet())[: len(there)]
        push = PushDecision(0, mac(RELAY, 0), there)
        tables[A].install_flow(THERE, push, [push._replace(header=second)])
        tables[RELAY].install_relay(bcube_hop_lookup_key(other), RelayDecision(1, mac(B, 0)))
        sent, received = lab.connect()
        with sent, received:
            arrived = 0
            sent.setblocking(False)
            left = VOLUME
            while arrived < VOLUME:
                if left:
                    with contextlib.suppress(BlockingIOError):
                        left -= sent.send(bytes(min(left, 1 << 16)))
                arrived += len(received.recv(1 << 20))
        used = Counter({key: n.bytes for key, n in tables[RELAY].relays_used().items()})
        both = [used[bcube_hop_lookup_key(hop)] for hop in (header.path[1], other)]
        assert sum(both) > VOLUME
        assert min(both) > 0.25 * sum(both)
        segments = tables[A].flows_used()[THERE].packets
        assert tables[A].counters()["done pushed"] < segments / 2  # most packets are super-packets
