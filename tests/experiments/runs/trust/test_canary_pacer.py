"""Packets that are due at known moments: their content, and how late they were."""

from __future__ import annotations

import struct

import pytest

from experiments.runs.trust import canary_pacer
from experiments.runs.trust.canary_pacer import INTERVAL_S, lateness
from experiments.runs.trust.readings import DurationStatistics


def test_lateness_counts_from_the_earliest_packet() -> None:
    back = [(10, 5.0), (11, 5.0019), (12, 5.0069), (14, 5.008)]
    late, lost = lateness(back, 5.0, 5.01)
    # Packet 11 was the earliest: packet n is due at 5.0019 s + (n - 11) x 2 ms. Packets 11 to 15
    # are due in this time, and 13 and 15 are missing.
    assert (late.times, lost) == (3, 2)
    assert late.most_s == pytest.approx(0.003)
    assert late.median_s == pytest.approx(0.0001, abs=1e-9)


def test_lateness_of_part_of_the_packets() -> None:
    back = [(n, n * INTERVAL_S) for n in range(100)]
    assert lateness(back, 0.0499, 0.0999)[0].times == 25
    assert lateness(back, 0.0499, 0.0999)[1] == 0
    assert lateness(back, -10.0, 0.0999) == (DurationStatistics(50, 0, 0, 0), 0)
    assert lateness(back, 0.1, 0.3)[1] == 50
    assert lateness([], 1.0, 2.0) == (DurationStatistics(0, 0, 0, 0), 500)


def test_an_echo_request_is_a_full_frame_with_a_right_checksum() -> None:
    assert (canary_pacer.BURST_PACKETS, canary_pacer.AHEAD_PACKETS, canary_pacer.BYTES_S) == (
        500,
        250,
        63_000,
    )
    assert (canary_pacer.CATCH_UP_S, canary_pacer.AHEAD_S) == (1.0, 0.5)
    for number in (0, 1, 0xFFFF, 0xFFFF_FFFF_FFFF, 2**63):
        packet = canary_pacer._echo_request(number)
        assert len(packet) == 126 - 14 - 20
        assert packet[:2] == b"\x08\x00"
        assert packet[4:8] == bytes(4)
        total = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
        while total > 0xFFFF:
            total = (total & 0xFFFF) + (total >> 16)
        assert total == 0xFFFF  # RFC 1071
        assert struct.unpack("=Q", packet[8:16]) == (number,)
        assert canary_pacer.NUMBER_AT == 20 + 8
