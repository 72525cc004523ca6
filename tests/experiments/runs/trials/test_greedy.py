"""Short trials of greedy flows: also of those that failed there is something to tell."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.trials import outcome, trial_process
from pillarbox.experiments.runs.trials.greedy import tried


def test_a_trial_whose_flows_all_failed_had_no_goodput(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(
        routing="bsr", plane="ebpf", readings=SimpleNamespace(links=[{"sent_bytes": 5}])
    )
    verdict = {"valid": False, "reasons": ["16 flows failed"], "warnings": [], "figures": {}}
    judged = SimpleNamespace(record={"verdict": verdict, "goodput_bps": None})
    monkeypatch.setattr(trial_process, "measure", lambda *_, **__: found)
    monkeypatch.setattr(outcome, "outcome", lambda *_: judged)
    result = tried(System("bcube,4,1"))
    assert (result.goodput_bps, result.carried_bits) == (0.0, 40.0)
    assert result.verdict.reasons == ("16 flows failed",)
