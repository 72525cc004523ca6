"""Rows of a live figure: the quantity, its trials, unit and paper's value, and a claim.

A `Row` describes one value, or one for each system and part of the figure. Its quantity is a name
in `QUANTITIES`, or a column of the trials' records; a name in `computed.COMPUTED` needs no trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.apps.papers.shared.computed import COMPUTED
from pillarbox.experiments.apps.papers.shared.figure import Claim, point, quoted
from pillarbox.experiments.apps.papers.shared.quantities import (
    COLUMNS,
    FLOWS,
    OF_RELAYS,
    QUANTITIES,
    Part,
    SystemTrials,
    Values,
)
from pillarbox.experiments.models.fluid.ideal import ETHERNET_BYTES
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.reporting.reproduced.result import Point
from pillarbox.topos.base.errors import PillarboxError, meant, require
from pillarbox.topos.base.spec import parse

if TYPE_CHECKING:
    import pandas

UNITS = {"": 1.0, "Mbit/s": 1e6, "Gbit/s": 1e9}
PACKETS = "packets"  # unit of a queue's length: full frames of TCP without the routing's header
LINK = "link"  # unit: goodput of one cable without the routing's header, or the time of its volume
BOUNDS = ("", "at least", "at most")
SAVED = "saved, %"  # unit of a pair: by how much the first is below the second


@dataclass(frozen=True)
class Row:
    """A value of a live figure, the paper's value, and a claim.

    In `series` and `x`, ``{system}`` and ``{part}`` stand for names. Values that differ between
    systems (`paper`, `ideal_links`) are tables by system.
    """

    of: str  # quantity
    series: str = "{system}"
    x: str = "{system}"
    system: str = ""  # "" for each system of the part
    part: str = ""  # "" for each part
    drawn: str = ""  # x of the point by which a row of the table is drawn, too
    pair: tuple[str, ...] = ()  # two systems whose quotient is the value, by pairs of trials
    unit: str = ""
    paper: Any = None  # a number, or a list of two: their quotient
    ideal: str = "records"  # ideal values: records, or none
    ideal_links: Any = None  # ideal value in units of a cable's goodput
    flows: str = ""  # flows of the quantities of the last flow: a name in FLOWS
    after_s: float = 0.0  # time from which the quantity "late goodput" counts
    event: str = ""  # fault or repair of the quantities of events
    network: str = ""  # network and routing of a computed quantity
    routing: str = ""
    # MTU or load of a relay's quantity, or number of servers of a read; None for each
    at: float | None = None
    # Claim: tolerance, bound, and wanted value (default: the paper's), or share of the ideal.
    within: float | None = None
    bound: str = ""
    wanted: float | None = None
    of_ideal: float | None = None
    # A claim in the paper's words: the exact sentence, and its paper and section.
    sentence: str = ""
    source: str = ""
    judged: str = ""  # "without eBPF": only if a relay cannot be measured under eBPF

    def __post_init__(self) -> None:
        quantities = COMPUTED if self.network else (*QUANTITIES, *COLUMNS, *OF_RELAYS)
        for name, value, known in (
            ("quantity", self.of, quantities),
            ("unit", self.unit, (*UNITS, LINK, PACKETS, SAVED)),
            ("bound", self.bound, BOUNDS),
            ("flows", self.flows, ("", *FLOWS)),
        ):
            require(value in known, f"unknown {name} {value!r}: {meant(value, known)}")
        require(len(self.pair) in (0, 2), "a pair is two systems")
        require(
            bool(self.sentence) == bool(self.source),
            "sentence and source belong together: a sentence of the paper, and where it is",
        )
        require(
            not self.sentence or self._has_claim,
            f"the sentence {self.sentence!r} needs a bound, or within",
        )
        for text in (self.series, self.x):
            try:
                text.format(system="", part="")
            except (LookupError, ValueError, AttributeError):
                raise PillarboxError(
                    f"{text!r} has other braces than {{system}} and {{part}}"
                ) from None
        for value in (self.paper, self.ideal_links):
            for one in value.values() if isinstance(value, Mapping) else [value]:
                pair = one if isinstance(one, list) else [one, 1]
                require(
                    len(pair) == 2 and all(n is None or isinstance(n, int | float) for n in pair),
                    f"paper and ideal_links are numbers, or lists of two, not {one!r}",
                )

    @property
    def _has_claim(self) -> bool:
        return bool(self.bound) or {self.within, self.wanted, self.of_ideal} != {None}

    def claim(self, value: Point) -> Claim | None:
        """Return the claim on the row's value, or None without a claim."""
        if not self._has_claim:
            return None
        wanted = self.wanted
        if self.of_ideal is not None:
            wanted = float("inf") if value.ideal is None else self.of_ideal * value.ideal
        if wanted is None and value.paper is None:
            return None
        at_most, at_least = (self.bound == word for word in ("at most", "at least"))
        sentence = quoted(self.sentence, self.source) if self.sentence else ""
        return Claim(value, self.within or 0.0, at_most, at_least, wanted, sentence)


class Measured(NamedTuple):
    """A row of a figure, and the value that was measured."""

    row: Row
    point: Point

    @property
    def claims(self) -> list[Claim]:
        """The row's claim, if it has one."""
        found = self.row.claim(self.point)
        return [] if found is None else [found]


# -- from rows to points ---------------------------------------------------------------------------


def expanded(
    rows: Iterable[Row], parts: Sequence[Part], *, by_system: bool = False
) -> Iterator[Measured]:
    """Yield the values of rows; those of systems that are not in the run are left out.

    With `by_system`, consecutive rows for all systems are in the order of the systems.
    """
    waiting: list[Row] = []
    for row in rows:
        if by_system and not (row.system or row.pair or row.network):
            waiting.append(row)
            continue
        yield from _of_each_system(waiting, parts, by_system=by_system)
        waiting = []
        yield from _of_each_system([row], parts, by_system=by_system)
    yield from _of_each_system(waiting, parts, by_system=by_system)


def _of_each_system(
    rows: Sequence[Row], parts: Sequence[Part], *, by_system: bool
) -> Iterator[Measured]:
    found = [one for row in rows for one in _of_row(row, parts)]
    if by_system and len(rows) > 1:
        order = [*parts[0].systems]
        found.sort(key=lambda one: order.index(one.row.system))
    yield from found


def _of_row(row: Row, parts: Sequence[Part]) -> Iterator[Measured]:
    if row.network:
        ours = COMPUTED[row.of](parse(row.network), row.routing)
        yield Measured(row, replace(_point(row, "", ""), ours=ours, ideal=row.ideal_links))
        return
    for part in parts:
        if row.part not in ("", part.name):
            continue
        if row.pair:
            if set(row.pair) <= set(part.systems):
                yield Measured(row, _of_pair(row, part))
            continue
        for name, system in part.systems.items():
            if row.system in ("", name):
                value = _measured(_point(row, name, part.name), _values(row, part, system))
                yield Measured(replace(row, system=name), value)


def _point(row: Row, system: str, part: str) -> Point:
    """Return a row's point without its value."""
    words = {"system": system, "part": part}
    series, x = (text.format(**words) for text in (row.series, row.x))
    return Point(series, x, None, number(row.paper, system))


def _measured(named: Point, values: Values) -> Point:
    found = point(named.series, named.x, _known(values.of_trials), named.paper, least=0.0)
    return replace(found, ideal=values.ideal)


def _known(values: pandas.Series) -> list[float]:
    known: list[float] = values.dropna().astype(float).tolist()
    return known


def number(value: Any, system: str) -> float | None:
    """Return a number of a figure's file: one for all systems, or that of the system (or MTU).

    >>> number({"tree": [80, 40]}, "tree"), number({"tree": 1.5}, "BCube"), number(3, "tree")
    (2.0, None, 3.0)
    """
    if isinstance(value, Mapping):
        value = value.get(system)
    if isinstance(value, list | tuple):
        above, below = (number(one, system) for one in value)
        return above / below if above and below else None
    return None if value is None else float(value)


def _values(row: Row, part: Part, system: System) -> Values:
    """Return a row's values of one system, in the row's unit."""
    trials = SystemTrials(part, system, row)
    if row.of in COLUMNS:
        found = Values(trials.trials.set_index("repeat")[row.of])
    else:
        found = QUANTITIES[row.of](trials)
    of_trials, ideal = found
    unit = 1.0
    if row.unit == LINK:
        timed = row.of == "completion"
        volume_bits = (part.experiment.workload.volume_bytes or 0) * 8
        unit = volume_bits / trials.link_bps if timed else trials.link_bps
    elif row.unit == PACKETS:
        unit = float(system.mtu + ETHERNET_BYTES)
    elif row.unit != SAVED:
        unit = UNITS[row.unit]
    links = number(row.ideal_links, system.name)
    if links is not None:
        ideal = links * trials.link_bps * part.scale.rate
    if ideal is None or row.ideal == "none":
        return Values(of_trials / unit)
    return Values(of_trials / unit, ideal / unit)


def _of_pair(row: Row, part: Part) -> Point:
    """Return the quotient of two systems' values, by pairs of trials."""
    first, second = (_values(row, part, part.systems[name]) for name in row.pair)
    quotients = first.of_trials / second.of_trials
    named = _point(row, "", part.name)
    if row.unit == SAVED:
        return point(named.series, named.x, _known(100 * (1 - quotients)), named.paper)
    ideal = first.ideal / second.ideal if first.ideal and second.ideal else None
    return _measured(named, Values(quotients, ideal))
