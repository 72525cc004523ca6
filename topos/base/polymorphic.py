"""Arithmetic that is written once and answers for one server or for an array of servers.

Python's ``+ - * // %`` and comparisons already mean the same for an ``int`` and for a numpy
array; only a choice between two values does not. `select` is that choice. numpy is imported only
when an array is at hand, so that a forwarder, which asks about single servers, never loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    IntArray: TypeAlias = NDArray[numpy.signedinteger[Any]]

# A number, or an array of numbers: functions typed with it take and return either.
Number = TypeVar("Number", int, "IntArray")

# The answer of the wiring functions where no cable is plugged in.
NOTHING = -1


def select(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition holds and `no` elsewhere.

    >>> select(3 > 2, 10, 20)
    10
    """
    if isinstance(condition, bool):
        return yes if condition else no
    import numpy

    return numpy.where(condition, yes, no)


def remove_digit(number: Any, weight: Any, base: int) -> tuple[Any, Any]:
    """Return the number without the digit of that weight (those above move down), and the digit.

    >>> remove_digit(4321, weight=10, base=10)
    (431, 2)
    """
    # Remainders by multiplication: numpy divides an array by a number fast, but not its %.
    from_digit = number // weight
    above = from_digit // base
    return above * weight + (number - from_digit * weight), from_digit - above * base


def insert_digit(number: Any, weight: Any, base: int, digit: Any) -> Any:
    """Return the number with one more digit put in at that weight (the digits above move up).

    >>> insert_digit(431, weight=10, base=10, digit=2)
    4321
    """
    return number // weight * (weight * base) + digit * weight + number % weight
