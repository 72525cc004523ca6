"""The A/A check: one system, measured twice under two labels, must not differ from itself.

A method of comparison that finds a difference where there is none finds them anywhere. So the very
runner and statistics that compare two systems are given one system as both: an experiment in which
a system stands twice, under two labels, such as `pillarbox run a-a`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from experiments.trials.runs.statistics import Comparison

LEAST_PAIRS = 5


def same_twice(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    """Return how a system compares with itself; `differs` says that the method is at fault.

    By chance alone 1 check in 20 says so: the interval is of 95 %.

    Parameters
    ----------
    first, second : mapping
        What the trials under either label gave (goodput, completion time), by repeat: those of the
        same repeat ran in the same block, interleaved in random order.

    Examples
    --------
    >>> first = dict(enumerate([10.0, 10.2, 9.9, 10.1, 10.0]))
    >>> same_twice(first, dict(enumerate([10.1, 10.0, 10.0, 10.0, 10.1]))).differs
    False
    >>> same_twice(first, dict(enumerate([11.1, 11.0, 11.0, 11.2, 11.1]))).differs
    True
    """
    from experiments.trials.runs.statistics import compare

    pairs = len(first.keys() & second.keys())
    require(
        pairs >= LEAST_PAIRS,
        f"an A/A check takes {LEAST_PAIRS} pairs of valid trials, and there are {pairs}",
    )
    return compare(first, second)


def twins(
    systems: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]] = ()
) -> Iterator[tuple[int, int]]:
    """Yield the places of systems that are the same but for their label.

    Parameters
    ----------
    systems, faults : sequence of mapping
        As a plan has them. What a fault strikes is not what it spares.

    >>> [*twins([{"network": "bcube,2,1", "label": "A"}, {"network": "bcube,2,1", "label": "B"}])]
    [(0, 1)]
    """
    seen: dict[str, int] = {}
    for place, system in enumerate(systems):
        spared = [bool(f.get("systems")) and system["label"] not in f["systems"] for f in faults]
        key = json.dumps([{**system, "label": ""}, spared], sort_keys=True)
        first = seen.setdefault(key, place)
        if first != place:
            yield first, place


def in_words(
    first: str,  # its two labels
    second: str,
    values: Sequence[Mapping[int, float]],  # what its trials gave under either, as for `same_twice`
) -> str:
    """Return in words what comes of comparing a system with itself."""
    one = f"{first} and {second} are the same system"
    try:
        found = same_twice(*values)
    except PillarboxError as error:
        return f"{one}; {error}"
    if not found.differs:
        return f"{one}, and no difference is found between them, as it should be"
    return (
        f"{one}, and yet a difference is found. By chance that happens once in 20 times; if it "
        "happens again, something favours one of two trials, and no comparison made here holds"
    )
