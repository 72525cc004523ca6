"""The DCN header against Fig. 10 of Guo 2008, and its addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.hosts.wire.dcn import DcnHeader, Protocol, broadcast, is_multicast, scope_of
from pillarbox.hosts.wire.header_layout import WireError, checksum


def with_checksum(header: bytes) -> bytes:
    """Return the header with the right checksum, whatever else is wrong with it."""
    rest = header[:10] + bytes(2) + header[12:]
    return header[:10] + checksum(rest).to_bytes(2, "big") + header[12:]


def reason(data: bytes) -> str:
    with pytest.raises(WireError) as caught:
        DcnHeader.parse(data)
    return caught.value.reason


def test_bytes_stand_where_figure_10_has_them():
    header = DcnHeader(0x01020304, 0x85060708, Protocol.PROBE, 0xA1A2A3A4, retry=5, ttl=64)
    packet = header.pack(bytes(0x0107))
    # version and DHL, protocol, payload length; identification; retry and flags, TTL
    assert packet[:10] == bytes.fromhex("15 e2 0107  a1a2a3a4  50 40")
    assert packet[12:20] == bytes.fromhex("01020304 85060708")
    assert checksum(packet[:20]) == 0
    assert len(packet) == 20 + 0x0107


def test_protocol_numbers_stay_what_they_are():
    # Servers of different versions may meet on a wire.
    assert {protocol.name: hex(protocol) for protocol in Protocol} == {
        "IPV4": "0x4",
        "HEARTBEAT": "0xe0",
        "LINK_STATE": "0xe1",
        "PROBE": "0xe2",
        "PROBE_RESPONSE": "0xe3",
        "PATH_FAILURE": "0xe4",
        "UNREACHABLE": "0xe5",
        "PATH_PROBE": "0xe6",
        "CABLE_CUT": "0xe7",
        "RETURNED": "0xe8",
    }


def test_proxy_sets_its_flag_and_adds_a_word():
    packet = DcnHeader(1, 2, Protocol.IPV4, proxy=0x0A0B0C0D).pack(b"")
    assert packet[:1] == b"\x16"
    assert packet[8:9] == b"\x51"
    assert packet[20:] == bytes.fromhex("0a0b0c0d")


def test_proxy_flag_and_length_must_agree():
    plain = DcnHeader(1, 2, Protocol.IPV4).pack(b"")
    proxied = DcnHeader(1, 2, Protocol.IPV4, proxy=3).pack(b"")
    assert reason(with_checksum(plain[:8] + b"\x51" + plain[9:])) == "bad field"
    assert reason(with_checksum(proxied[:8] + b"\x50" + proxied[9:])) == "bad field"
    assert reason(with_checksum(b"\x15" + proxied[1:])) == "bad checksum"


@pytest.mark.parametrize("flags", [0b0010, 0b0100, 0b1000])
def test_flags_that_are_not_defined_are_refused(flags):
    packet = DcnHeader(1, 2, Protocol.IPV4).pack(b"")
    assert reason(with_checksum(packet[:8] + bytes([0x50 | flags]) + packet[9:])) == "bad field"


@pytest.mark.parametrize(("first", "expected"), [(0x25, "bad version"), (0x17, "bad length")])
def test_other_headers_are_told_apart(first, expected):
    packet = DcnHeader(1, 2, Protocol.IPV4).pack(bytes(40))
    assert reason(bytes([first]) + packet[1:]) == expected


def test_source_and_proxy_are_servers_on_the_wire_too():
    packet = DcnHeader(1, 2, Protocol.IPV4, proxy=3).pack(b"")
    assert reason(with_checksum(packet[:12] + b"\x80" + packet[13:])) == "bad field"
    assert reason(with_checksum(packet[:20] + b"\x80" + packet[21:])) == "bad field"


@given(st.integers(0, 7))
def test_broadcast_carries_its_scope(scope):
    address = broadcast(scope)
    assert is_multicast(address)
    assert scope_of(address) == scope
    assert address & 0x0FFFFFFF == 0x0FFFFFFF
    assert DcnHeader.parse(DcnHeader(1, address, 0xE1).pack(b""))[0].destination == address


def test_what_has_no_scope_is_refused():
    assert not is_multicast(2**31 - 1)
    for call, value in [(broadcast, 8), (broadcast, -1), (scope_of, 5)]:
        with pytest.raises(WireError):
            call(value)
