"""Tracing of many packets: when the wait for arrivals ends, in virtual time."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from pillarbox.experiments.lab.emulation import packet_tracing
from pillarbox.hosts.wire.marks import udp_payload

PACKET_S, WAIT_S = 0.01, 0.5


class Receiver:
    """A socket that receives these payloads, and then unmarked packets without end."""

    def __init__(self, payloads: Iterable[bytes]) -> None:
        self.payloads = [*payloads]

    def recv(self, _: int) -> bytes:
        return self.payloads.pop(0) if self.payloads else b"flood"


class Clock:
    """Virtual time, which passes with each packet."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def readable(self, sockets: Sequence[Any], wait_s: float) -> Sequence[Any]:
        assert wait_s > 0
        self.now_s += PACKET_S
        return sockets


@pytest.mark.parametrize(
    ("payloads", "found", "lasts_s"),
    [
        ([], set(), WAIT_S),
        ([udp_payload(7)], {7}, PACKET_S + WAIT_S),
        ([udp_payload(7)] * 20, {7}, PACKET_S + WAIT_S),
        ([b"flood"] * 9 + [udp_payload(7)], {7}, 10 * PACKET_S + WAIT_S),
        ([udp_payload(7), udp_payload(8)], {7, 8}, 2 * PACKET_S),
    ],
)
def test_flood_of_unmarked_packets_does_not_prolong_a_round(
    monkeypatch: pytest.MonkeyPatch, payloads: list[bytes], found: set[int], lasts_s: float
) -> None:
    clock, receiver = Clock(), Receiver(payloads)
    monkeypatch.setattr(packet_tracing, "time", clock)
    monkeypatch.setattr(packet_tracing, "readable", clock.readable)
    receivers: Any = {3: receiver}
    received = packet_tracing._received_serials(receivers, 2, WAIT_S)
    assert received == {(3, serial) for serial in found}
    assert clock.now_s - 100 == pytest.approx(lasts_s, abs=1.5 * PACKET_S)
