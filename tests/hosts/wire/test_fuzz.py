"""The bench that feeds damaged frames to every parser, at a size to wait for."""

from __future__ import annotations

from random import Random

import pytest

from pillarbox.hosts.wire.bcube import BCubeHeader
from pillarbox.hosts.wire.header_layout import REASONS, WireError
from pillarbox.hosts.wire.messages import MESSAGES
from tests.benches import fuzz

BCUBE = 1  # where it stands among the targets


def test_every_parser_refuses_or_understands_every_frame():
    rows = [row for row in fuzz.run(quick=True) if "header" in row]
    assert [row["outcome"] for row in rows] == ["ok"] * len(rows)
    assert len(rows) == 6 + len(MESSAGES)
    for row in rows:
        assert row["frames"] == fuzz.FRAMES_QUICK
        refused = sum(row[reason.replace(" ", "_")] for reason in REASONS)
        assert refused + row["accepted"] == row["frames"]
        # A bench that only ever saw one side would prove nothing.
        assert row["accepted"] > 100
        assert row["truncated"] > 100


def test_frames_are_the_same_in_every_run():
    def without_time():
        return [{**row, "seconds": None} for row in fuzz.fuzz_parsers(200)]

    assert without_time() == without_time()


def test_other_exception_is_a_failure_that_names_its_frame():
    target = fuzz.parser_targets()[BCUBE]
    row = fuzz.fuzz_parser(target._replace(parse=lambda frame: 1 // len(frame[:0])), 10)
    assert row["outcome"].startswith("failed: ZeroDivisionError")
    assert row["frames"] == 0


def test_frame_that_is_read_as_another_is_a_failure():
    def forgetful(frame):
        header, payload = BCubeHeader.parse(frame)
        return header._replace(identification=1), payload

    row = fuzz.fuzz_parser(
        fuzz.parser_targets()[BCUBE]._replace(parse=forgetful), fuzz.FRAMES_QUICK
    )
    assert row["outcome"].startswith("failed: ValueError('the frame differs after it is packed")


def test_checksum_is_put_right_behind_a_damage():
    target = fuzz.parser_targets()[BCUBE]
    frame = bytearray(target.sample(Random(1)))
    frame[5] ^= 1
    with pytest.raises(WireError, match="checksum"):
        target.parse(bytes(frame))
    target.parse(fuzz._with_checksum(target, bytes(frame)))
