"""A paper's table that `pillarbox compare --tables` checks, as a figure made again."""

from __future__ import annotations

from experiments.analysis.comparison.papers import Check, Table
from experiments.reporting.reproduced.result import AGREES, DIFFERS, Point, Reproduction

EQUALS = " = "  # between a formula in print and its value


def printed(name: str, table: Table) -> Reproduction:
    """Return the table, each printed value beside ours."""
    differing = [check for check in table.checks if check.agrees is False]
    unchecked = [check.what for check in table.checks if check.agrees is None]
    notes = [f"Printed: {table.citation}."]
    if unchecked:
        notes.append(f"Not checked: {', '.join(unchecked)}.")
    return Reproduction(
        name=name,
        title=table.title,
        x_label="value",
        y_label="",
        points=tuple(map(_point, table.checks)),
        verdict=DIFFERS if differing else AGREES,
        reasons=tuple(map(_reason, differing)),
        notes=tuple(notes),
        kind="table",
    )


def _point(check: Check) -> Point:
    """Return a row.

    >>> _point(Check("bcube,4,1 servers", "n^(l+1) = 16", 16, True))
    Point(series='bcube,4,1', x='servers, n^(l+1)', ours=16, paper=16.0, ...)
    """
    series, _, what = check.what.partition(": " if ": " in check.what else " ")
    formula, _, value = check.printed.rpartition(EQUALS)
    x = f"{what}, {formula}" if formula else what
    try:
        paper = float(value.replace(",", ""))
    except ValueError:  # an order of magnitude, which has no value
        return Point(series, f"{what}, {check.printed}", check.ours)
    return Point(series, x, check.ours, paper)


def _reason(check: Check) -> str:
    why = f": {check.reason}" if check.reason else ""
    return f"{check.what}: ours is {check.ours:g}, in print {check.printed}{why}."
