"""End times of transfers that depend on each other, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from pillarbox.experiments.models.fluid import graphs
from pillarbox.experiments.models.fluid.graphs import transfer_ends_s


class SharedLink:
    """A link of rate 1 that its active flows share equally; counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, active: Any) -> Any:
        self.calls += 1
        return numpy.where(active, 1.0 / max(1, active.sum()), numpy.nan)


def ends_of(volumes: list[float], flow_of: list[int], after: list[list[int]]) -> list[float]:
    found = transfer_ends_s(numpy.array(volumes), flow_of, after, max(flow_of) + 1, SharedLink())
    return found.tolist()  # type: ignore[no-any-return]


def test_transfers_of_one_flow_follow_one_another() -> None:
    assert ends_of([1, 2, 3], [0, 0, 0], [[], [], []]) == [1, 3, 6]
    assert ends_of([1, 2, 3], [0, 0, 0], [[1], [2], []]) == [6, 5, 3]


def test_flows_share_the_link_and_a_transfer_waits_for_all_it_depends_on() -> None:
    # Both flows have half the link until 2 s; transfer 2 waits for both others.
    assert ends_of([1, 2, 4], [0, 1, 0], [[], [], [0, 1]]) == [2, 3, 7]
    # Transfer 1 became ready first, and transfer 0 is sent after it over the same connection.
    assert ends_of([1, 3, 2], [0, 0, 1], [[2], [], []]) == [6, 5, 4]


def test_transfers_that_become_ready_together_keep_the_order_of_their_numbers() -> None:
    assert ends_of([1, 1, 1, 1], [1, 1, 1, 0], [[3], [3], [3], []]) == [2, 3, 4, 1]


def test_what_never_moves_and_what_depends_on_it_has_no_end() -> None:
    def rates(active: Any) -> Any:
        return numpy.where(active, [0.0, 2.0], numpy.nan)

    found = transfer_ends_s(numpy.array([1.0, 4.0, 1.0]), [0, 1, 1], [[], [], [0]], 2, rates)
    assert found.tolist() == pytest.approx([numpy.nan, 2.0, numpy.nan], nan_ok=True)


@pytest.mark.parametrize(("remembered", "calls"), [(4096, 3), (3, 3), (2, 6), (1, 6)])
def test_rates_of_a_set_of_active_flows_are_remembered(
    remembered: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert graphs.MOST_REMEMBERED == 4096
    monkeypatch.setattr(graphs, "MOST_REMEMBERED", remembered)
    rates = SharedLink()
    # Flow 0, flow 1 and flow 2 in turn, twice.
    turns = [[], [0], [1], [2], [3], [4]]
    found = transfer_ends_s(numpy.ones(6), [0, 1, 2, 0, 1, 2], turns, 3, rates)
    assert found.tolist() == [1, 2, 3, 4, 5, 6]
    assert rates.calls == calls
