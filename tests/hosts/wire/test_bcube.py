"""The BCube header: the path in bytes, and the relay's short cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.hosts.wire.bcube import HOPS, BCubeHeader, Hop, advance
from pillarbox.hosts.wire.dcn import DcnHeader
from pillarbox.hosts.wire.header_layout import WireError, checksum

hops = st.builds(Hop, st.integers(0, 3), st.integers(0, 63))
words = st.integers(0, 2**31 - 1)
HEADER = BCubeHeader(0, 5, 4, (Hop(0, 1), Hop(1, 1)))


def changed(packet: bytes, at: int, value: int) -> bytes:
    """Return the packet with that byte, and the right checksum."""
    other = bytearray(packet)
    other[at] = value
    other[10:12] = bytes(2)
    other[10:12] = checksum(bytes(other[:36])).to_bytes(2, "big")
    return bytes(other)


def reason(data: bytes) -> str:
    with pytest.raises(WireError) as caught:
        BCubeHeader.parse(data)
    return caught.value.reason


def test_path_stands_behind_the_twenty_bytes_of_dcell():
    packet = HEADER._replace(next_hop=1).pack(b"")
    dcn = DcnHeader(0, 5, 4, retry=0).pack(b"")
    assert packet[:1] == b"\x29"
    assert packet[1:10] == dcn[1:10]
    assert packet[12:20] == dcn[12:20]
    assert packet[20:] == bytes.fromhex("02 01 0000  01 41 00 00 00 00 00 00  00000000")
    assert checksum(packet) == 0


def test_every_byte_names_one_hop():
    assert [hop.nha for hop in HOPS] == list(range(256))
    assert all(Hop.of(hop.nha) == hop for hop in HOPS)
    assert HOPS[-1] == Hop(level=3, value=63)


@pytest.mark.parametrize("hop", [Hop(4, 0), Hop(-1, 0), Hop(0, 64), Hop(0, -1)])
def test_hop_beyond_its_bits_is_refused(hop):
    with pytest.raises(WireError) as caught:
        HEADER._replace(path=(hop,)).pack(b"")
    assert caught.value.reason == "bad path"


@pytest.mark.parametrize(
    ("path", "next_hop"),
    [((Hop(0, 1),) * 9, 0), ((Hop(0, 1),), 2), ((), 1), ((Hop(0, 1),), -1)],
)
def test_path_too_long_or_left_behind_is_refused(path, next_hop):
    with pytest.raises(WireError) as caught:
        HEADER._replace(path=path, next_hop=next_hop).pack(b"")
    assert caught.value.reason == "bad path"


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (20, 9, "bad path"),  # length
        (20, 1, "bad path"),  # shorter than the NHAs
        (21, 3, "bad path"),  # next hop behind the end
        (31, 1, "bad path"),  # an NHA behind the end
        (22, 1, "bad field"),  # reserved
        (35, 1, "bad field"),
        (8, 0x50, "bad field"),  # retry
        (12, 0x80, "bad field"),  # source
    ],
)
def test_what_no_server_sends_is_refused(at, value, expected):
    assert reason(changed(HEADER.pack(b"hello"), at, value)) == expected


@given(st.lists(hops, max_size=8), st.integers(0, 8), words, words, st.binary(max_size=20))
def test_advance_is_packing_anew(path, taken, source, identification, payload):
    header = BCubeHeader(source, 7, 4, tuple(path), min(taken, len(path)), identification)
    packet = header.pack(payload)
    if header.next_hop < len(path):
        assert advance(packet) == header.advanced().pack(payload)
        assert advance(packet + b"padding") == header.advanced().pack(payload) + b"padding"
    else:
        for further in (lambda: advance(packet), lambda: header.advanced().pack(payload)):
            with pytest.raises(WireError) as caught:
                further()
            assert caught.value.reason == "bad path"


def test_advance_is_packing_anew_for_every_checksum():
    # All 65535 checksums that there are, among them 0, before and after.
    for identification in range(0x10000):
        header = HEADER._replace(identification=identification)
        assert advance(header.pack(b"")) == header.advanced().pack(b"")


def test_advance_does_not_mend_a_damaged_packet():
    packet = bytearray(HEADER.pack(b""))
    packet[5] ^= 1
    assert reason(advance(bytes(packet))) == "bad checksum"


def test_advance_refuses_what_is_cut():
    with pytest.raises(WireError) as caught:
        advance(HEADER.pack(b"")[:35])
    assert caught.value.reason == "truncated"
