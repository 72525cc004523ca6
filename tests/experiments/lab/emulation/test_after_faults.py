"""New flows on live servers after a fault: their first packets come through."""

from __future__ import annotations

from pathlib import Path

import pytest

from pillarbox.hosts.base.faults import read
from pillarbox.topos.base.spec import parse
from tests.benches import after_faults
from tests.benches.after_faults import faults_of, ping_losses_of_fault
from tests.experiments.labs import PLANES, lab_of, wait_until

pytestmark = pytest.mark.root


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize(
    ("spec", "fault"), [("dpillar,4,2", "cut 0.0.0-s0"), ("bcube,4,1", "stop s0")]
)
def test_pings_after_a_fault_are_answered(
    spec: str, fault: str, plane: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_faults, "ROUNDS", 1)
    monkeypatch.setattr(after_faults, "NOTICED_S", {"paper": 0.5})
    # The papers' timers do not take a busy machine for a failure; the cut ports notice at once.
    with lab_of(spec, tmp_path, plane=plane, timers="paper") as lab:
        # A busy machine may be late for one round of pings.
        wait_until(
            lambda: ping_losses_of_fault(lab, read(fault)).lost == [0],
            f"pings are lost after {fault}",
        )


def test_every_fault_that_can_strike_alone_is_found() -> None:
    topology = parse("dpillar,4,2")
    found = {kind: len(faults_of(topology, kind)) for kind in after_faults.KINDS}
    assert found == {"cut": 16, "silent cut": 16, "one-way cut": 32, "server": 8, "switch": 4}
