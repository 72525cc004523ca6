"""The search for the largest faithful rate, on machines that the test makes up."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.trials import calibration
from pillarbox.experiments.runs.trials.calibration import SCALE_MBIT, largest
from pillarbox.experiments.runs.trials.greedy import Tried, greedy
from pillarbox.experiments.runs.trust.verdict import Verdict
from pillarbox.topos.base.errors import PillarboxError


@dataclass
class Machine:
    """One that keeps up to a rate; at some of its trials it hiccups."""

    most_mbit: float
    hiccups: tuple[int, ...] = ()
    rates: list[float] = field(default_factory=list)

    def trial(self, rate_mbit: float) -> Tried:
        self.rates.append(rate_mbit)
        valid = rate_mbit <= self.most_mbit and len(self.rates) - 1 not in self.hiccups
        return Tried(Verdict(valid, () if valid else ("it was late",), (), {}), rate_mbit * 1e6)


@pytest.mark.parametrize("most_mbit", [1, 2.5, 9, 10, 49, 70, 300, 6999, 10_000, 50_000])
def test_it_finds_the_largest_of_the_scale(most_mbit: float) -> None:
    machine = Machine(most_mbit)
    assert largest(machine.trial) == max(rate for rate in SCALE_MBIT if rate <= most_mbit)
    assert len(machine.rates) < 20


def test_a_hiccup_is_no_reason_to_give_up() -> None:
    assert largest(Machine(70, hiccups=(1,)).trial) == 70


def test_what_is_not_valid_again_and_again_is_not_taken() -> None:
    machine = Machine(70)
    largest(machine.trial)
    last = len(machine.rates) - 1  # of the confirmations
    assert largest(Machine(70, hiccups=(last,)).trial) == 70
    assert largest(Machine(70, hiccups=(last - 1, last)).trial) == 50


def test_a_machine_that_keeps_up_with_nothing_says_why() -> None:
    with pytest.raises(PillarboxError, match=r"not emulate.* 1 Mbit/s: it was late"):
        largest(Machine(0.5).trial)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(50)
    monkeypatch.setattr(calibration, "_trial_at", lambda system, _: machine.trial(system.rate_mbit))
    monkeypatch.setattr(calibration, "known_as", lambda system: system.network)
    return machine


def test_the_edge_is_measured_once_and_kept_and_the_rate_is_a_step_below(
    measured: Machine, tmp_path: Path
) -> None:
    folder, system = tmp_path / "new" / "cache", System("bcube,2,1")
    assert calibration.calibrated_rate(system, cache=folder) == 30
    trials = len(measured.rates)
    assert calibration.calibrated_rate(system, cache=folder) == 30
    assert len(measured.rates) == trials
    measured.most_mbit = 20
    assert calibration.calibrated_rate(system, cache=folder, again=True) == 10
    assert json.loads((folder / "rates.json").read_text()) == {"bcube,2,1": 20}
    assert stat.S_IMODE((folder / "rates.json").stat().st_mode) == 0o644


def test_what_greedy_flows_do_not_know_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = Machine(50)

    def tried(system: System, _say: object) -> Tried:
        Experiment("greedy", "", (system,), greedy(system))  # refuses what it cannot do
        assert not system.algorithm
        return machine.trial(system.rate_mbit or 0.0)

    monkeypatch.setattr(calibration, "_trial_at", tried)
    for system in (System("bcube,3,1", algorithm="bml"), System("bcube,3,1", at_load=0.5)):
        assert calibration.calibrated_rate(system, cache=tmp_path, again=True) == 30


def test_a_damaged_cache_is_none(measured: Machine, tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text('{"bcube,2,1": ')
    assert calibration.calibrated_rate(System("bcube,2,1"), cache=tmp_path) == 30


def test_the_cache_is_that_of_whoever_called_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("SUDO_UID", str(os.getuid()))
    own = calibration.user_cache()
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert own.parts[-2:] == (".cache", "pillarbox")
    assert calibration.user_cache() == Path("/somewhere/pillarbox")
