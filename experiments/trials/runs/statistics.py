"""What few and noisy repeats allow to say: intervals, when to stop, and whether two things differ.

Pure functions of numbers. What is drawn at random is drawn with a seed.

The intervals are bootstrap intervals (Efron 1979), stretched for few values. A percentile bootstrap
of three values knows only those three and is much too sure: it holds the mean in some 75 % of all
cases where it claims 95 %. Its distance from the mean is therefore multiplied by what Student's t
asks for above the normal distribution, and by sqrt(n / (n-1)), because resampling divides by n
(Hesterberg, "What teachers should know about the bootstrap", 2015, section 3.2).

Two systems are compared by the ratios within blocks of interleaved trials, never by two intervals
from runs of their own: those "prove" differences of up to 38 % between identical systems (Abedi and
Brecht, ICPE 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
RESAMPLES = 10_000


class Estimate(NamedTuple):
    """A value and its confidence interval; one of fewer than two values has none (nan)."""

    value: float
    low: float
    high: float
    repeats: int

    @property
    def width(self) -> float:
        """Width of the interval, relative to the value; infinite where there is none."""
        if not self.value or not numpy.isfinite(self.low):
            return float("inf")
        return float((self.high - self.low) / abs(self.value))


class Comparison(NamedTuple):
    """How many times one system is another, by pairs of trials of the same block."""

    ratio: Estimate
    differs: bool  # the interval does not hold 1

    def __str__(self) -> str:
        if self.ratio.repeats < 2:
            return f"{self.ratio.value:.3g} times, of one pair: nothing follows from it"
        what = "" if self.differs else ": no difference shown"
        return f"{self.ratio.value:.3g} times ({self.ratio.low:.3g} to {self.ratio.high:.3g}){what}"


def estimate(
    values: ArrayLike,  # one of each repeat; what is not finite does not count
    *,
    least: float = -numpy.inf,  # what the true value cannot be below, such as 0 for a time
    seed: int = 0,  # of what is drawn
) -> Estimate:
    """Return the mean of the values with its confidence interval.

    >>> estimate([10.0, 11.0, 9.0, 10.0, 10.0]).value
    10.0
    """
    array = _finite(values)
    if len(array) == 0:
        return Estimate(numpy.nan, numpy.nan, numpy.nan, 0)
    value = float(array.mean())
    if len(array) == 1:
        return Estimate(value, numpy.nan, numpy.nan, 1)
    draw = numpy.random.default_rng(seed)
    picked = array[draw.integers(len(array), size=(RESAMPLES, len(array)))]
    tail = (1 - LEVEL) / 2
    ends = numpy.quantile(picked.mean(axis=1), [tail, 1 - tail])
    low, high = value + (ends - value) * _stretch(len(array), tail)
    return Estimate(value, max(float(low), least), float(high), len(array))


def precise(values: ArrayLike, precision: float, seed: int = 0) -> bool:
    """Tell whether the mean's confidence interval is that narrow, relative to the mean."""
    return estimate(values, seed=seed).width <= precision


def compare(first: Mapping[int, float], second: Mapping[int, float], seed: int = 0) -> Comparison:
    """Return how many times the first system is the second, by the repeats that both have.

    Parameters
    ----------
    first, second : mapping
        The values by repeat; a repeat in one alone, or not above 0, does not count.
    """
    pairs = [
        (first[repeat], second[repeat])
        for repeat in sorted(first.keys() & second.keys())
        if first[repeat] > 0 and second[repeat] > 0
    ]
    ratios = numpy.log([a / b for a, b in pairs])
    found = estimate(ratios, seed=seed)
    return _from_logs(found)


def compare_runs(first: ArrayLike, second: ArrayLike, seed: int = 0) -> Comparison:
    """Return how many times the mean of one run is another's, which ran at another time.

    Its interval covers chance within the runs, and nothing that changed between them.
    """
    a, b = (estimate(_logs(values), seed=seed + n) for n, values in enumerate((first, second)))
    middle = a.value - b.value
    down = numpy.hypot(a.value - a.low, b.high - b.value)
    up = numpy.hypot(a.high - a.value, b.value - b.low)
    fewest = min(a.repeats, b.repeats)
    return _from_logs(Estimate(middle, float(middle - down), float(middle + up), fewest))


def _from_logs(logs: Estimate) -> Comparison:
    value, low, high = (float(numpy.exp(end)) for end in (logs.value, logs.low, logs.high))
    return Comparison(Estimate(value, low, high, logs.repeats), logs.low > 0 or logs.high < 0)


def jain(values: ArrayLike) -> float:
    """Return Jain's fairness index: 1 for equal shares, 1/n where one has all.

    >>> jain([1, 1, 1, 1]), jain([1, 0, 0, 0])
    (1.0, 0.25)
    """
    array = _finite(values)
    squares = float(numpy.sum(array**2)) * len(array)
    return float(numpy.sum(array)) ** 2 / squares if squares else numpy.nan


def spread(values: ArrayLike) -> float:
    """Return the standard deviation, relative to the mean.

    >>> spread([9.0, 11.0])
    0.1
    """
    array = _finite(values)
    mean = float(array.mean()) if len(array) else 0.0
    return float(array.std()) / mean if mean else numpy.nan


def _stretch(count: int, tail: float) -> float:
    """Return how much wider an interval of so few values is than the percentile bootstrap's."""
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(count - 1, tail) / ndtri(tail) * numpy.sqrt(count / (count - 1)))


def _finite(values: ArrayLike) -> NDArray[numpy.float64]:
    array = numpy.asarray(values, dtype=numpy.float64)
    return array[numpy.isfinite(array)]


def _logs(values: ArrayLike) -> NDArray[numpy.float64]:
    array = _finite(values)
    return numpy.log(array[array > 0])


def paired(repeats: Sequence[int], values: Sequence[float]) -> dict[int, float]:
    """Return the values by repeat, without those that are missing."""
    return {
        int(repeat): float(value)
        for repeat, value in zip(repeats, values, strict=True)
        if numpy.isfinite(value)
    }
