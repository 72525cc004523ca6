"""What a machine can carry and be believed, on machines that the test makes up."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest

from pillarbox.experiments.runs.trials import greedy
from pillarbox.experiments.runs.trials.greedy import Tried
from pillarbox.experiments.runs.trust.verdict import Verdict
from tests.benches import capacity


@dataclass
class Machine:
    """One that is believed up to a rate, and carries its ideal up to another."""

    believed_mbit: float
    ideal_mbit: float
    poor_mbit: tuple[float, ...] = ()  # at which it carries too little
    workers: set[str] = field(default_factory=set)  # that were asked

    def trial(self, system: Any, _workload: Any, worker: str) -> Tried:
        rate = system.rate_mbit
        self.workers.add(worker)
        fine = rate <= self.ideal_mbit and rate not in self.poor_mbit
        of_ideal = 0.95 if fine else 0.8
        figures = {"of_ideal": of_ideal, "idle": 0.25, "duration_s": 2.0}
        valid = rate <= self.believed_mbit
        verdict = Verdict(valid, () if valid else ("it was late",), (), figures)
        return Tried(verdict, 16e6 * rate, carried_bits=1e9)


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(capacity, "NETWORKS", ("bcube,4,1",))
    monkeypatch.setattr(capacity, "MTUS", (9000,))

    def rows(machine: Machine) -> dict[str, Any]:
        monkeypatch.setattr(greedy, "tried", machine.trial)
        (found,) = capacity.run(quick=False)
        return found

    return rows


@pytest.mark.parametrize(("believed", "ideal"), [(500.0, 200.0), (200.0, 500.0)])
def test_a_rate_counts_that_is_believed_and_carries_its_ideal(
    row: Any, believed: float, ideal: float
) -> None:
    found = row(Machine(believed, ideal))
    assert (found["rate_mbit"], found["goodput_mbit"]) == (200.0, 3200.0)
    assert found["outcome"] == "missed: 400 Mbit/s wanted"
    assert (found["of_ideal"], found["busy_percent"]) == pytest.approx((0.95, 75.0))
    assert found["us_per_mbit"] == pytest.approx(2 * 0.75 * 2e6 / 1000)


def test_no_rate_is_passed_over_for_poor_ones_below(row: Any) -> None:
    poor = (2.0, 5.0, 10.0, 20.0, 50.0, 70.0, 300.0)
    assert row(Machine(500.0, 500.0, poor))["rate_mbit"] == 500.0
    assert row(Machine(100.0, 500.0, poor))["rate_mbit"] == 100.0


def test_its_goal_is_met(row: Any) -> None:
    assert row(Machine(500.0, 500.0))["outcome"] == "ok"


def test_a_machine_that_no_rate_is_believed_of_has_failed(row: Any) -> None:
    found = row(Machine(0.5, 0.5))
    assert found["rate_mbit"] is None
    assert found["outcome"] == "failed: no valid rate; the last reason: it was late"


def test_beside_a_tree_stands_stock_mininet(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(200.0, 200.0)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(capacity, "NETWORKS", ("tree,4,4",))
    monkeypatch.setattr(greedy, "tried", machine.trial)
    found = [(row["builder"], row["mtu"]) for row in capacity.run(quick=False)]
    assert found == [(builder, mtu) for mtu in (1500, 9000) for builder in ("pillarbox", "mininet")]
    assert machine.workers == {"", "tests.benches._stock"}
