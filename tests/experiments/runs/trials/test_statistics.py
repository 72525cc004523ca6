"""Intervals that hold what they claim, comparisons that find what is there and nothing else."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.experiments.runs.trials import statistics
from pillarbox.experiments.runs.trials.statistics import (
    LEVEL,
    Estimate,
    compare,
    compare_runs,
    estimate,
    jain,
    paired,
    precise,
    spread,
)

TIMES = 200
# Of so many trials, and 4 standard deviations below what is claimed.
LEAST_HITS = LEVEL - 4 * (LEVEL * (1 - LEVEL) / TIMES) ** 0.5
POSITIVE = st.floats(0.01, 1e6)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_intervals_hold_the_mean_as_often_as_they_claim(count: int):
    draw = numpy.random.default_rng(count)
    hits = 0
    for seed in range(TIMES):
        found = estimate(draw.normal(10.0, 1.0, count), seed=seed)
        hits += found.low <= 10.0 <= found.high
    assert hits / TIMES >= LEAST_HITS


@pytest.mark.long
@pytest.mark.parametrize(("count", "least"), [(2, 0.92), (3, 0.93), (5, 0.94), (10, 0.943)])
def test_intervals_hold_the_mean_in_ten_thousand_draws(
    count: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the factor sqrt(n / (n-1)) the shares are 0.905, 0.915, 0.925 and 0.938."""
    monkeypatch.setattr(statistics, "RESAMPLES", 300)
    draw = numpy.random.default_rng(count)
    found = [estimate(draw.normal(10.0, 1.0, count), seed=seed) for seed in range(10_000)]
    assert least <= sum(one.low <= 10.0 <= one.high for one in found) / len(found) <= 0.957


# Quantiles of Student's t at 97.5 % by degrees of freedom, from printed tables.
@pytest.mark.parametrize(("count", "student"), [(2, 12.706), (3, 4.303), (5, 2.776), (31, 2.042)])
def test_intervals_are_stretched_by_students_t_and_the_lost_degree(count: int, student: float):
    stretch = statistics._stretch_factor(count, 0.025)
    assert stretch == pytest.approx(student / 1.95996 * (count / (count - 1)) ** 0.5, rel=1e-3)


def test_the_interval_of_a_ratio_mirrors_that_of_its_divisor():
    skewed = [1.0, 1.0, 1.0, 1.1, 3.0]
    own = estimate(numpy.log(skewed), seed=1)
    below, above = own.value - own.low, own.high - own.value
    assert above > 1.5 * below  # else the test could not tell the two sides from each other
    ratio = compare_runs([1.0] * 5, skewed).ratio
    assert numpy.log(ratio.value) - numpy.log(ratio.low) == pytest.approx(above)
    assert numpy.log(ratio.high) - numpy.log(ratio.value) == pytest.approx(below)


def test_more_repeats_are_more_precise_and_narrow():
    draw = numpy.random.default_rng(1)
    values = draw.normal(10.0, 1.0, 40)
    widths = [estimate(values[:count]).width for count in (3, 10, 40)]
    assert widths == sorted(widths, reverse=True)
    assert precise(values, 0.1) and not precise(values[:3], 0.1)


def test_one_value_has_no_interval_and_none_no_value():
    assert estimate([5.0]).value == 5.0
    assert not precise([5.0], 10.0)
    assert numpy.isnan(estimate([]).value)
    assert estimate([5.0, numpy.nan]).repeats == 1


def test_the_same_seed_gives_the_same_interval():
    assert estimate([1.0, 2.0, 4.0], seed=3) == estimate([1.0, 2.0, 4.0], seed=3)
    assert estimate([0.001, 0.1], least=0.0).low == 0.0


def test_identical_systems_do_not_differ_more_often_than_is_claimed():
    draw = numpy.random.default_rng(7)
    wrong = 0
    for seed in range(TIMES):
        blocks = draw.normal(10.0, 3.0, 5).clip(1)  # the machine's mood, which both share
        first, second = (blocks * draw.normal(1.0, 0.02, 5) for _ in range(2))
        wrong += compare(dict(enumerate(first)), dict(enumerate(second)), seed).differs
    assert wrong / TIMES <= 1 - LEAST_HITS


def test_pairs_show_what_the_moods_of_the_machine_hide():
    draw = numpy.random.default_rng(7)
    blocks = draw.normal(10.0, 3.0, 6).clip(1)
    first = blocks * draw.normal(1.1, 0.01, 6)
    second = blocks * draw.normal(1.0, 0.01, 6)
    found = compare(dict(enumerate(first)), dict(enumerate(second)))
    assert found.differs and found.ratio.low < 1.1 < found.ratio.high
    assert not compare_runs(first, second).differs
    assert "1.1" in str(found)


def test_one_pair_says_nothing_and_two_do():
    assert str(compare({0: 10.0}, {0: 5.0})) == "2 times, from one pair: not enough to compare"
    two = compare({0: 10.0, 1: 10.0}, {0: 5.0, 1: 5.0})
    assert str(two) == "2 times (2 to 2)"
    same = compare({0: 5.0, 1: 5.0}, {0: 5.0, 1: 5.0})
    assert str(same) == "1 times (1 to 1): no difference shown"


@pytest.mark.parametrize(
    ("low", "high", "differs"),
    [(0.1, 1, True), (-1, -0.1, True), (0, 1, False), (-1, 0, False), (-1, 1, False)],
)
def test_an_interval_that_holds_one_shows_no_difference(low: float, high: float, differs: bool):
    assert statistics._comparison_from_logs(Estimate(0.1, low, high, 3)).differs == differs


def test_the_width_is_relative_to_the_size_of_the_value():
    assert Estimate(4.0, 3.0, 5.0, 3).width == 0.5
    assert Estimate(-4.0, -5.0, -3.0, 3).width == 0.5
    assert Estimate(0.0, -1.0, 1.0, 3).width == numpy.inf
    assert Estimate(4.0, numpy.nan, numpy.nan, 1).width == numpy.inf
    assert Estimate(0.5, 0.25, 0.5, 3).width == 0.5
    width = estimate([1.0, 2.0, 3.0]).width
    assert precise([1.0, 2.0, 3.0], width) and not precise([1.0, 2.0, 3.0], width * 0.999)


def test_an_interval_is_the_stretched_one_of_ten_thousand_samples():
    values = numpy.array([1.0, 2.0, 4.0, 9.0])
    assert (LEVEL, statistics.RESAMPLES) == (0.95, 10_000)
    picked = numpy.random.default_rng(5).integers(4, size=(10_000, 4))
    ends = numpy.quantile(values[picked].mean(axis=1), [0.025, 0.975])
    stretch = 3.182446 / 1.959964 * (4 / 3) ** 0.5  # Student's t of 3 degrees of freedom
    found = estimate(values, seed=5)
    assert (found.low, found.high) == pytest.approx(tuple(4 + (ends - 4) * stretch), rel=1e-6)
    assert (found.value, found.repeats) == (4.0, 4)
    irregular = numpy.random.default_rng(1).exponential(1.0, 9)
    assert estimate(irregular, seed=6) != estimate(irregular, seed=5)
    assert estimate(irregular) == estimate(irregular, seed=0)
    assert compare_runs(irregular, irregular) == compare_runs(irregular, irregular, seed=0)
    numbered, ones = dict(enumerate(irregular)), dict.fromkeys(range(9), 1.0)
    assert compare(numbered, ones) == compare(numbered, ones, seed=0)
    assert compare(numbered, ones) != compare(numbered, ones, seed=1)
    width = estimate(irregular, seed=0).width
    assert precise(irregular, width) and not precise(irregular, width * 0.9999)
    assert estimate([]).repeats == 0


def test_values_that_are_missing_or_not_above_0_do_not_count():
    found = compare({0: 0.0, 1: 4.0, 2: 4.0, 3: -1.0}, {0: 1.0, 1: 1.0, 2: 0.0, 3: -1.0})
    assert (found.ratio.value, found.ratio.repeats) == (4.0, 1)
    found = compare({0: 0.5, 1: 0.5}, {0: 0.25, 1: 0.25})
    assert (found.ratio.value, found.ratio.repeats) == (pytest.approx(2.0), 2)
    runs = compare_runs([0.5, 0.5, 0.5, 0.0], [0.25, numpy.nan, 0.25, -1.0])
    assert (runs.ratio.value, runs.ratio.repeats) == (pytest.approx(2.0), 2)
    assert paired([3, 4], [0.5, numpy.inf]) == {3: 0.5}


def test_both_runs_of_a_comparison_have_a_draw_of_their_own():
    values = numpy.geomspace(1, 90, 9)
    first, second = (estimate(numpy.log(values), seed=seed) for seed in (7, 8))
    logs = numpy.log(compare_runs(values, values, seed=7).ratio[1:3])
    assert logs[0] == pytest.approx(
        -numpy.hypot(first.value - first.low, second.high - second.value)
    )
    assert logs[1] == pytest.approx(
        numpy.hypot(first.high - first.value, second.value - second.low)
    )


def test_fairness_and_spread_of_nothing_are_missing():
    assert numpy.isnan([jain([]), jain([0.0, 0.0]), spread([]), spread([1.0, -1.0])]).all()
    assert jain([1.0, 3.0]) == pytest.approx(16 / 20)
    assert spread([1.0, 3.0, numpy.nan]) == pytest.approx(0.5)


def test_only_whole_pairs_count():
    found = compare({0: 10.0, 1: 20.0, 2: 5.0}, {0: 5.0, 1: 10.0, 7: 1.0})
    assert found.ratio.value == pytest.approx(2.0) and found.ratio.repeats == 2
    one = compare({0: 10.0}, {0: 5.0})
    assert not one.differs and "not enough to compare" in str(one)
    assert not compare({}, {}).differs
    assert paired([0, 1], [3.0, numpy.nan]) == {0: 3.0}


@given(st.lists(POSITIVE, min_size=1, max_size=20), POSITIVE)
def test_jain_and_spread_know_no_unit(values: list[float], unit: float):
    scaled = [value * unit for value in values]
    assert jain(scaled) == pytest.approx(jain(values))
    assert spread(scaled) == pytest.approx(spread(values), abs=1e-9)
    assert 1 / len(values) - 1e-9 <= jain(values) <= 1 + 1e-9
