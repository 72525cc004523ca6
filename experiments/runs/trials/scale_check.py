"""Scale check: whether a dilated lab's results depend on its dilation.

The same system runs with two dilations, such as 10 and 20. All results are in the network's own
time, so they agree if everything that has a time in it was scaled. A constant that the kernel does
not let change, and the time that the processors take, are not scaled: results that depend on them
differ.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pillarbox.experiments.runs.trials.statistics import Comparison, Estimate

# Largest difference of results that are called free of scale, and the least number of pairs of
# trials for a decision.
TOLERANCE, LEAST_PAIRS = 0.10, 3


class ScaleComparison(NamedTuple):
    """A result at the larger dilation relative to the result at the smaller one."""

    title: str
    ratio: Estimate

    @property
    def difference(self) -> float:
        """Relative difference of the two means, at least 0.

        >>> ScaleComparison("goodput", Estimate(0.8, 0.7, 0.9, 3)).difference
        0.25
        """
        return math.exp(abs(math.log(self.ratio.value))) - 1

    @property
    def differs(self) -> bool:
        """True if the confidence interval excludes all differences up to the tolerance."""
        return self.ratio.low > 1 + TOLERANCE or self.ratio.high < 1 / (1 + TOLERANCE)

    @property
    def within(self) -> bool:
        """True if the confidence interval has only differences up to the tolerance."""
        return self.ratio.low >= 1 / (1 + TOLERANCE) and self.ratio.high <= 1 + TOLERANCE

    def __str__(self) -> str:
        value, low, high = self.ratio[:3]
        return f"{self.title} {value:.3f} times ({low:.3f}-{high:.3f})"


def scale_comparisons(found: Mapping[str, Comparison]) -> list[ScaleComparison]:
    """Return the comparisons of results, by title, that have enough pairs of trials."""
    return [
        ScaleComparison(title, one.ratio)
        for title, one in found.items()
        if one.ratio.repeats >= LEAST_PAIRS
    ]


def dilated_pairs(
    systems: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]] = ()
) -> Iterator[tuple[int, int]]:
    """Yield index pairs of an experiment's systems that differ only in dilation and label.

    The first of a pair has the smaller dilation; systems with different faults do not form a pair.

    >>> systems = [{"network": "bcube,2,1", "dilation": k, "label": f"at {k}"} for k in (20, 10, 1)]
    >>> [*dilated_pairs(systems)]
    [(2, 1), (1, 0)]
    """
    alike: dict[str, list[int]] = {}
    for place, system in enumerate(systems):
        spared = [bool(f.get("systems")) and system["label"] not in f["systems"] for f in faults]
        key = json.dumps([{**system, "label": "", "dilation": 1}, spared], sort_keys=True)
        alike.setdefault(key, []).append(place)
    for places in alike.values():
        ordered = sorted(places, key=lambda place: float(systems[place].get("dilation", 1)))
        for first, second in pairwise(ordered):
            if systems[first].get("dilation", 1) != systems[second].get("dilation", 1):
                yield first, second


def scale_sentence(name: str, dilations: tuple[float, float], found: list[ScaleComparison]) -> str:
    """Return the result of a scale check as a sentence.

    Parameters
    ----------
    name : str
        Name of the system.
    dilations : tuple of float
        The smaller and the larger dilation.
    found : list of ScaleComparison
        Compared results of valid trials, at least one.
    """
    both = f"{name}, {dilations[0]:.3g} and {dilations[1]:.3g} times slower"
    figures = ", ".join(map(str, found))
    if differing := [one.title for one in found if one.differs]:
        return f"{both}: {' and '.join(differing)} not free of scale: {figures}"
    if wide := [one.title for one in found if not one.within]:
        return (
            f"{both}: not decided for {' and '.join(wide)}, whose interval exceeds "
            f"{TOLERANCE:.0%}: {figures}; use more --repeats"
        ).replace("%:", " %:")
    percent = max(max(one.ratio.high, 1 / one.ratio.low) - 1 for one in found) * 100
    return f"{both}: free of scale within {max(1, math.ceil(percent - 1e-9))} %: {figures}"


def undecided_sentence(names: Sequence[str]) -> str:
    """Return a sentence about the systems that have too few pairs of valid trials."""
    return (
        "not decided whether results are free of scale, because there are fewer than "
        f"{LEAST_PAIRS} pairs of valid trials (use more --repeats): systems {'; '.join(names)}"
    )
