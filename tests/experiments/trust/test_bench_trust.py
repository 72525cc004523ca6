"""The bench of the verdict, once: whether the machine is quiet enough is not for a test to say."""

from __future__ import annotations

import pytest

from experiments.benches import trust


@pytest.mark.root
def test_a_busy_machine_and_a_rate_beyond_it_are_told() -> None:
    rows = {row["case"]: row for row in trust.run(quick=True)}
    assert set(rows) == {trust.QUIET, trust.BURNERS, trust.TOO_FAST}
    assert rows[trust.BURNERS]["outcome"] == "ok", rows[trust.BURNERS]
    assert rows[trust.TOO_FAST]["outcome"] == "ok", rows[trust.TOO_FAST]
    # That it was late is no matter here: cables keep ten megabits on the busiest of machines.
    assert rows[trust.QUIET]["conserved_median"] == pytest.approx(1.0, abs=0.05)
