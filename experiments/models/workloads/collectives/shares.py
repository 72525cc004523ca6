"""Shares of an uneven exchange: how much of its data each rank sends to each destination.

In a mixture of experts the gate sends more tokens to popular experts. The shares of destinations
are drawn by Zipf's law, so that the k-th most popular one has a share proportional to 1 / k^skew,
or read from a file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pillarbox.experiments.base.text import printable
from pillarbox.topos.base.errors import PillarboxError, require

MOST_SKEW = 10.0  # maximum exponent of Zipf's law
MOST_FILE_BYTES = 1 << 24  # maximum size of a file of shares
OPTIONS = ("skew", "shares")


def zipf_shares(count: int, skew: float, draw: Random) -> tuple[float, ...]:
    """Return the shares of destinations by Zipf's law, in a random order of popularity.

    >>> sorted(round(share, 3) for share in zipf_shares(3, 1.0, Random(1)))
    [0.182, 0.273, 0.545]
    """
    weights = [1 / number**skew for number in range(1, count + 1)]
    draw.shuffle(weights)
    return tuple(weight / sum(weights) for weight in weights)


def apportioned(total: int, shares: Sequence[float], least: int = 0) -> list[int]:
    """Return whole parts of a total in proportion to shares, by largest remainders.

    Each part is at least `least`.

    >>> apportioned(10, [0.55, 0.25, 0.2]), apportioned(10, [1.0, 0.0], least=2)
    ([6, 2, 2], [8, 2])
    """
    rest = total - least * len(shares)
    exact = [rest * share / sum(shares) for share in shares]
    parts = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(shares)), key=lambda at: (parts[at] - exact[at], at))
    for at in by_remainder[: rest - sum(parts)]:
        parts[at] += 1
    return [part + least for part in parts]


def drawn_or_read_shares(
    options: Mapping[str, Any], count: int, draw: Random
) -> tuple[float, ...] | None:
    """Return the shares of `count` destinations that options describe; None if all are equal.

    Raises PillarboxError if the options are wrong, or the file does not have `count` shares.
    """
    skew, file = options.get("skew", 0), options.get("shares")
    require(
        isinstance(skew, int | float) and not isinstance(skew, bool) and 0 <= skew <= MOST_SKEW,
        f"the option skew is the exponent of Zipf's law, from 0 to {MOST_SKEW:g}, not {skew!r}",
    )
    require(file is None or not skew, "the options skew and shares exclude each other: omit one")
    if file is not None:
        return _shares_of_file(Path(str(file)), count)
    return zipf_shares(count, skew, draw) if skew else None


def _shares_of_file(file: Path, count: int) -> tuple[float, ...]:
    """Return the shares in a JSON file: a list of `count` numbers, whose sum need not be 1."""
    name = printable(str(file))
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise PillarboxError(f"{name} cannot be read: {error.strerror}") from None
    try:
        found = json.loads(content) if len(content) <= MOST_FILE_BYTES else None
    except (ValueError, RecursionError):
        found = None
    right = isinstance(found, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one < math.inf
        for one in found
    )
    require(right, f"{name} has no shares: write a JSON list of numbers, such as [3, 1, 1, 1]")
    assert isinstance(found, list)
    require(
        len(found) == count,
        f"{name} has {len(found)} shares, and there are {count} destinations",
    )
    total = math.fsum(found)
    require(0 < total < math.inf, f"the shares in {name} have the sum {total}: it must be above 0")
    return tuple(one / total for one in found)
