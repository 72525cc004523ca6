"""The source-route header: the path in bytes, and the relay's short cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.hosts.wire.dcn import DcnHeader
from pillarbox.hosts.wire.header_layout import WireError, checksum
from pillarbox.hosts.wire.ipv4 import TCP, Ipv4Header
from pillarbox.hosts.wire.source_route import MOST_HOPS, SIZE, SourceRouteHeader, advance
from pillarbox.hosts.wire.tcp import is_mptcp, option_kinds

paths = st.lists(st.integers(0, 255), max_size=MOST_HOPS).map(tuple)
HEADER = SourceRouteHeader(0, 5, 4, (3, 200))


def changed(packet: bytes, at: int, value: int) -> bytes:
    """Return the packet with that byte, and the right checksum."""
    other = bytearray(packet)
    other[at] = value
    other[10:12] = bytes(2)
    other[10:12] = checksum(bytes(other[:SIZE])).to_bytes(2, "big")
    return bytes(other)


def reason(data: bytes) -> str:
    with pytest.raises(WireError) as caught:
        SourceRouteHeader.parse(data)
    return caught.value.reason


def test_path_follows_the_twenty_bytes_of_dcell() -> None:
    packet = HEADER._replace(next_hop=1).pack(b"")
    dcn = DcnHeader(0, 5, 4, retry=0).pack(b"")
    assert packet[:1] == b"\x5a"
    assert packet[1:10] == dcn[1:10]
    assert packet[12:20] == dcn[12:20]
    assert packet[20:] == bytes.fromhex("02 01 0000 03 c8") + bytes(14)
    assert checksum(packet) == 0


@pytest.mark.parametrize(
    ("path", "next_hop"), [((1,) * (MOST_HOPS + 1), 0), ((1,), 2), ((), 1), ((1,), -1)]
)
def test_path_too_long_or_index_outside_of_it_is_refused(path, next_hop) -> None:
    with pytest.raises(WireError) as caught:
        HEADER._replace(path=path, next_hop=next_hop).pack(b"")
    assert caught.value.reason == "bad path"


def test_longest_path_fits() -> None:
    header = HEADER._replace(path=(255,) * MOST_HOPS, next_hop=MOST_HOPS)
    assert SourceRouteHeader.parse(header.pack(b"x")) == (header, b"x")


@pytest.mark.parametrize("hop", [256, -1])
def test_hop_beyond_a_byte_is_refused(hop) -> None:
    with pytest.raises(WireError) as caught:
        HEADER._replace(path=(hop,)).pack(b"")
    assert caught.value.reason == "bad path"


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (20, MOST_HOPS + 1, "bad path"),  # length
        (20, 1, "bad path"),  # shorter than the hops
        (21, 3, "bad path"),  # next hop after the end
        (39, 1, "bad path"),  # a hop after the end
        (22, 1, "bad field"),  # reserved
        (8, 0x50, "bad field"),  # retry
        (12, 0x80, "bad field"),  # source
    ],
)
def test_malformed_header_is_refused(at, value, expected) -> None:
    assert reason(changed(HEADER.pack(b"hello"), at, value)) == expected


@given(paths.filter(bool), st.data(), st.binary(max_size=40))
def test_advance_equals_packing_again(path, data, payload) -> None:
    taken = data.draw(st.integers(0, len(path) - 1))
    header = HEADER._replace(path=path, next_hop=taken)
    assert advance(header.pack(payload)) == header._replace(next_hop=taken + 1).pack(payload)


def test_advance_at_the_end_is_refused() -> None:
    with pytest.raises(WireError):
        advance(HEADER._replace(next_hop=2).pack(b""))
    with pytest.raises(WireError):
        advance(HEADER.pack(b"")[:-1])


def test_relays_look_up_the_next_hop_and_the_end_the_destination() -> None:
    assert HEADER.relay_key() == HEADER._replace(source=7, destination=9).relay_key()
    assert HEADER.relay_key() != HEADER._replace(next_hop=1).relay_key()
    assert HEADER._replace(next_hop=2).relay_key() != HEADER.relay_key()


# -- options of TCP --------------------------------------------------------------------------------


def segment(options: bytes) -> bytes:
    padded = options + bytes(-len(options) % 4)
    return bytes(12) + bytes([(5 + len(padded) // 4) << 4]) + bytes(7) + padded


def ip(body: bytes, protocol: int = TCP) -> bytes:
    return Ipv4Header(1, 2, protocol).pack(body)


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ("", []),
        ("0204 05b4 1e04 0000", [2, 30]),
        ("01 01 1e03 00", [1, 1, 30]),
        ("00 1e03 00", []),  # after the end of options
        ("1e", []),  # no length
        ("1e01 0000", []),  # a length below its own bytes
        ("1e09 0000", []),  # beyond the header
    ],
)
def test_options_are_listed_up_to_the_first_malformed_one(options, kinds) -> None:
    data = segment(bytes.fromhex(options))
    assert [kind for kind in option_kinds(data) if kind] == kinds
    assert is_mptcp(ip(data)) == (30 in kinds)


@given(st.binary(max_size=80))
def test_any_bytes_have_options_or_none(data) -> None:
    assert all(0 < kind < 256 for kind in option_kinds(data))
    assert not is_mptcp(ip(data, protocol=17))
