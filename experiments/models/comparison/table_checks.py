"""Checks of values printed in a paper against values computed here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from pillarbox.experiments.base.text import listing

EQUAL, AT_MOST, AT_LEAST = "=", "<=", ">="


class Erratum(NamedTuple):
    """An error of a paper: the heading of its entry in docs/errata.md, and the derived value."""

    entry: str
    right: float


@dataclass(frozen=True)
class TableCheck:
    """Check of one value of a table: as printed, as computed (None: not computed), and verdict."""

    what: str
    printed: str
    ours: float | None
    agrees: bool | None
    reason: str = ""
    erratum: Erratum | None = None

    @property
    def is_erratum(self) -> bool:
        """True if the printed value is wrong and ours is the one that the erratum derives.

        >>> wires = Erratum("Wires of the fat-tree", 384)
        >>> [TableCheck("wires", "768", n, False, "", wires).is_erratum for n in (384, 400)]
        [True, False]
        """
        if self.agrees is not False or self.erratum is None or self.ours is None:
            return False
        return math.isclose(self.ours, self.erratum.right, rel_tol=1e-9)

    @property
    def mark(self) -> str:
        """Verdict of the check as text: "agree", "erratum", "differs" or "not checked"."""
        if self.is_erratum:
            return "erratum"
        return "not checked" if self.agrees is None else "agree" if self.agrees else "differs"


@dataclass(frozen=True)
class PaperTable:
    """Checks of all values of a paper's table."""

    title: str
    citation: str
    checks: list[TableCheck]


def number_check(
    what: str, printed: str, ours: float, reason: str = "", erratum: Erratum | None = None
) -> TableCheck:
    """Return the check of a printed number: ours must round, or truncate, to its digits.

    >>> number_check("power", "435", 435.84).mark, number_check("power", "4.4", 4.532).mark
    ('agree', 'differs')
    """
    plain = printed.replace(",", "")
    scale = 10 ** len(plain.partition(".")[2])
    wanted = round(float(plain) * scale)
    rounded, cut = math.floor(ours * scale + 0.5), math.floor(ours * scale + 1e-9)
    agrees = wanted in (rounded, cut)
    if agrees and wanted != rounded:
        reason = reason or "cut off in print, not rounded"
    return TableCheck(what, printed, ours, agrees, reason, erratum)


def formula_check(
    what: str,
    words: str,
    value: float | None,
    ours: float | None,
    relation: str = EQUAL,
    reason: str = "",
    erratum: Erratum | None = None,
) -> TableCheck:
    """Return the check of a printed formula, evaluated for one network.

    With a relation such as AT_MOST, our value must be at most the formula's.
    """
    if value is None:
        return TableCheck(what, words, ours, None, reason or "the paper gives only an order")
    shown = words if words == f"{value:g}" else f"{words} = {value:,.6g}"
    if ours is None:
        return TableCheck(what, shown, None, None, reason or "no exact value is known")
    close = math.isclose(ours, value, rel_tol=1e-9)
    holds = {EQUAL: close, AT_MOST: close or ours < value, AT_LEAST: close or ours > value}
    return TableCheck(what, shown, ours, holds[relation], reason, erratum)


Formula = tuple[Any, ...]  # arguments of the function `formula_check`, without the network


def formula_checks(spec: str, *rows: Formula) -> list[TableCheck]:
    """Return the checks of several printed formulas for one network."""
    return [formula_check(f"{spec} {what}", *row) for what, *row in rows]


def paper_table_as_text(table: PaperTable) -> str:
    """Return a paper's checked table as aligned text."""
    body = [("value", "in print", "ours", "", "")]
    body += [(c.what, c.printed, _number_text(c.ours), c.mark, c.reason) for c in table.checks]
    return f"{table.title} ({table.citation})\n\n{listing(body)}"


def paper_table_as_json(table: PaperTable) -> dict[str, Any]:
    """Return a paper's checked table as a JSON object."""
    names = "value", "printed", "ours", "verdict", "reason"
    checks = [
        dict(zip(names, (c.what, c.printed, c.ours, c.mark, c.reason), strict=True))
        for c in table.checks
    ]
    return {"table": table.title, "citation": table.citation, "checks": checks}


def _number_text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
