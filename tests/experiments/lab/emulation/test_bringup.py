"""The bench of networks that come up and go: both builders' networks work, and ours is faster."""

from __future__ import annotations

import pytest


@pytest.mark.long
@pytest.mark.root
def test_both_builders_bring_up_a_network_that_works() -> None:
    from tests.benches import bringup

    stock, ours = bringup.run(quick=True)
    assert (stock["builder"], ours["builder"]) == ("mininet", "pillarbox")
    assert stock["outcome"] == ours["outcome"] == "ok"
    assert stock["faster_times"] is None
    both = [row["up_s"] + row["stop_s"] for row in (stock, ours)]
    assert ours["faster_times"] == pytest.approx(both[0] / both[1])
    assert ours["faster_times"] > 3  # even on a machine that has other things to do
    assert ours["processes"] == 0 < stock["processes"]
