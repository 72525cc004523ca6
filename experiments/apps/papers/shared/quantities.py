"""Values of a live figure: the quantity, its trials, unit and paper's value, and a claim.

A `Row` describes one value, or one for each system and part of the figure. Its quantity is a name
in `QUANTITIES`, or a column of the trials' records; a name in `computed.COMPUTED` needs no trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.apps.papers.shared import live_experiments
from experiments.apps.papers.shared.computed import COMPUTED
from experiments.apps.papers.shared.figure import Claim, point, quoted
from experiments.apps.papers.shared.live_experiments import Scale
from experiments.apps.papers.shared.rerouted_flows import EFFECTS, faults_with_flow_effects
from experiments.models.fluid.ideal import header_bytes, header_efficiency
from experiments.runs.plans.experiment import Experiment, System
from experiments.runs.reporting.reproduced.result import Point
from topos.base.errors import PillarboxError, meant, require
from topos.base.spec import parse
from topos.base.topology import Topology

if TYPE_CHECKING:
    import pandas

    from experiments.runs.trials.records import Run

UNITS = {"": 1.0, "Mbit/s": 1e6, "Gbit/s": 1e9}
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
    at: float | None = None  # MTU or load of a relay's quantity; None for each
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
            ("unit", self.unit, (*UNITS, LINK, SAVED)),
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


@dataclass(frozen=True)
class Part:
    """Records of one experiment of a figure."""

    name: str
    experiment: Experiment
    run: Run  # trials that count
    scale: Scale
    all_trials: Run

    @cached_property
    def systems(self) -> dict[str, System]:
        """Systems by name."""
        return {one.name: one for one in self.experiment.systems}

    @cached_property
    def runs(self) -> dict[str, Run]:
        """Records of each system."""
        return {name: self.run.of(name) for name in self.systems}

    @cached_property
    def flow_effects(self) -> dict[str, pandas.DataFrame]:
        """Faults of each system, with their effects on flows that still had a path."""
        return {
            name: faults_with_flow_effects(self.runs[name], system)
            for name, system in self.systems.items()
        }


@dataclass(frozen=True)
class SystemTrials:
    """The trials of one system, from which a row's value is taken."""

    part: Part
    system: System
    row: Row

    @property
    def run(self) -> Run:
        """Records of the system."""
        return self.part.runs[self.system.name]

    @cached_property
    def trials(self) -> pandas.DataFrame:
        """Table of the system's trials."""
        return self.run.trials

    @property
    def link_bps(self) -> float:
        """Goodput of one cable, without the routing's header."""
        header = header_bytes(self.system.topology, self.system.routing)
        return (self.system.rate_mbit or 0.0) * 1e6 * header_efficiency(header, self.system.mtu)

    def by_repeat(self, values: pandas.Series) -> pandas.Series:
        """Return values by trial in the order of the table of trials, by repeat."""
        found: pandas.Series = self.trials.trial.map(values).set_axis(self.trials["repeat"])
        return found


# -- quantities of trials --------------------------------------------------------------------------


class Values(NamedTuple):
    """Values of trials, at the paper's scale in seconds or bit/s, and their ideal."""

    of_trials: pandas.Series
    ideal: float | None = None


def _column(trials: SystemTrials, name: str, ideal: str, factor: float) -> Values:
    values = trials.trials.set_index("repeat")
    best = live_experiments.ideal_of_trials(values[ideal]) if ideal else None
    return Values(values[name] * factor, None if best is None else best * factor)


def completion(trials: SystemTrials) -> Values:
    """Return the time until the last flow ends."""
    return _column(trials, "completion_s", "ideal_s", trials.part.scale.time)


def goodput(trials: SystemTrials) -> Values:
    """Return the total goodput of all flows."""
    return _column(trials, "goodput_bps", "ideal_bps", trials.part.scale.rate)


def goodput_of_server(trials: SystemTrials) -> Values:
    """Return the goodput of a server, the mean over all."""
    factor = trials.part.scale.rate / trials.system.topology.servers
    return _column(trials, "goodput_bps", "ideal_bps", factor)


def late_goodput(trials: SystemTrials) -> Values:
    """Return the total goodput after `after_s`, until the flows' common end."""
    duration_s = trials.part.experiment.workload.duration_s
    found = trials.run.intervals
    late = found[(found.begin_s >= trials.row.after_s) & (found.end_s <= duration_s)]
    of_trial = late.groupby("trial")
    bps = of_trial.delivered_bytes.sum() * 8 / (of_trial.end_s.max() - of_trial.begin_s.min())
    return Values(trials.by_repeat(bps) * trials.part.scale.rate, goodput(trials).ideal)


def file_goodput(trials: SystemTrials) -> Values:
    """Return the rate at which all receivers get a file."""
    bits = (trials.part.experiment.workload.volume_bytes or 0) * 8
    values = trials.trials.set_index("repeat")
    return Values(bits / values.completion_s * trials.part.scale.rate, goodput(trials).ideal)


def maximum_goodput(trials: SystemTrials) -> Values:
    """Return the maximum total goodput, averaged over a twentieth of the time."""
    found = live_experiments.throughput_over_time(trials.run.intervals, points=20)
    most = found.groupby("trial").goodput_bps.max()
    return Values(trials.by_repeat(most) * trials.part.scale.rate)


def last_flow(trials: SystemTrials) -> Values:
    """Return the end of the last flow between certain pairs of servers."""
    own, _ = _chosen_and_other_flows(trials)
    ends, time = own.groupby("trial"), trials.part.scale.time
    ideal = live_experiments.ideal_of_trials(ends.ideal_end_s.max() * time)
    return Values(trials.by_repeat(ends.end_s.max()) * time, ideal)


def last_flow_over_others(trials: SystemTrials) -> Values:
    """Return the end of the last flow between certain servers, over the others' median end."""
    own, others = (found.groupby("trial") for found in _chosen_and_other_flows(trials))
    ideal = live_experiments.ideal_of_trials(own.ideal_end_s.max() / others.ideal_end_s.median())
    return Values(trials.by_repeat(own.end_s.max() / others.end_s.median()), ideal)


def _chosen_and_other_flows(trials: SystemTrials) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return the flows between the pairs of servers that the row names, and all other flows."""
    import numpy

    flows, belongs = trials.run.flows, FLOWS[trials.row.flows](trials.system.topology)
    pairs = zip(flows.source, flows.destination, strict=True)
    chosen = numpy.array([belongs(*pair) for pair in pairs], dtype=bool)
    return flows[chosen], flows[~chosen]


def over_bound(trials: SystemTrials) -> Values:
    """Return the time of a collective, relative to the lower bound of any algorithm's."""
    found = trials.trials.set_index("repeat")
    ideal = live_experiments.ideal_of_trials(found.bound_bps / found.ideal_bps)
    return Values(found.bound_bps / found.goodput_bps, ideal)


def flow_setup(trials: SystemTrials) -> Values:
    """Return the median time of the flows' TCP handshakes, in milliseconds."""
    found = trials.run.flows.groupby("trial").connect_s.median()
    return Values(trials.by_repeat(found * 1000))


Belongs = Callable[[str, str], bool]  # whether a flow's source and destination are among those


def _below_one_switch(network: Topology) -> Belongs:
    def below_one(*ends: str) -> bool:
        return len({network.server_plug(network.server(end), 0).node for end in ends}) == 1

    return below_one


def _level_1_neighbours(network: Topology) -> Belongs:
    cables = [cable for cable in network.links() if cable.level == 1]
    pairs = {frozenset(map(network.address, (one.a, one.b))) for one in cables}
    return lambda *ends: {*ends} in pairs


FLOWS: dict[str, Callable[[Topology], Belongs]] = {
    "below one switch": _below_one_switch,
    "neighbours on level 1": _level_1_neighbours,
}


# -- quantities of faults and repairs --------------------------------------------------------------


def _events(trials: SystemTrials) -> pandas.DataFrame:
    """Return the row's faults or repairs, or all of them."""
    found = trials.run.events
    named = found.event == trials.row.event if trials.row.event else found.event.notna()
    return found[named & (found.reason == "")]


def detection(trials: SystemTrials) -> Values:
    """Return the time until the routing detects the event."""
    return Values(_events(trials).detected_s)


def outage(trials: SystemTrials) -> Values:
    """Return the time until stopped flows continue; 0 if the event stopped none."""
    found = _events(trials)
    return Values(found.rerouted_s.mask(found.stopped_flows == 0, 0.0))


def recovery(trials: SystemTrials) -> Values:
    """Return the time until the former goodput; 0 if the event stopped no flow."""
    found = _events(trials)
    return Values(found.recovered_s.mask(found.stopped_flows == 0, 0.0))


def share_afterwards(trials: SystemTrials) -> Values:
    """Return the goodput in the last second before the next event, relative to the first one's."""
    import pandas

    shares = {}
    for trial, events in trials.run.events.groupby("trial"):
        intervals = trials.run.intervals[trials.run.intervals.trial == trial]
        moments = [*sorted(events.at_s), float(intervals.end_s.max())]
        at_s = events[events.event == trials.row.event].at_s
        if not at_s.empty:
            following = moments[moments.index(at_s.iloc[0]) + 1]
            first, now = (_second_before(intervals, end_s) for end_s in (moments[0], following))
            shares[trial] = now / first
    return Values(pandas.Series(shares, dtype=float))


def _second_before(intervals: pandas.DataFrame, end_s: float) -> float:
    within = intervals[(intervals.begin_s >= end_s - 1.0) & (intervals.end_s <= end_s)]
    return float(within.delivered_bytes.sum() / (within.end_s - within.begin_s).sum())


def _of_flows_with_path(column: str) -> Callable[[SystemTrials], Values]:
    """Return the quantity of a column of `faults_with_flow_effects`."""

    def values(trials: SystemTrials) -> Values:
        found = trials.part.flow_effects[trials.system.name]
        own = found if not trials.row.event else found[found.event == trials.row.event]
        return Values(own[column])

    return values


QUANTITIES: dict[str, Callable[[SystemTrials], Values]] = {
    "completion": completion,
    "goodput": goodput,
    "goodput of a server": goodput_of_server,
    "late goodput": late_goodput,
    "file goodput": file_goodput,
    "maximum goodput": maximum_goodput,
    "last flow": last_flow,
    "last flow over others": last_flow_over_others,
    "time over bound": over_bound,
    "detection": detection,
    "flow set-up": flow_setup,
    "outage": outage,
    "recovery": recovery,
    "share afterwards": share_afterwards,
    **{f"{column} with a path": _of_flows_with_path(column) for column in EFFECTS},
}
# Quantities of relays (`relay_figures`).
OF_RELAYS = (
    *("goodput", "forwarded", "cost by bit", "cost by bit, eBPF", "cost by packet, eBPF"),
    *("share", "share, eBPF", "share of full", "cost of a packet", "cost of a packet, eBPF"),
    *("cost of a short packet", "short over long, eBPF", "arrived"),
)
COLUMNS = ("link_spread", "fairness")  # columns of the trials' records that are quantities


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
