"""Reproductions of the papers' tables that `pillarbox compare --papers` checks.

Most tables print formulas; each is evaluated for a small network or structure, which is measured.
"""

from __future__ import annotations

from collections.abc import Callable

from pillarbox.experiments.apps.papers.shared.figure import Made, figure, overall
from pillarbox.experiments.models.comparison import papers
from pillarbox.experiments.models.comparison.table_checks import PaperTable, TableCheck
from pillarbox.experiments.runs.reporting.reproduced.result import DIFFERS, ERRATUM, Point

EQUALS = " = "  # separator of a printed formula and its value
BISECTION_S = 20.0  # time limit for each exact bisection width, in seconds; most take much less
TABLES: dict[str, tuple[str, Callable[[float], PaperTable]]] = {
    "bcube-table1": (
        "speed-ups, throughput and wires of tree, fat-tree, DCell and BCube (Guo 2009)",
        papers.check_bcube_table_1,
    ),
    "bcube-table2": (
        "cost, power and wires of a container of 2048 servers (Guo 2009)",
        papers.check_bcube_table_2,
    ),
    "dcell-table3": (
        "DCell beside mesh, ring, torus, trees, hypercube, butterfly, de Bruijn (Guo 2008)",
        papers.check_dcell_table_3,
    ),
    "dpillar-table1": (
        "servers and cost of DPillars with four columns (Liao 2012)",
        papers.check_dpillar_table_1,
    ),
    "dpillar-table2": (
        "degree, cost, paths, bisection and size of five networks (Liao 2012)",
        papers.check_dpillar_table_2,
    ),
}


def printed(table: PaperTable) -> Made:
    """Return the reproduction of a paper's table, with each printed value next to ours."""
    wrong = [check for check in table.checks if check.agrees is False]
    wrong.sort(key=lambda check: check.is_erratum)
    unchecked = [check.what for check in table.checks if check.agrees is None]
    notes = [f"Printed: {table.citation}."]
    if unchecked:
        notes.append(f"Not checked: {', '.join(unchecked)}.")
    word = overall(ERRATUM if check.is_erratum else DIFFERS for check in wrong)
    return Made(
        map(_point, table.checks),
        judged=(word, [*map(_difference_sentence, wrong)]),
        notes=notes,
        title=table.title,
        errata=[
            *dict.fromkeys(
                check.erratum.entry for check in wrong if check.erratum and check.is_erratum
            )
        ],
    )


def _point(check: TableCheck) -> Point:
    """Return the check of a printed value as a row of the table.

    >>> _point(TableCheck("bcube,4,1 servers", "n^(l+1) = 16", 16, True))
    Point(series='bcube,4,1', x='servers, n^(l+1)', ours=16, paper=16.0, ...)
    """
    series, _, what = check.what.partition(": " if ": " in check.what else " ")
    formula, _, value = check.printed.rpartition(EQUALS)
    x = f"{what}, {formula}" if formula else what
    try:
        paper = float(value.replace(",", ""))
    except ValueError:  # an order of magnitude without a value
        return Point(series, f"{what}, {check.printed}", check.ours)
    return Point(series, x, check.ours, paper)


def _difference_sentence(check: TableCheck) -> str:
    why = f": {check.reason}" if check.reason else ""
    entry = check.erratum.entry if check.erratum and check.is_erratum else ""
    erratum = f". Erratum: {entry}" if entry else ""
    return f"{check.what}: ours is {check.ours:g}, in print {check.printed}{why}{erratum}."


def _register_table(name: str, about: str, table: Callable[[float], PaperTable]) -> None:
    figure(name, about, name, "value", kind="table")(lambda _: printed(table(BISECTION_S)))


for _name, (_about, _table) in TABLES.items():
    _register_table(_name, _about, _table)
