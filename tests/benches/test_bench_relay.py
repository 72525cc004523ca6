"""The bench of relays: it runs, compares with the kernel, and says why it skips."""

from __future__ import annotations

import pytest

from tests.benches import relay


@pytest.mark.long
@pytest.mark.root
def test_quick_run_compares_ebpf_and_python_with_the_kernel():
    rows = {row["relay"]: row for row in relay.run(quick=True)}
    assert list(rows) == ["kernel", "eBPF, DCN header", "loop in Python"]
    assert {row["outcome"] for row in rows.values()} == {"ok"}
    assert rows["kernel"]["of_kernel"] == 1
    # By how much, the bench tells.
    assert rows["eBPF, DCN header"]["goodput_gbps"] > rows["loop in Python"]["goodput_gbps"] > 0


def test_without_root_it_skips(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    outcomes = {row["outcome"] for row in relay.run(quick=True)}
    assert outcomes == {"skipped: network namespaces need root"}


def test_share_of_the_kernel_is_that_of_medians_and_lies_in_its_interval():
    row = relay._compared([8.0, 9.0, 10.0, 1.0, 9.0], [10.0, 10.0, 10.0, 2.0, 11.0])
    assert row["of_kernel"] == 0.9
    assert row["low"] <= 0.9 <= row["high"]


class Lab:
    """Three servers with a given rate, or an error."""

    def __init__(self, rate: float | OSError) -> None:
        self.rate = rate

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def goodput_bps(self, seconds: float) -> float:
        if isinstance(self.rate, OSError):
            raise self.rate
        return self.rate


def test_what_misses_the_goal_or_fails_is_told(monkeypatch):
    rates = {
        "kernel": 100.0,
        "eBPF, DCN header": 96.0,
        "eBPF, IP in IP": 98.0,
        "eBPF, BCube header": TimeoutError("timed out"),
    }
    monkeypatch.setattr(relay, "CASES", {n: (lambda r=r: Lab(r)) for n, r in rates.items()})
    monkeypatch.setattr(relay, "_reasons", lambda cases: dict.fromkeys(cases, ""))
    assert [row["outcome"] for row in relay.run(quick=False)] == [
        "ok",
        "missed: 0.97 wanted",
        "ok",
        "failed: timed out",
    ]
