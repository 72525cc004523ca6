"""Packets that are due at known moments: their content, and how late they were."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox.experiments.runs.trust import canary_pacer
from pillarbox.experiments.runs.trust.canary_pacer import INTERVAL_S, MOMENT, CanaryPacer, lateness
from pillarbox.experiments.runs.trust.readings import DurationStatistics


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


WALL_CLOCK_S = 1_000_000.25  # offset of the wall clock from the monotonic clock


class Shaper:
    """The pacer's cable: answers a burst of 500 packets immediately, then one packet each 2 ms.

    Parameters
    ----------
    late_s
        Lateness of the answers of single packets, in seconds.
    room
        Number of packets that the shaper's queue holds.
    is_dead
        True if the cable carries no packets; each look at the cable then takes a second.
    """

    def __init__(
        self, late_s: dict[int, float] | None = None, room: int = 10_000, is_dead: bool = False
    ) -> None:
        self.now_s, self.late_s, self.room, self.is_dead = 0.0, late_s or {}, room, is_dead
        self.waiting: list[tuple[float, bytes]] = []
        self.sent = 0

    def send(self, request: bytes) -> None:
        (number,) = struct.unpack_from("=Q", request, 8)
        assert number == self.sent
        if self.is_dead or len(self.waiting) >= self.room:
            raise BlockingIOError
        self.sent += 1
        due_s = max(0, number - 499) * INTERVAL_S + self.late_s.get(number, 0.0)
        self.waiting.append((due_s, request))

    def recvmsg(self, *_: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, str]:
        if not self.waiting or self.waiting[0][0] > self.now_s:
            self.now_s += self.is_dead
            raise BlockingIOError
        at_s, answer = self.waiting.pop(0)
        seconds, part_s = divmod(WALL_CLOCK_S + at_s, 1)
        return bytes(20) + answer, [(0, 0, MOMENT.pack(int(seconds), int(part_s * 1e9)))], 0, ""


def pacer_of(shaper: Shaper, monkeypatch: pytest.MonkeyPatch) -> CanaryPacer:
    clocks = {"monotonic": lambda: shaper.now_s, "time": lambda: WALL_CLOCK_S + shaper.now_s}
    monkeypatch.setattr(canary_pacer, "time", SimpleNamespace(**clocks))
    monkeypatch.setattr(canary_pacer, "_shaped_socket", lambda: shaper)
    return CanaryPacer()


def test_a_pacer_measures_after_the_first_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    shaper = Shaper(late_s={510: 0.003})
    pacer = pacer_of(shaper, monkeypatch)
    assert shaper.sent == 750  # the burst of 500 packets, and 250 packets ahead
    shaper.now_s = 0.2
    pacer.tend()
    assert shaper.sent == 600 + 250  # 100 intervals of 2 ms later
    late, lost = pacer.heard(0.0, 0.1005)
    assert (late.times, lost) == (50, 0)
    assert (late.median_s, late.most_s) == (pytest.approx(0, abs=1e-6), pytest.approx(0.003))


def test_a_pacer_fills_a_short_queue_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shaper = Shaper(room=100)
    pacer = pacer_of(shaper, monkeypatch)
    assert shaper.sent == 500 + 100
    shaper.now_s = 0.011
    pacer.tend()
    assert shaper.sent == 500 + 100 + 5
    assert pacer.heard(0.0, 0.0105)[0].times == 5


def test_a_pacer_waits_five_seconds_for_its_first_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    shaper: Any = Shaper(is_dead=True)
    with pytest.raises(OSError, match="carries no packets"):
        pacer_of(shaper, monkeypatch)
    assert shaper.now_s == 6.0  # looks at 0, 1, ... 5 s


def test_numbers_of_the_kernel() -> None:
    assert canary_pacer.SO_TIMESTAMPNS == 35  # asm-generic/socket.h
    assert len(set(canary_pacer.INDEXES)) == 2
