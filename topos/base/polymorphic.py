"""Arithmetic that works for one server number and for a numpy array of server numbers.

Python's ``+ - * // %`` and comparisons work alike for an ``int`` and a numpy array; a choice
between two values does not, so `select` provides it. numpy is imported only when an argument is an
array: a forwarder computes with single servers and never loads numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    IntArray: TypeAlias = NDArray[numpy.signedinteger[Any]]

# Type of node numbers: int, or numpy array of ints; functions return the type that they receive.
Number = TypeVar("Number", int, "IntArray")

# Node number that wiring functions return as the far end of a port without a cable.
NOTHING = -1


def select(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where a condition is true and `no` elsewhere, for numbers and numpy arrays.

    >>> select(3 > 2, 10, 20)
    10
    """
    if isinstance(condition, bool):
        return yes if condition else no
    import numpy

    return numpy.where(condition, yes, no)


def remove_digit(number: Any, weight: Any, base: int) -> tuple[Any, Any]:
    """Remove the digit at `weight` from a number; return the remaining number and the digit.

    >>> remove_digit(4321, weight=10, base=10)
    (431, 2)
    """
    # Remainders are computed by multiplication, since numpy's // by a scalar is fast and % is slow.
    from_digit = number // weight
    above = from_digit // base
    return above * weight + (number - from_digit * weight), from_digit - above * base


def insert_digit(number: Any, weight: Any, base: int, digit: Any) -> Any:
    """Return a number with a digit inserted at `weight`; higher digits are shifted up.

    >>> insert_digit(431, weight=10, base=10, digit=2)
    4321
    """
    return number // weight * (weight * base) + digit * weight + number % weight
