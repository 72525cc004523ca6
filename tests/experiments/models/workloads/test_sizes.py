"""Distributions of sizes: what is drawn follows the table; what is no distribution is refused."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.experiments.models.workloads.sizes import TABLES, FlowSizes, sizes_of
from pillarbox.topos.base.errors import PillarboxError

DRAWN = 50_000
# Kolmogorov's bound at 1 in 1000: the largest distance of so many drawn from their distribution.
MOST_DISTANCE = 1.95 / DRAWN**0.5


@pytest.mark.parametrize("name", [*TABLES, "5000"])
def test_what_is_drawn_passes_a_kolmogorov_smirnov_test(name: str) -> None:
    sizes = sizes_of(name)
    found = numpy.sort(sizes.draw(DRAWN, numpy.random.default_rng(7)))
    at, first = numpy.unique(found, return_index=True)
    up_to = numpy.append(first[1:], DRAWN) / DRAWN
    # FlowSizes are whole bytes, so that half a byte belongs to the one that it is rounded to.
    expected = numpy.interp(at + 0.5, *zip(*sizes.points, strict=True))
    assert numpy.abs(up_to - expected).max() < MOST_DISTANCE
    assert found[0] >= 1
    assert found[-1] <= sizes.most_bytes


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_mean_is_that_of_what_is_drawn(name: str) -> None:
    sizes = sizes_of(name)
    evenly = (numpy.arange(1_000_000) + 0.5) / 1_000_000

    class Evenly(numpy.random.Generator):
        def random(self, *_: object, **__: object) -> numpy.ndarray:  # type: ignore[override]
            return evenly

    found = sizes.draw(len(evenly), Evenly(numpy.random.PCG64(1)))
    assert found.mean() == pytest.approx(sizes.mean_bytes, rel=1e-3)


points = st.lists(st.tuples(st.floats(1, 1e9), st.floats(0, 1)), min_size=1, max_size=8).map(
    lambda some: tuple(zip(*map(sorted, zip(*some, strict=True)), strict=True))
)


@given(points)
def test_the_mean_is_within_the_sizes(drawn: tuple[tuple[float, float], ...]) -> None:
    sizes = FlowSizes("drawn", (*drawn, (drawn[-1][0], 1.0)))
    assert sizes.points[0][0] - 1e-6 <= sizes.mean_bytes <= sizes.points[-1][0] * (1 + 1e-9)


def test_a_file_is_a_distribution(tmp_path: Path) -> None:
    file = tmp_path / "mine.cdf"
    file.write_text("# bytes, share\n1000 0.5\n3000, 1.0\n")
    sizes = sizes_of(str(file))
    assert sizes.mean_bytes == 0.5 * 1000 + 0.5 * 2000
    assert sizes.points == ((1000, 0.5), (3000, 1.0))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no point"),
        ("0 0\n10 1", "1 to .* B, not 0"),
        ("10 0.5\n5 1", "neither may go down"),
        ("10 0.5\n20 0.4\n30 1", "neither may go down"),
        ("10 0.5\n20 0.9", "its last share is 0.9, not 1"),
        ("10 50\n20 100", "divide percents by 100"),
        ("10 -0.5\n20 1", "not below 0"),
        ("10 0.5 1", "line 1 of"),
        ("ten 1", "line 1 of"),
        ("10 nan\n20 1", "not below 0"),
    ],
)
def test_what_is_no_distribution_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "mine.cdf"
    file.write_text(text)
    with pytest.raises(PillarboxError, match=told):
        sizes_of(str(file))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("web-serach", "did you mean web-search"),
        ("0", "1 to .* B, not 0"),
        ("nowhere/mine.cdf", "cannot be read: No such file"),
    ],
)
def test_a_name_that_there_is_not_is_refused(name: str, told: str) -> None:
    with pytest.raises(PillarboxError, match=told):
        sizes_of(name)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_sizes_are_scaled_by_more_than_0(factor: float) -> None:
    with pytest.raises(PillarboxError, match="above 0"):
        sizes_of("cache").scaled(factor)
