"""Statistics of durations."""

from __future__ import annotations

import pytest

from experiments.trials.trust.readings import DurationStatistics, spread


@pytest.mark.parametrize(
    ("count", "median", "p99"), [(1, 1, 1), (2, 1, 2), (4, 2, 4), (99, 50, 99), (101, 51, 100)]
)
def test_percentiles_are_nearest_ranks(count: int, median: int, p99: int) -> None:
    durations_s = [float(n) for n in range(count, 0, -1)]
    assert spread(durations_s) == (count, median, p99, count)


def test_no_durations() -> None:
    assert spread([]) == DurationStatistics(0, 0.0, 0.0, 0.0)
