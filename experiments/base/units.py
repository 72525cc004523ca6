"""Formatting of numbers: three significant figures and a unit."""

from __future__ import annotations

import math
import re

from pillarbox.topos.base.errors import require

PREFIXES = ("", "k", "M", "G", "T", "P")
MOST_FIGURES = 6
MISSING = "–"


def three_figures(value: float) -> str:
    """Return a number as text with three significant figures and no exponent.

    >>> three_figures(0.98765), three_figures(12.345), three_figures(1234.5)
    ('0.988', '12.3', '1234')
    """
    return with_figures(value, 3)


def with_figures(value: float, figures: int) -> str:
    """Return a number as text with `figures` significant figures and no exponent.

    >>> with_figures(12.4567, 4)
    '12.46'
    """
    if not known(value):
        return MISSING
    if value == 0:
        return "0"
    decimals = max(0, min(6, figures - 1 - math.floor(math.log10(abs(value)))))
    return f"{value:.{decimals}f}"


def figures_apart(first: float, second: float, least: int = 3) -> int:
    """Return the number of significant figures that distinguish two numbers, at least `least`.

    >>> figures_apart(11.287, 11.312), figures_apart(11.2961, 11.2964), figures_apart(2.0, 2.0)
    (4, 6, 6)
    """
    enough = (n for n in range(least, MOST_FIGURES) if f"{first:.{n}g}" != f"{second:.{n}g}")
    return next(enough, MOST_FIGURES)


def with_prefix(value: float, unit: str, step: float = 1000.0) -> str:
    """Return a value as text with a unit prefix and at most four digits before the point.

    >>> with_prefix(1_480_000_000, "bit/s"), with_prefix(999.9, "B")
    ('1.48 Gbit/s', '1000 B')
    """
    power = 0
    while abs(value) >= step and power < len(PREFIXES) - 1:
        value, power = value / step, power + 1
    return f"{three_figures(value)} {PREFIXES[power]}{unit}"


def known(value: object) -> bool:
    """Return True for a finite number; missing values of records are None, NaN or pandas' NA."""
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except TypeError:
        return False


def rate(bps: float | None) -> str:
    """Return a rate in bit/s as text with a unit prefix."""
    return with_prefix(float(bps), "bit/s") if bps is not None and known(bps) else MISSING


def parsed_rate_mbit(text: str) -> float:
    """Return a rate in Mbit/s from its text form: a number and Mbit or Gbit.

    >>> parsed_rate_mbit("10Gbit"), parsed_rate_mbit("400 Mbit")
    (10000.0, 400.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([MG])bit(?:/s)?", text.strip())
    value = float(found[1]) * {"M": 1.0, "G": 1000.0}[found[2]] if found else 0.0
    require(value > 0, f"{text!r} is not a rate: write a number and its unit, such as 10Gbit")
    return value


def size(count: float | None) -> str:
    """Return a number of bytes as text with a unit prefix."""
    return with_prefix(float(count), "B") if count is not None and known(count) else MISSING


def time(seconds: float | None) -> str:
    """Return a duration in seconds as text, in s or ms.

    >>> time(0.0042), time(3.14159), time(None), time(0.9997)
    ('4.2 ms', '3.14 s', '–', '1.00 s')
    """
    if seconds is None or not known(seconds):
        return MISSING
    seconds = float(seconds)
    if abs(seconds) < 1:
        seconds = float(f"{seconds:.3g}")
    if abs(seconds) >= 1 or seconds == 0:
        return f"{three_figures(seconds)} s"
    return f"{seconds * 1000:.3g} ms"


def share(value: float | None) -> str:
    """Return a ratio as text in percent, or a dash if it is unknown."""
    return (
        f"{float(value):.1%}".replace("%", " %") if value is not None and known(value) else MISSING
    )


def plain(value: float | None, figures: int = 3) -> str:
    """Return an integer or decimal number as text; empty if the number is missing.

    >>> plain(14047), plain(0.4837), plain(2.0), plain(None)
    ('14047', '0.484', '2', '')
    """
    if value is None or not known(value):
        return ""
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{value:.0f}"
    return with_figures(value, figures) if 1e-4 <= abs(value) < 1e9 else f"{value:.{figures}g}"
