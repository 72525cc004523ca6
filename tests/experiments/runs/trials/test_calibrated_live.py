"""A rate that is asked for as "calibrated", on a real lab: measured once, kept, and then used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pillarbox.experiments.cli.commands.run import _calibrated_mbit
from pillarbox.experiments.runs.plans.loading import load
from pillarbox.experiments.runs.trials import calibration, greedy
from pillarbox.topos.base.errors import PillarboxError

RATE_MBIT = 10.0


@pytest.mark.root
def test_a_calibrated_rate_is_measured_on_a_lab_or_refused_with_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One rate instead of thirty, to be quick; whether the machine is fit for it is its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "SCALE_MBIT", (RATE_MBIT,))
    monkeypatch.setattr(calibration, "TRIES", 1)
    monkeypatch.setattr(calibration, "CONFIRMATIONS", 0)
    tried, trials = greedy.tried, []
    monkeypatch.setattr(greedy, "tried", lambda system: trials.append(tried(system)) or trials[-1])
    changes = ["rate_mbit=calibrated", "systems.1.network=tree,2,1"]
    kept = tmp_path / "pillarbox" / calibration.FILE
    refusal = ""
    try:
        experiment = load("a-a", changes, _calibrated_mbit)
    except PillarboxError as error:
        refusal = str(error)
    if refusal:
        assert "cannot emulate this network faithfully at 10 Mbit/s: " in refusal
        assert not trials[-1].verdict.valid and trials[-1].verdict.reasons[0] in refusal
    else:
        assert [system.rate_mbit for system in experiment.systems] == [RATE_MBIT, RATE_MBIT]
        assert sorted(json.loads(kept.read_text()).values()) == [RATE_MBIT, RATE_MBIT]
        assert len(trials) == 2 and all(trial.verdict.valid for trial in trials)
        load("a-a", changes, _calibrated_mbit)
        assert len(trials) == 2  # from the cache
    for trial in trials:  # a real lab carried real bytes, valid or not
        if not trial.verdict.reasons or "did not finish" not in trial.verdict.reasons[0]:
            assert 0 < trial.goodput_bps < 8 * RATE_MBIT * 1e6
