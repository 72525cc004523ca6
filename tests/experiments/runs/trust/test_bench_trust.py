"""The bench of the verdict, once: whether the machine is quiet enough is not for a test to say."""

from __future__ import annotations

import pytest

from tests.benches import trust


@pytest.mark.long
@pytest.mark.root
def test_a_busy_machine_and_a_rate_beyond_it_are_told() -> None:
    rows = {row["case"]: row for row in trust.run(quick=True)}
    assert set(rows) == {trust.QUIET, trust.BURNERS, trust.TOO_FAST}
    assert rows[trust.BURNERS]["outcome"] == "ok", rows[trust.BURNERS]
    assert rows[trust.TOO_FAST]["outcome"] == "ok", rows[trust.TOO_FAST]
    # How quiet the machine is the bench says; cables cannot send more than their rate on any.
    quiet = rows[trust.QUIET]
    least = 0.95 if quiet["outcome"] == "ok" else 0.0
    assert least < quiet["conserved_median"] < 1.05
