"""Control messages: limits, counts, and where the bytes stand."""

from __future__ import annotations

import pytest

from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.ficonn import BYONE, BYZERO, PathProbe
from pillarbox.hosts.wire.header_layout import WireError, checksum
from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.hosts.wire.messages import (
    BODIES,
    CableCut,
    Heartbeat,
    LinkState,
    PathFailure,
    Probe,
    ProbeResponse,
    Unreachable,
    Unreached,
    protocol_of,
)

FLOW = FlowKey(0x0A000001, 0x0A000009, 6, 40000, 80)
PROBE = PathProbe(FLOW, round=3, returning=False, previous=7, entries=(BYZERO, 21))


def with_checksum(body: bytes) -> bytes:
    rest = body[:2] + bytes(2) + body[4:]
    return body[:2] + checksum(rest).to_bytes(2, "big") + body[4:]


def reason(call, *arguments) -> str:
    with pytest.raises(WireError) as caught:
        call(*arguments)
    return caught.value.reason


@pytest.mark.parametrize("number", BODIES, ids=lambda number: Protocol(number).name)
def test_every_body_has_its_checksum_in_the_second_half_of_its_first_word(number):
    assert BODIES[number].head.byte("checksum") == 2


def test_bytes_stand_where_the_pictures_have_them():
    for message, body in [
        (Heartbeat(1, (2, 3)), "01 02 fef8  00000002 00000003"),
        (LinkState(7, ((1, 2),)), "00 01 fef5  00000007  00000002 01"),
        (Probe(1, 2, 10**9), "02 00 f863  00000001  000000003b9aca00"),
        (PathFailure(255, 3, 7, None), "ff 00 00f5  00000003 00000007"),
        (Unreachable(17, Unreached.TTL_EXPIRED), "03 00 fcee  00000011"),
        (CableCut(1), "01 00 feff"),
    ]:
        assert message.pack() == bytes.fromhex(body)
    flow = "0a000001 0a000009 06 000000 9c40 0050"
    probe = PROBE._replace(returning=True).pack()
    assert probe[:2] == b"\x82\0"
    assert probe[4:] == bytes.fromhex(f"00000003 00000007 {flow} ffffffff 00000015")
    assert PathFailure(1, 3, 7, FLOW).pack()[12:] == bytes.fromhex(flow)


def test_longest_lists_come_back_and_longer_ones_are_refused():
    uids = tuple(range(255))
    links = tuple((port, 2**31 - 1) for port in range(255))
    assert Heartbeat.parse(Heartbeat(0, uids).pack()) == Heartbeat(0, uids)
    assert LinkState.parse(LinkState(0, links).pack()) == LinkState(0, links)
    entries = tuple(range(15))
    assert PathProbe.parse(PROBE._replace(entries=entries).pack()).entries == entries
    for message in (
        Heartbeat(0, (*uids, 1)),
        LinkState(0, (*links, (1, 1))),
        PROBE._replace(entries=(*entries, 1)),
    ):
        assert reason(message.pack) == "bad field"


def test_longest_messages_fit_into_an_ethernet_frame():
    longest = [Heartbeat(0, (1,) * 255), LinkState(0, ((1, 1),) * 255)]
    assert all(len(message.pack()) + 36 <= 1500 for message in longest)


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(256, ()),
        Heartbeat(0, (2**31,)),
        Heartbeat(0, (-1,)),
        LinkState(2**32, ()),
        LinkState(0, ((256, 1),)),
        LinkState(0, ((0, 2**31),)),
        Probe(2**32, 0, 0),
        Probe(0, 256, 0),
        ProbeResponse(0, 0, 2**64),
        PathFailure(256, 0, 0, None),
        PathFailure(0, 2**31, 0, None),
        PathFailure(0, 0, 2**31, None),
        PathFailure(0, 0, 0, FLOW._replace(source_port=2**16)),
        Unreachable(2**32, 0),
        Unreachable(0, 256),
        CableCut(256),
        PROBE._replace(round=2**32),
        PROBE._replace(previous=2**31),
        PROBE._replace(entries=(2**31,)),
        PROBE._replace(entries=(BYONE - 1,)),
        PROBE._replace(flow=FLOW._replace(protocol=256)),
    ],
    ids=str,
)
def test_value_beyond_its_field_is_refused(message):
    assert reason(message.pack) == "bad field"


def test_uid_with_the_top_bit_is_refused_on_the_wire_too():
    beat = Heartbeat(0, (1,)).pack()
    assert reason(Heartbeat.parse, with_checksum(beat[:4] + b"\x80" + beat[5:])) == "bad field"
    probe = PROBE.pack()
    assert reason(PathProbe.parse, with_checksum(probe[:-4] + b"\x80\0\0\0")) == "bad field"
    assert reason(PathProbe.parse, with_checksum(probe[:-4] + b"\xff\xff\xff\xfd")) == "bad field"


def test_count_must_agree_with_the_length():
    for message in (Heartbeat(0, (1, 2)), LinkState(0, ((1, 2),)), PathFailure(0, 1, 2, FLOW)):
        body = message.pack()
        count = with_checksum(body[:1] + b"\0" + body[2:])
        assert reason(message.parse, count) == "bad length"
        assert reason(message.parse, with_checksum(body + b"\0\0")) == "bad length"
    two_flows = with_checksum(PathFailure(0, 1, 2, FLOW).pack() + bytes(16))
    assert reason(PathFailure.parse, two_flows[:1] + b"\2" + two_flows[2:]) == "bad checksum"


def test_reserved_bits_are_zero():
    body = Probe(1, 2, 3).pack()
    assert reason(Probe.parse, with_checksum(body[:1] + b"\1" + body[2:])) == "bad field"
    probe = PROBE.pack()
    assert reason(PathProbe.parse, with_checksum(probe[:1] + b"\1" + probe[2:])) == "bad field"


def test_probe_and_response_are_told_apart_by_their_protocol():
    assert Probe(1, 2, 3).pack() == ProbeResponse(1, 2, 3).pack()
    assert protocol_of(Probe(1, 2, 3)) is Protocol.PROBE
    assert protocol_of(ProbeResponse(1, 2, 3)) is Protocol.PROBE_RESPONSE
