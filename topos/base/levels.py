"""Options of every spec that give each level of cables a rate, delay and price of its own.

``bcube,4,1,rates=9:1`` has cables of level 0 with 9 times the rate of the cables of level 1. The
factors are whole numbers, level 0 first, and multiply the rate, delay or price of a cable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from pillarbox.topos.base.errors import require

RATES, DELAYS, PRICES = "rates", "delays", "prices"
OPTIONS = (RATES, DELAYS, PRICES)
MOST_FACTOR = 1_000_000  # largest factor of a level


class LevelFactors(NamedTuple):
    """Factors of the rate, delay and price of cables by level; empty: all levels are equal."""

    rates: tuple[int, ...] = ()
    delays: tuple[int, ...] = ()
    prices: tuple[int, ...] = ()

    @property
    def words(self) -> list[str]:
        """Options of a spec that give these factors, such as ``rates=9:1``."""
        return [
            f"{name}={':'.join(map(str, factors))}"
            for name, factors in zip(OPTIONS, self, strict=True)
            if factors
        ]


def parse_factors(option: str, value: str, spec: str) -> tuple[int, ...]:
    """Return the factors of an option such as ``rates=9:1``, or raise PillarboxError."""
    words = value.split(":")
    for word in words:
        # The length is checked first: int() of a megabyte of digits takes minutes.
        require(
            word.isascii() and word.isdecimal() and len(word) <= 18
            and 1 <= int(word) <= MOST_FACTOR,
            f"network {spec!r}: {word!r} in {option}= is not a whole number from 1 to "
            f"{MOST_FACTOR}; write one factor per level of cables, level 0 first, such as "
            f"{option}=9:1",
        )  # fmt: skip
    return tuple(map(int, words))


def network_with_rates(spec: str, rates_mbit: Sequence[float]) -> tuple[str, float]:
    """Return the spec and rate in Mbit/s of a network whose levels of cables have these rates.

    >>> network_with_rates("bcube,4,1", [180, 20])
    ('bcube,4,1,rates=9:1', 20.0)
    >>> network_with_rates("bcube,4,1", [2.5, 1])
    ('bcube,4,1,rates=5:2', 0.5)
    """
    require(
        len(rates_mbit) > 0 and all(0 < rate < math.inf for rate in rates_mbit),
        f"rates_mbit has the rate of each level in Mbit/s, level 0 first, such as [180, 20], not "
        f"{list(rates_mbit)}",
    )
    exact = [Fraction(str(rate)) for rate in rates_mbit]
    scale = math.lcm(*(rate.denominator for rate in exact))
    whole = [int(rate * scale) for rate in exact]
    unit = math.gcd(*whole)
    factors = ":".join(str(rate // unit) for rate in whole)
    return f"{spec},{RATES}={factors}", float(Fraction(unit, scale))
