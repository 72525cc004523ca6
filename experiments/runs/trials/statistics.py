"""Statistics of few and noisy repeats: confidence intervals, stopping rule, and comparisons.

All functions are pure; random draws are seeded.

The intervals are bootstrap intervals (Efron 1979), stretched for few values. A percentile bootstrap
of three values has only these three and is too narrow: it contains the mean in some 75 % of all
cases where it claims 95 %. Its distance from the mean is therefore multiplied by the quotient of
the quantiles of Student's t and the normal distribution, and by sqrt(n / (n-1)), because resampling
divides by n (Hesterberg, "What teachers should know about the bootstrap", 2015, section 3.2).

Two systems are compared by the ratios within blocks of interleaved trials, never by two intervals
from separate runs: those "prove" differences of up to 38 % between identical systems (Abedi and
Brecht, ICPE 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95  # Confidence level of the confidence intervals of results.
RESAMPLES = 10_000  # Number of bootstrap resamples.


class Estimate(NamedTuple):
    """A mean over trials and its confidence interval (NaN for fewer than two values)."""

    value: float
    low: float
    high: float
    repeats: int

    @property
    def width(self) -> float:
        """Width of the confidence interval relative to the value; infinite without interval."""
        if not self.value or not numpy.isfinite(self.low):
            return float("inf")
        return float((self.high - self.low) / abs(self.value))


class Comparison(NamedTuple):
    """Ratio of one system's results to another's, over pairs of trials of the same block."""

    ratio: Estimate
    differs: bool  # True if the confidence interval of the ratio excludes 1.

    def __str__(self) -> str:
        if self.ratio.repeats < 2:
            return f"{self.ratio.value:.3g} times, from one pair: not enough to compare"
        doubt = "" if self.differs else ": no difference shown"
        low, high = self.ratio.low, self.ratio.high
        return f"{self.ratio.value:.3g} times ({low:.3g} to {high:.3g}){doubt}"


def estimate(
    values: ArrayLike,  # One value for each repeat; values that are not finite are ignored.
    *,
    least: float = -numpy.inf,  # Lower bound of the true mean, such as 0 for a time.
    seed: int = 0,  # Seed of the bootstrap resampling.
) -> Estimate:
    """Return the mean of trials' values with its bootstrap confidence interval.

    >>> estimate([10.0, 11.0, 9.0, 10.0, 10.0]).value
    10.0
    """
    array = _finite_values(values)
    if len(array) == 0:
        return Estimate(numpy.nan, numpy.nan, numpy.nan, 0)
    value = float(array.mean())
    if len(array) == 1:
        return Estimate(value, numpy.nan, numpy.nan, 1)
    draw = numpy.random.default_rng(seed)
    picked = array[draw.integers(len(array), size=(RESAMPLES, len(array)))]
    tail = (1 - LEVEL) / 2
    ends = numpy.quantile(picked.mean(axis=1), [tail, 1 - tail])
    low, high = value + (ends - value) * _stretch_factor(len(array), tail)
    return Estimate(value, max(float(low), least), float(high), len(array))


def precise(values: ArrayLike, precision: float, seed: int = 0) -> bool:
    """Return True if the confidence interval, relative to the mean, is at most `precision` wide."""
    return estimate(values, seed=seed).width <= precision


def compare(first: Mapping[int, float], second: Mapping[int, float], seed: int = 0) -> Comparison:
    """Return the ratio of the first system's results to the second's, over common repeats.

    Parameters
    ----------
    first, second : mapping
        Values by repeat; repeats of one system only, and values up to 0, are ignored.
    """
    pairs = [
        (first[repeat], second[repeat])
        for repeat in sorted(first.keys() & second.keys())
        if first[repeat] > 0 and second[repeat] > 0
    ]
    ratios = numpy.log([a / b for a, b in pairs])
    found = estimate(ratios, seed=seed)
    return _comparison_from_logs(found)


def compare_runs(first: ArrayLike, second: ArrayLike, seed: int = 0) -> Comparison:
    """Return the ratio of the means of two runs that ran at different times.

    The confidence interval covers chance within the runs, not changes between them.
    """
    a, b = (
        estimate(_finite_logs(values), seed=seed + n) for n, values in enumerate((first, second))
    )
    middle = a.value - b.value
    down = numpy.hypot(a.value - a.low, b.high - b.value)
    up = numpy.hypot(a.high - a.value, b.value - b.low)
    fewest = min(a.repeats, b.repeats)
    return _comparison_from_logs(Estimate(middle, float(middle - down), float(middle + up), fewest))


def _comparison_from_logs(logs: Estimate) -> Comparison:
    value, low, high = (float(numpy.exp(end)) for end in (logs.value, logs.low, logs.high))
    return Comparison(Estimate(value, low, high, logs.repeats), logs.low > 0 or logs.high < 0)


def jain(values: ArrayLike) -> float:
    """Return Jain's fairness index: 1 for n equal values, 1/n if all values except one are 0.

    >>> jain([1, 1, 1, 1]), jain([1, 0, 0, 0])
    (1.0, 0.25)
    """
    array = _finite_values(values)
    squares = float(numpy.sum(array**2)) * len(array)
    return float(numpy.sum(array)) ** 2 / squares if squares else numpy.nan


def spread(values: ArrayLike) -> float:
    """Return the coefficient of variation: the standard deviation relative to the mean.

    >>> spread([9.0, 11.0])
    0.1
    """
    array = _finite_values(values)
    mean = float(array.mean()) if len(array) else 0.0
    return float(array.std()) / mean if mean else numpy.nan


def _stretch_factor(count: int, tail: float) -> float:
    """Return the factor by which the percentile bootstrap is stretched for `count` values."""
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(count - 1, tail) / ndtri(tail) * numpy.sqrt(count / (count - 1)))


def _finite_values(values: ArrayLike) -> NDArray[numpy.float64]:
    array = numpy.asarray(values, dtype=numpy.float64)
    return array[numpy.isfinite(array)]


def _finite_logs(values: ArrayLike) -> NDArray[numpy.float64]:
    array = _finite_values(values)
    return numpy.log(array[array > 0])


def paired(repeats: Sequence[int], values: Sequence[float]) -> dict[int, float]:
    """Return trials' values by repeat number, without missing (NaN) and infinite values."""
    return {
        int(repeat): float(value)
        for repeat, value in zip(repeats, values, strict=True)
        if numpy.isfinite(value)
    }
