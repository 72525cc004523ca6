"""IPv4: a packet of the wild, flows, DPillar's tunnel, and TTL."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.hosts.wire import ipv4
from pillarbox.hosts.wire.header_layout import WireError, checksum
from pillarbox.hosts.wire.ipv4 import (
    FlowKey,
    Ipv4Header,
    Tunnel,
    decapsulate,
    decrement_ttl,
    encapsulate,
    flow_key,
)
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar

SOURCE, DESTINATION = 0x0A000001, 0x0A000002
PORTS = struct.pack(">HHI", 40000, 53, 0x00080000)
# An IPv4 header that is not ours: the worked example of Wikipedia's article on its checksum.
WILD = bytes.fromhex("4500 0073 0000 4000 4011 b861 c0a8 0001 c0a8 00c7")


def packet(protocol: int, payload: bytes, **more: int) -> bytes:
    return Ipv4Header(SOURCE, DESTINATION, protocol, **more).pack(payload)


def reason(call, *arguments) -> str:
    with pytest.raises(WireError) as caught:
        call(*arguments)
    return caught.value.reason


# -- headers -----------------------------------------------------------------------------------


def test_header_of_another_machine():
    header, payload = Ipv4Header.parse(WILD + bytes(95))
    assert header == Ipv4Header(0xC0A80001, 0xC0A800C7, ipv4.UDP, ttl=64, flags=ipv4.DONT_FRAGMENT)
    assert len(payload) == 95
    assert header.pack(bytes(95))[:20] == WILD


def test_options_are_kept_and_the_payload_is_behind_them():
    header = Ipv4Header(SOURCE, DESTINATION, ipv4.UDP, options=b"\x94\x04\0\0")  # router alert
    data = header.pack(b"hello")
    assert data[0] == 0x46
    assert Ipv4Header.parse(data) == (header, b"hello")
    assert reason(header._replace(options=b"\x01").pack, b"") == "bad length"
    assert reason(header._replace(options=bytes(44)).pack, b"") == "bad length"


@pytest.mark.parametrize(("first", "total"), [(0x40, 40), (0x44, 40), (0x45, 19), (0x46, 20)])
def test_lengths_that_contradict_each_other_are_refused(first, total):
    start = struct.pack(">BxHHHBB", first, total, 0, 0, 64, ipv4.UDP)
    rest = bytes(28)
    data = start + checksum(start + rest).to_bytes(2, "big") + rest
    assert reason(Ipv4Header.parse, data) == "bad length"
    assert reason(flow_key, data) == "bad length"


# -- flows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [ipv4.TCP, ipv4.UDP])
def test_ports_are_those_of_tcp_and_udp(protocol):
    key = FlowKey(SOURCE, DESTINATION, protocol, 40000, 53)
    assert flow_key(packet(protocol, PORTS)) == key
    options = Ipv4Header(SOURCE, DESTINATION, protocol, options=bytes(40))
    assert flow_key(options.pack(PORTS)) == key
    assert key.reversed().reversed() == key


@pytest.mark.parametrize("kind", [0, 8])
def test_echo_and_its_answer_are_one_flow_and_its_reverse(kind):
    echo = packet(ipv4.ICMP, struct.pack(">BBHHH", kind, 0, 0, 77, 1))
    assert flow_key(echo) == FlowKey(SOURCE, DESTINATION, ipv4.ICMP, 77, 77)


def test_other_protocols_and_later_fragments_have_no_ports():
    assert flow_key(packet(89, b"")) == FlowKey(SOURCE, DESTINATION, 89, 0, 0)
    later = packet(ipv4.UDP, b"", fragment=1)
    assert flow_key(later) == FlowKey(SOURCE, DESTINATION, ipv4.UDP, 0, 0)
    first = packet(ipv4.UDP, PORTS, flags=ipv4.MORE_FRAGMENTS)
    assert flow_key(first).destination_port == 53
    unreachable = packet(ipv4.ICMP, struct.pack(">BBHI", 3, 1, 0, 0x12345678))
    assert flow_key(unreachable) == FlowKey(SOURCE, DESTINATION, ipv4.ICMP, 0, 0)


def test_ports_are_not_read_from_padding():
    short = packet(ipv4.UDP, PORTS[:4])
    assert reason(flow_key, short + bytes(20)) == "truncated"


def test_rubbish_has_no_flow():
    whole = packet(ipv4.TCP, PORTS)
    assert {reason(flow_key, whole[:length]) for length in range(len(whole))} == {"truncated"}
    assert reason(flow_key, b"\x60" + whole[1:]) == "bad version"


@given(st.data())
def test_flow_agrees_with_the_header(data):
    payload = data.draw(st.binary(min_size=8, max_size=30))
    number = st.integers(0, 255)
    header = Ipv4Header(data.draw(number), data.draw(number), data.draw(number))
    key = flow_key(header.pack(payload))
    assert key[:3] == header[:3]


# -- tunnel ------------------------------------------------------------------------------------


def test_outer_source_names_the_interface_that_the_packet_leaves_by():
    dpillar = DPillar(8, 2)
    proxy_source, proxy_destination = dpillar.server("1.3.0"), dpillar.server("0.1.2")
    inner = packet(ipv4.TCP, PORTS, tos=0x28, flags=ipv4.DONT_FRAGMENT)
    for direction in (CLOCKWISE, COUNTER_CLOCKWISE):
        tunnel = Tunnel(dpillar.ipv4(proxy_source), dpillar.ipv4(proxy_destination), direction)
        outer = encapsulate(inner, tunnel, 9, 5)
        header, _ = Ipv4Header.parse(outer)
        assert header.source == dpillar.ipv4(proxy_source, nic=direction)
        assert header.destination == dpillar.ipv4(proxy_destination)
        assert header.protocol == ipv4.IP_IN_IP
        assert (header.ttl, header.identification) == (9, 5)
        # RFC 2003, section 3.1
        assert (header.tos, header.flags) == (0x28, ipv4.DONT_FRAGMENT)
        assert decapsulate(outer + b"padding") == (tunnel, header, inner)


def test_tunnel_addresses_are_without_nic_bit():
    inner = packet(ipv4.UDP, PORTS)
    for tunnel in (Tunnel(3, 4, 0), Tunnel(2, 5, 0), Tunnel(2, 4, 2), Tunnel(2, 4, -1)):
        assert reason(encapsulate, inner, tunnel, 64, 0) == "bad field"


def test_only_ipv4_is_encapsulated():
    tunnel = Tunnel(2, 4, 0)
    assert reason(encapsulate, b"hello", tunnel, 64, 0) == "truncated"
    assert reason(encapsulate, b"\x60" + bytes(39), tunnel, 64, 0) == "bad version"
    longest = packet(ipv4.UDP, bytes(0xFFFF - 20))
    assert reason(encapsulate, longest, tunnel, 64, 0) == "bad length"


def test_only_whole_tunnel_packets_are_decapsulated():
    inner = packet(ipv4.UDP, PORTS)
    outer = Ipv4Header(2, 4, ipv4.IP_IN_IP)
    assert decapsulate(outer.pack(inner))[2] == inner
    for header, expected in [
        (outer._replace(protocol=ipv4.UDP), "unknown message"),
        (outer._replace(fragment=1), "bad field"),
        (outer._replace(flags=ipv4.MORE_FRAGMENTS), "bad field"),
        (outer._replace(destination=5), "bad field"),
    ]:
        assert reason(decapsulate, header.pack(inner)) == expected


# -- TTL ---------------------------------------------------------------------------------------


@given(st.integers(1, 255), st.integers(0, 0xFFFF), st.binary(max_size=20))
def test_decremented_ttl_is_packing_anew(ttl, identification, payload):
    header = Ipv4Header(SOURCE, DESTINATION, ipv4.TCP, ttl, identification, options=bytes(4))
    lower = header._replace(ttl=ttl - 1)
    assert decrement_ttl(header.pack(payload)) == lower.pack(payload)


def test_decremented_ttl_is_packing_anew_for_every_checksum():
    for identification in range(0x10000):
        header = Ipv4Header(SOURCE, DESTINATION, ipv4.TCP, identification=identification)
        assert decrement_ttl(header.pack(b"")) == header._replace(ttl=63).pack(b"")


def test_ttl_does_not_fall_below_zero():
    assert reason(decrement_ttl, packet(ipv4.TCP, b"", ttl=0)) == "bad field"
    assert reason(decrement_ttl, WILD[:19]) == "truncated"
