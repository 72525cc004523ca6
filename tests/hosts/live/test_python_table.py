"""What a forwarder of the Python plane repeats of its own applications' packets, and forgets."""

from __future__ import annotations

import errno

import pytest

from pillarbox.hosts.live.devices import Port
from pillarbox.hosts.live.python_table import MOST, PythonTable
from pillarbox.hosts.live.table import DecisionUse, DeliverDecision, PushDecision, RelayDecision
from pillarbox.hosts.wire.bcube import BCubeHeader, Hop
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.ipv4 import (
    ICMP,
    IP_IN_IP,
    TCP,
    UDP,
    Ipv4Header,
    Tunnel,
    decapsulate,
    encapsulate,
    flow_key,
)
from pillarbox.hosts.wire.relay_keys import ByFlow

A, B = 0x0A000001, 0x0A000009
PEER, OWN = bytes([2] * 6), bytes([4] * 6)
SYN, ACK = 0x02, 0x10
PATH = (Hop(1, 2), Hop(0, 1))


class Outlet:
    """A port, or the applications' interface, that keeps what leaves."""

    mac = OWN
    drop_reason = staticmethod(Port.drop_reason)

    def __init__(self) -> None:
        self.left: list[bytes] = []
        self.error: OSError | None = None

    def put(self, data: bytes) -> None:
        if self.error:
            raise self.error
        self.left.append(data)


class Lab:
    def __init__(self, **options: bool) -> None:
        self.port, self.applications = Outlet(), Outlet()
        self.lost: list[str] = []
        self.table = PythonTable({0: self.port}, self.applications, self.lost.append, **options)


def packet(
    protocol: int = UDP, *, flags: int = ACK, source_port: int = 4000, size: int = 20, **fields: int
) -> bytes:
    ports = source_port.to_bytes(2, "big") + (80).to_bytes(2, "big")
    head = ports + bytes(8) + bytes([0x50, flags]) + bytes(6)
    return Ipv4Header(A, B, protocol)._replace(**fields).pack(head + bytes(size))


def tunnel_header(inside: bytes) -> bytes:
    return encapsulate(inside, Tunnel(6, 8, 1), 64, 5)[:20]


HEADERS = {
    "plain": b"",
    "DCN": DcnHeader(1, 9, Protocol.IPV4, 77).pack(b""),
    "DCN with proxy": DcnHeader(1, 9, Protocol.IPV4, 77, proxy=5).pack(b""),
    "BCube": BCubeHeader(1, 9, Protocol.IPV4, PATH, 1, 77).pack(b""),
}


@pytest.mark.parametrize("name", HEADERS)
def test_each_packet_gets_its_own_header(name: str) -> None:
    lab = Lab()
    lab.table.install_flow(flow_key(packet()), PushDecision(0, PEER, HEADERS[name]))
    sent = [packet(size=size) for size in (0, 20, 1000)]
    assert all(map(lab.table.send_by_decision, sent))
    ethertype = b"\x08\0" if name == "plain" else b"\x88\xb5"
    assert {frame[:14] for frame in lab.port.left} == {PEER + OWN + ethertype}
    parse = BCubeHeader.parse if name == "BCube" else DcnHeader.parse
    first = parse(HEADERS[name])[0] if HEADERS[name] else None
    for number, (frame, inside) in enumerate(zip(lab.port.left, sent, strict=True)):
        if first is None:
            assert frame[14:] == inside
        else:
            assert parse(frame[14:]) == (first._replace(identification=number), inside)
    assert lab.table.counters() == {"done pushed": 3}


def test_a_tunnel_has_the_type_of_service_and_df_of_what_is_in_it() -> None:
    lab = Lab()
    lab.table.install_flow(flow_key(packet()), PushDecision(0, PEER, tunnel_header(packet())))
    for tos, flags in ((0, 2), (8, 0), (0, 0), (0x10, 2)):
        inside = packet(tos=tos, flags=ACK)
        inside = Ipv4Header.parse(inside)[0]._replace(flags=flags).pack(inside[20:])
        assert lab.table.send_by_decision(inside)
        tunnel, outer, found = decapsulate(lab.port.left[-1][14:])
        assert (tunnel, found) == (Tunnel(6, 8, 1), inside)
        assert (outer.tos, outer.flags) == (tos, flags)


def fragment(offset: int, flags: int = 1) -> bytes:
    header, body = Ipv4Header.parse(packet())
    return header._replace(fragment=offset, flags=flags).pack(body)


@pytest.mark.parametrize(
    "other",
    [
        packet(source_port=4001),
        packet(TCP),
        packet(tos=0xFC),
        fragment(3),
        fragment(300),
        packet(options=bytes(4)),
        b"",
        packet()[:20],
    ],
    ids=["flow", "protocol", "traced", "fragment", "far fragment", "options", "nothing", "short"],
)
def test_other_packets_are_the_routers(other: bytes) -> None:
    lab = Lab()
    lab.table.install_flow(flow_key(packet()), PushDecision(0, PEER))
    assert not lab.table.send_by_decision(other)
    assert lab.port.left == []


def test_what_is_too_long_for_a_tunnel_is_the_routers() -> None:
    lab = Lab()
    lab.table.install_flow(flow_key(packet()), PushDecision(0, PEER, tunnel_header(packet())))
    assert not lab.table.send_by_decision(packet(size=0xFFFF - 59))
    assert lab.table.send_by_decision(packet(size=0xFFFF - 60))


@pytest.mark.parametrize("sees", [False, True])
def test_a_router_that_draws_paths_sees_what_opens_a_connection(sees: bool) -> None:
    lab = Lab(sees_connections=sees)
    lab.table.install_flow(flow_key(packet(TCP)), PushDecision(0, PEER))
    assert lab.table.send_by_decision(packet(TCP))
    assert lab.table.send_by_decision(packet(TCP, flags=SYN)) != sees
    assert lab.table.send_by_decision(packet(TCP, flags=SYN | ACK)) != sees


def test_decisions_are_taken_back_and_told_of() -> None:
    lab = Lab(by_flow=True)
    one, other = flow_key(packet()), flow_key(packet(source_port=4001))
    through = ByFlow(one, 0)
    frame = OWN + PEER + b"\x08\0" + packet()

    def install() -> None:
        for flow in (one, other):
            lab.table.install_flow(flow, PushDecision(0, PEER))
        lab.table.install_relay(through, RelayDecision(0, PEER))

    def repeated() -> list[bool]:
        packets = packet(), packet(source_port=4001)
        return [*map(lab.table.send_by_decision, packets), lab.table.handle_by_decision(0, frame)]

    install()
    assert repeated() == [True] * 3
    assert lab.table.flows_used() == {one: DecisionUse(1, 60), other: DecisionUse(1, 60)}
    assert lab.table.relays_used() == {through: DecisionUse(1, 60)}
    assert lab.table.flows_used() == lab.table.relays_used() == {}
    lab.table.forget_flow(one)
    assert repeated() == [False, True, False]
    install()
    lab.table.flush(relays=False)
    assert repeated() == [False, False, True]
    lab.table.flush()
    assert repeated() == [False] * 3


def test_flows_of_neither_tcp_nor_udp_are_not_repeated() -> None:
    lab = Lab()
    lab.table.install_flow(flow_key(packet(ICMP)), PushDecision(0, PEER))
    assert not lab.table.send_by_decision(packet(ICMP))


@pytest.mark.parametrize(("came_over", "goes_over"), [(None, 7), (7, None), (7, 5), (7, 7)])
def test_a_proxy_is_set_replaced_and_cleared(came_over: int | None, goes_over: int | None) -> None:
    lab = Lab()
    before = DcnHeader(1, 9, Protocol.IPV4, 77, proxy=came_over)
    after = before._replace(ttl=63, retry=4, proxy=goes_over)
    relay = RelayDecision(0, PEER, before.change(after))
    lab.table.install_relay(before.relay_key(0), relay)
    front = OWN + PEER + b"\x88\xb5"
    assert lab.table.handle_by_decision(0, front + before.pack(packet()))
    assert DcnHeader.parse(lab.port.left[0][14:]) == (after, packet())
    for spent in (before._replace(ttl=1), before._replace(retry=1)):
        assert not lab.table.handle_by_decision(0, front + spent.pack(packet()))


def test_a_full_table_begins_anew() -> None:
    lab = Lab()
    for number in range(MOST + 10):
        lab.table.install_flow(flow_key(packet(source_port=number)), PushDecision(0, PEER))
        lab.table.install_relay(ByFlow(flow_key(packet(source_port=number)), 0), DeliverDecision())
    assert len(lab.table._flows) == len(lab.table._relays) == 10


def test_what_a_port_refuses_is_counted() -> None:
    lab = Lab()
    lab.table.install_flow(flow_key(packet()), PushDecision(0, PEER))
    lab.port.error = BlockingIOError(errno.EAGAIN, "full")
    assert lab.table.send_by_decision(packet())
    lab.port.error = OSError(errno.ENETDOWN, "Network is down")
    assert lab.table.send_by_decision(packet())
    assert lab.lost == ["port is full", "port refused the frame: Network is down"]


def test_frames_for_others_are_not_taken() -> None:
    lab = Lab()
    lab.table.install_relay(ByFlow(flow_key(packet()), 0), DeliverDecision())
    assert not lab.table.handle_by_decision(0, PEER + OWN + b"\x08\0" + packet())
    assert not lab.table.handle_by_decision(0, b"")
    assert IP_IN_IP not in {flow.protocol for flow in lab.table.flows_used()}
