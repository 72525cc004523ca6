"""Layouts by themselves: checksums against RFC 1071, declarations, pictures, refusals."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pillarbox.hosts.wire.header_layout import (
    Body,
    Field,
    HeaderLayout,
    WireError,
    checksum,
    with_changed_byte,
)

KIND = Field("kind", 4, constant=2, reason="bad version")
LEVEL = Field("level", 4, most=3)
SUM = Field("checksum", 16)


def by_the_book(data: bytes) -> int:
    """Return the checksum as RFC 1071 defines it: word by word, with end-around carry."""
    total = 0
    for high, low in zip(data[::2], data[1::2] + b"\0", strict=False):
        total += high << 8 | low
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


@given(st.binary(max_size=70))
def test_checksum_is_that_of_rfc_1071(data):
    assert checksum(data) == by_the_book(data)


@pytest.mark.parametrize("data", [b"", b"\0", bytes(20), b"\xff\xff", b"\xff\xff" * 3, b"\1"])
def test_checksum_of_zeros_and_ones(data):
    assert checksum(data) == by_the_book(data)


def test_checksum_of_the_rfcs_example():
    # RFC 1071, section 3: the words 0001 f203 f4f5 f6f7 sum to ddf2.
    assert checksum(bytes.fromhex("0001 f203 f4f5 f6f7")) == 0xDDF2 ^ 0xFFFF


@given(st.binary(min_size=20, max_size=20), st.integers(2, 19), st.sampled_from([-1, 1]))
def test_raised_byte_leaves_the_checksum_as_a_new_sum_would(data, at, amount):
    assume(0 <= data[at] + amount <= 255)
    before = b"\x45" + data[1:]  # every header has a version, so it is not all zeros
    after = before[:at] + bytes([before[at] + amount]) + before[at + 1 :]

    def with_checksum(words: bytes) -> bytes:
        return words + checksum(words).to_bytes(2, "big")

    assert with_changed_byte(with_checksum(before), at, amount, len(before)) == with_checksum(after)


def test_values_of_all_widths_come_back():
    layout = HeaderLayout(
        [Field("a", 1), Field("b", 7), Field("c", 8), SUM, Field("d", 32), Field("e", 64)]
    )
    for values in [(0,) * 5, (1, 127, 255, 2**32 - 1, 2**64 - 1), (1, 2, 3, 4, 5)]:
        packed = layout.pack(*values)
        assert len(packed) == layout.size == 16
        assert layout.unpack(packed) == values
        assert layout.read(b"before" + packed, 6) == values


def test_places_tell_where_every_field_is():
    layout = HeaderLayout([KIND, LEVEL, Field("port", 8), SUM, Field("uid", 32)])
    assert [(offset, field.name) for offset, field in layout.places()] == [
        (0, "kind"),
        (4, "level"),
        (8, "port"),
        (16, "checksum"),
        (32, "uid"),
    ]
    assert layout.byte("uid") == 4


def test_fields_that_fill_no_whole_bytes_are_no_layout():
    with pytest.raises(ValueError, match="whole bytes"):
        HeaderLayout([KIND])


def test_checksum_between_words_is_no_layout():
    # Its 16-bit words are counted from the first byte of the header to the last of what follows.
    for fields in ([KIND, LEVEL, SUM, Field("port", 8)], [SUM, KIND, LEVEL]):
        with pytest.raises(ValueError, match="word among words"):
            HeaderLayout(fields)


def test_another_header_goes_before_damage_and_damage_before_nonsense():
    layout = HeaderLayout([KIND, LEVEL, Field("reserved", 8, constant=0), SUM])
    packed = layout.pack(1)
    nonsense = bytes([packed[0], 1])
    right_sum = checksum(nonsense).to_bytes(2, "big")
    for data, reason in [
        (b"\x31" + packed[1:], "bad version"),
        (nonsense + packed[2:], "bad checksum"),
        (nonsense + right_sum, "bad field"),
        (packed[:-1], "truncated"),
    ]:
        with pytest.raises(WireError) as caught:
            layout.unpack(data)
        assert caught.value.reason == reason


def test_limit_is_held_both_ways():
    layout = HeaderLayout([KIND, LEVEL])
    with pytest.raises(WireError, match="Level must be at most 3, not 4"):
        layout.pack(4)
    with pytest.raises(WireError, match="Level must be at most 3, not 4"):
        layout.unpack(b"\x24")


def test_second_encoding_of_a_checksum_is_refused():
    # 0xFFFF is the other zero of one's complement; RFC 1624, section 3.
    layout = HeaderLayout([Field("word", 16), SUM])
    assert layout.pack(0xFFFF) == b"\xff\xff\0\0"
    with pytest.raises(WireError, match="checksum"):
        layout.unpack(b"\xff\xff\xff\xff")
    with pytest.raises(WireError, match="checksum"):
        layout.unpack(bytes(4))


def test_value_that_is_no_number_is_a_fault_of_the_program():
    layout = HeaderLayout([Field("word", 16), SUM])
    with pytest.raises(Exception, match="integer") as caught:
        layout.pack(1.5)  # type: ignore[arg-type]
    assert not isinstance(caught.value, WireError)


def test_picture_opens_the_border_inside_a_long_field():
    assert HeaderLayout([Field("rate", 64), KIND, LEVEL]).picture().splitlines()[2:] == [
        "+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+",
        "|                                                               |",
        "+                              Rate                             +",
        "|                                                               |",
        "+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+",
        "|  Kind | Level |",
        "+-+-+-+-+-+-+-+-+",
    ]


def test_body_counts_its_entries():
    body = Body(
        [Field("count", 8, most=2), Field("port", 8), SUM], HeaderLayout([LEVEL, KIND]), title="x"
    )
    packed = body.pack(7, entries=[(1,), (2,)])
    assert packed[:2] == b"\x02\x07"
    assert body.unpack(packed) == ((7,), [(1,), (2,)])
    with pytest.raises(WireError, match="Count must be at most 2, not 3"):
        body.pack(7, entries=[(1,)] * 3)


def test_error_survives_a_process_boundary():
    error = pickle.loads(pickle.dumps(WireError("bad path", "no way")))
    assert (error.reason, str(error)) == ("bad path", "no way")
