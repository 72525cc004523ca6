"""Statistics of durations."""

from __future__ import annotations

import pytest

from pillarbox.experiments.runs.trust.readings import (
    DurationStatistics,
    MachineReadings,
    Readings,
    spread,
)


@pytest.mark.parametrize(
    ("count", "median", "p99"), [(1, 1, 1), (2, 1, 2), (4, 2, 4), (99, 50, 99), (101, 51, 100)]
)
def test_percentiles_are_nearest_ranks(count: int, median: int, p99: int) -> None:
    durations_s = [float(n) for n in range(count, 0, -1)]
    assert spread(durations_s) == (count, median, p99, count)


def test_no_durations() -> None:
    assert spread([]) == DurationStatistics(0, 0.0, 0.0, 0.0)


def test_what_was_not_seen_is_nothing() -> None:
    machine = MachineReadings(3)
    assert machine == MachineReadings(3, "", (), 0.0, 0, 0, 0, 0.0, 0, 0, 1.0, 0.0, 0.0)
    none = DurationStatistics(0, 0.0, 0.0, 0.0)
    given = (2.0, None, 0.1, [{"from": "0.0"}], 9, 0.04, none, 1, none, none, 2)
    readings = Readings(*given, None, 0.0, 1.0, 0.0, True, 7)
    assert readings == Readings(*given, None, 0.0, 1.0, 0.0, True, 7, {}, 0, 0, 0.0, ())
    plain = readings.as_json()
    assert "links" not in plain
    nothing = {"times": 0, "median_s": 0.0, "p99_s": 0.0, "most_s": 0.0}
    assert [plain[name] for name in ("round_trip", "lateness", "pacing")] == [nothing] * 3
    assert (plain["lost"], plain["pacing_lost"], plain["packets"]) == (1, 2, 7)
