"""What holds for every header and every message, whatever it says."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox.hosts.wire import bcube, dcn, ipv4, source_route
from pillarbox.hosts.wire.bcube import BCubeHeader, Hop
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.ficonn import BYONE, BYZERO, PathProbe
from pillarbox.hosts.wire.header_layout import REASONS, Body, HeaderLayout, WireError
from pillarbox.hosts.wire.ipv4 import FlowKey, Ipv4Header
from pillarbox.hosts.wire.messages import (
    BODIES,
    MESSAGES,
    CableCut,
    Heartbeat,
    LinkState,
    PathFailure,
    Probe,
    ProbeResponse,
    Unreachable,
    parse_message,
    protocol_of,
)
from pillarbox.hosts.wire.source_route import SourceRouteHeader


def bits(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**count - 1)


uids = bits(31)
flows = st.builds(FlowKey, bits(32), bits(32), bits(8), bits(16), bits(16))
payloads = st.binary(max_size=40)
options = st.integers(0, 10).flatmap(
    lambda words: st.binary(min_size=4 * words, max_size=4 * words)
)


def tuples_of(entries: st.SearchStrategy[Any], most: int = 5) -> st.SearchStrategy[Any]:
    return st.lists(entries, max_size=most).map(tuple)


@st.composite
def bcube_headers(draw: st.DrawFn) -> BCubeHeader:
    path = draw(tuples_of(st.builds(Hop, bits(2), bits(6)), most=8))
    return BCubeHeader(
        source=draw(uids),
        destination=draw(bits(32)),
        protocol=draw(bits(8)),
        path=path,
        next_hop=draw(st.integers(0, len(path))),
        identification=draw(bits(32)),
        ttl=draw(bits(8)),
    )


@st.composite
def source_route_headers(draw: st.DrawFn) -> SourceRouteHeader:
    path = draw(tuples_of(bits(8), most=16))
    return SourceRouteHeader(
        source=draw(uids),
        destination=draw(bits(32)),
        protocol=draw(bits(8)),
        path=path,
        next_hop=draw(st.integers(0, len(path))),
        identification=draw(bits(32)),
        ttl=draw(bits(8)),
    )


class Header(NamedTuple):
    """A header in front of a payload: one as it may be, and all that it may be."""

    example: Any
    values: st.SearchStrategy[Any]
    most_payload: int
    fields: dict[str, int]  # the bits of its numbers


HEADERS = [
    Header(
        DcnHeader(source=3, destination=17, protocol=Protocol.IPV4, proxy=9),
        st.builds(DcnHeader, uids, bits(32), bits(8), bits(32), bits(4), bits(8), st.none() | uids),
        0xFFFF,
        {
            "source": 31,
            "destination": 32,
            "protocol": 8,
            "identification": 32,
            "retry": 4,
            "ttl": 8,
            "proxy": 31,
        },
    ),
    Header(
        BCubeHeader(source=0, destination=5, protocol=Protocol.IPV4, path=(Hop(0, 1), Hop(1, 1))),
        bcube_headers(),
        0xFFFF,
        {"source": 31, "destination": 32, "protocol": 8, "identification": 32, "ttl": 8},
    ),
    Header(
        SourceRouteHeader(source=0, destination=5, protocol=Protocol.IPV4, path=(3, 0, 6)),
        source_route_headers(),
        0xFFFF,
        {"source": 31, "destination": 32, "protocol": 8, "identification": 32, "ttl": 8},
    ),
    Header(
        Ipv4Header(source=0x0A000001, destination=0x0A000002, protocol=ipv4.UDP),
        st.builds(
            Ipv4Header,
            *(bits(32), bits(32), bits(8), bits(8), bits(16), bits(8), bits(3), bits(13)),
            options,
        ),
        0xFFFF - 20,
        {
            "source": 32,
            "destination": 32,
            "protocol": 8,
            "ttl": 8,
            "identification": 16,
            "tos": 8,
            "flags": 3,
            "fragment": 13,
        },
    ),
]

VALUES: dict[type, st.SearchStrategy[Any]] = {
    Heartbeat: st.builds(Heartbeat, bits(8), tuples_of(uids)),
    LinkState: st.builds(LinkState, bits(32), tuples_of(st.tuples(bits(8), uids))),
    Probe: st.builds(Probe, bits(32), bits(8), bits(64)),
    ProbeResponse: st.builds(ProbeResponse, bits(32), bits(8), bits(64)),
    PathFailure: st.builds(PathFailure, bits(8), uids, uids, st.none() | flows),
    Unreachable: st.builds(Unreachable, bits(32), bits(8)),
    CableCut: st.builds(CableCut, bits(8)),
    PathProbe: st.builds(
        PathProbe,
        flows,
        bits(32),
        st.booleans(),
        uids,
        tuples_of(uids | st.sampled_from([BYZERO, BYONE]), most=15),
        bits(3),
    ),
}
PICTURES: dict[type, HeaderLayout | Body] = {
    DcnHeader: dcn.PROXIED,
    BCubeHeader: bcube.LAYOUT,
    SourceRouteHeader: source_route.LAYOUT,
    Ipv4Header: ipv4.LAYOUT,
    # A ProbeResponse has the body of a Probe.
    **{kind: BODIES[number] for number, kind in MESSAGES.items() if kind is not ProbeResponse},
}
PARSERS: list[Callable[[bytes], Any]] = [
    *[header.example.parse for header in HEADERS],
    *[message.parse for message in MESSAGES.values()],
    ipv4.decapsulate,
    ipv4.decrement_ttl,
    ipv4.flow_key,
    bcube.advance,
    source_route.advance,
]

each_header = pytest.mark.parametrize(
    "header", HEADERS, ids=lambda header: type(header.example).__name__
)
each_message = pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)


def flips(data: bytes) -> list[bytes]:
    """Return the data with each of its bits flipped, one at a time."""
    number = int.from_bytes(data, "big")
    return [(number ^ 1 << bit).to_bytes(len(data), "big") for bit in range(8 * len(data))]


def refused(parse: Callable[[bytes], Any], data: bytes) -> str:
    """Return the reason; fail if the data is accepted."""
    with pytest.raises(WireError) as caught:
        parse(data)
    return caught.value.reason


# -- headers -----------------------------------------------------------------------------------


@each_header
@given(data=st.data())
def test_header_comes_back_with_its_payload_and_without_padding(header: Header, data):
    value, payload = data.draw(header.values), data.draw(payloads)
    packet = value.pack(payload)
    assert value.parse(packet) == (value, payload)
    assert value.parse(packet + data.draw(payloads)) == (value, payload)


@each_header
@given(data=st.data())
def test_every_flipped_bit_of_a_header_is_refused(header: Header, data):
    value = data.draw(header.values)
    for damaged in flips(value.pack(b"")):
        refused(value.parse, damaged)


@each_header
@given(data=st.data())
def test_damaged_payload_is_not_the_business_of_the_header(header: Header, data):
    value, payload = data.draw(header.values), data.draw(payloads)
    other = data.draw(st.binary(min_size=len(payload), max_size=len(payload)))
    packet = value.pack(payload)
    assert value.parse(packet[: len(packet) - len(payload)] + other) == (value, other)


@each_header
@given(data=st.data())
def test_every_cut_packet_is_refused(header: Header, data):
    value, payload = data.draw(header.values), data.draw(payloads)
    packet = value.pack(payload)
    reasons = {refused(value.parse, packet[:length]) for length in range(len(packet))}
    assert reasons <= {"truncated", "bad checksum"}
    if payload:
        assert refused(value.parse, packet[:-1]) == "truncated"


@each_header
def test_header_holds_the_longest_payload_and_no_longer_one(header: Header):
    payload = bytes(header.most_payload)
    assert header.example.parse(header.example.pack(payload)) == (header.example, payload)
    with pytest.raises(WireError) as caught:
        header.example.pack(payload + b"\0")
    assert caught.value.reason == "bad length"


@each_header
def test_header_refuses_numbers_beyond_its_bits(header: Header):
    for name, width in header.fields.items():
        most = header.example._replace(**{name: 2**width - 1})
        assert header.example.parse(most.pack(b"")) == (most, b"")
        for beyond in (2**width, -1):
            with pytest.raises(WireError) as caught:
                header.example._replace(**{name: beyond}).pack(b"")
            assert caught.value.reason == "bad field"
            assert str(beyond) in str(caught.value)


# -- messages ----------------------------------------------------------------------------------


def test_every_message_is_tested():
    assert set(VALUES) == set(MESSAGES.values())
    assert set(MESSAGES) == set(BODIES) == set(Protocol) - {Protocol.IPV4, Protocol.RETURNED}


@each_message
@given(data=st.data())
def test_message_comes_back(kind: type, data):
    message = data.draw(VALUES[kind])
    assert kind.parse(message.pack()) == message
    found = parse_message(protocol_of(message), message.pack())
    assert found == message
    assert type(found) is kind


@each_message
@settings(max_examples=settings.default.max_examples // 3)  # each tries every cut and every bit
@given(data=st.data())
def test_damaged_message_is_refused(kind: type, data):
    body = data.draw(VALUES[kind]).pack()
    for length in range(len(body)):
        refused(kind.parse, body[:length])
    for damaged in flips(body):
        refused(kind.parse, damaged)
    for more in (b"\0", b"\0\0", bytes(16)):
        refused(kind.parse, body + more)


def test_unknown_message_is_refused():
    with pytest.raises(WireError) as caught:
        parse_message(Protocol.IPV4, b"")
    assert caught.value.reason == "unknown message"


# -- all ---------------------------------------------------------------------------------------


@given(st.binary(max_size=100))
def test_nothing_but_wire_error_escapes(data):
    for parse in PARSERS:
        try:
            parse(data)
        except WireError as error:
            reason, sentence = error.reason, str(error)
        else:
            continue
        assert reason in REASONS
        assert sentence


@pytest.mark.parametrize("kind", PICTURES, ids=lambda kind: kind.__name__)
def test_docstring_shows_the_picture_of_the_layout(kind: type):
    picture = PICTURES[kind].picture()
    assert textwrap.indent(picture, "    ") in (inspect.getdoc(kind) or "")
    assert max(map(len, picture.splitlines())) == 65
