"""Durations of collective operations in the fluid model, worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.collective import (
    flow_ends_s,
    phases_duration_s,
    transfer_end_times_s,
)
from pillarbox.experiments.models.workloads.collectives.phases import Phase

TREE = topos.parse("tree,2,2")


def test_a_phase_lasts_as_long_as_its_slowest_transfer() -> None:
    both = Phase(((0, 2), (1, 3)), 0.5, 3)  # both cross the root: half the rate, so 1 each time
    assert phases_duration_s(TREE, [both], range(4)) == pytest.approx(3.0)
    one = Phase(((0, 1),), 0.25, 2)
    assert phases_duration_s(TREE, [both, one], range(4)) == pytest.approx(3.5)
    assert phases_duration_s(TREE, [both], [0, 2, 1, 3]) == pytest.approx(1.5)  # ranks on one leaf
    mixed = Phase(((0, 2), (1, 3), (2, 0)), 0.5, 3)  # nothing shares the cables of 2 -> 0
    assert phases_duration_s(TREE, [mixed], range(4)) == pytest.approx(3.0)
    assert phases_duration_s(TREE, [], range(4)) == 0


def test_transfers_of_a_plan_in_bits_and_the_last_one_of_each_flow() -> None:
    transfers = [SimpleNamespace(after=after, lasts_s=0.0) for after in ((), (0,), ())]
    plan: Any = SimpleNamespace(
        volumes=(1, 2, 4),
        graph=SimpleNamespace(transfers=transfers),
        flow_of=(0, 1, 0),
        pairs={(0, 1): 0, (1, 2): 1},
        queues=2,
    )

    def rates(active: Any) -> Any:
        return numpy.where(active, 8.0, numpy.nan)

    assert transfer_end_times_s(plan, rates).tolist() == [1, 3, 5]
    assert flow_ends_s(plan, transfer_end_times_s(plan, rates)).tolist() == [5, 3]
