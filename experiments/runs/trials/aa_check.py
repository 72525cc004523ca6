"""A/A check: a system measured twice under two labels must not differ from itself.

A comparison method that finds differences between identical systems cannot be trusted. So the
runner and the statistics that compare two systems are applied to an experiment that has the same
system twice, under two labels, such as `pillarbox run a-a`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trials.statistics import Comparison

LEAST_PAIRS = 5  # Least number of pairs of valid trials for an A/A check.


def same_twice(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    """Return the A/A comparison of a system with itself; `differs` means the method is wrong.

    By chance 1 check in 20 finds a difference: the confidence interval is of 95 %.

    Parameters
    ----------
    first, second : mapping
        Results of the trials under either label (goodput or completion time), by repeat: trials of
        the same repeat ran in the same block, interleaved in random order.

    Examples
    --------
    >>> first = dict(enumerate([10.0, 10.2, 9.9, 10.1, 10.0]))
    >>> same_twice(first, dict(enumerate([10.1, 10.0, 10.0, 10.0, 10.1]))).differs
    False
    >>> same_twice(first, dict(enumerate([11.1, 11.0, 11.0, 11.2, 11.1]))).differs
    True
    """
    from pillarbox.experiments.runs.trials.statistics import compare

    pairs = len(first.keys() & second.keys())
    require(
        pairs >= LEAST_PAIRS,
        f"an A/A check needs {LEAST_PAIRS} pairs of valid trials, and the run has {pairs}",
    )
    return compare(first, second)


def identical_system_pairs(
    systems: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]] = ()
) -> Iterator[tuple[int, int]]:
    """Yield index pairs of an experiment's systems that are identical except for their labels.

    Parameters
    ----------
    systems, faults : sequence of mapping
        Systems and faults of a plan. Systems with different faults are different.

    >>> systems = [{"network": "bcube,2,1", "label": label} for label in "AB"]
    >>> [*identical_system_pairs(systems)]
    [(0, 1)]
    """
    seen: dict[str, int] = {}
    for place, system in enumerate(systems):
        spared = [bool(f.get("systems")) and system["label"] not in f["systems"] for f in faults]
        key = json.dumps([{**system, "label": ""}, spared], sort_keys=True)
        first = seen.setdefault(key, place)
        if first != place:
            yield first, place


def aa_check_sentence(
    first: str,  # First label of the system compared with itself.
    second: str,  # Second label of the system compared with itself.
    values: Sequence[Mapping[int, float]],  # Results under each label, as for `same_twice`.
) -> str:
    """Return the result of an A/A check (a system compared with itself) as a sentence."""
    one = f"{first} and {second} are the same system"
    try:
        found = same_twice(*values)
    except PillarboxError as error:
        return f"{one}; {error}"
    if not found.differs:
        return f"{one}, and no difference is found between them, as expected"
    return (
        f"{one}, but a difference is found. By chance that happens once in 20 times; if it "
        "happens again, something favours one of the two, and comparisons on this machine are wrong"
    )
