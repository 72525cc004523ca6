"""Limits of a watch that follow from a lab's settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import topos
from experiments.linux import shaping
from experiments.trials.trust.watch import base_rtt_s, enough_bytes


def lab_of(spec: str = "bcube,4,1", **settings: Any) -> Any:
    values = {"rate_mbit": 100.0, "mtu": 1500, "delay": ""} | settings
    return SimpleNamespace(settings=SimpleNamespace(**values), topology=topos.parse(spec))


def test_a_port_with_more_than_two_super_packets_is_backlogged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shaping, "kernel_has_netem", lambda: True)
    two = 2 * shaping.super_packet_bytes(100.0, 1500)
    assert enough_bytes(lab_of()) == two
    assert enough_bytes(lab_of(delay="2ms")) == two + 25_000  # 100 Mbit/s x 2 ms
    without = enough_bytes(lab_of(delay="2ms", rate_mbit=None))
    assert without == 2 * shaping.super_packet_bytes(None, 1500)
    monkeypatch.setattr(shaping, "kernel_has_netem", lambda: False)
    assert enough_bytes(lab_of(delay="2ms")) == two


@pytest.mark.parametrize(
    ("spec", "settings", "milliseconds"),
    [
        ("bcube,4,1", {}, 2 * 2 * 1514 * 8 / 1e5),
        ("dcell,4,1", {}, 2 * 1514 * 8 / 1e5),
        ("bcube,4,1", {"delay": "2ms"}, 2 * 2 * (2 + 1514 * 8 / 1e5)),
        ("bcube,4,1", {"rate_mbit": None, "delay": "2ms"}, 8),
        ("bcube,4,1", {"rate_mbit": None}, 0),
    ],
)
def test_round_trip_of_an_idle_network(
    spec: str, settings: dict[str, Any], milliseconds: float
) -> None:
    assert base_rtt_s(lab_of(spec, **settings)) * 1e3 == pytest.approx(milliseconds)
