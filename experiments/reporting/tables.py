"""The tables of a report, as text: who reads them needs three figures and a unit, not floats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

import pandas as pd

from experiments.plans.experiment import Experiment, FaultAt, System
from experiments.reporting import series, units
from experiments.reporting.reading import Found
from experiments.runs.statistics import Comparison, Estimate, compare, estimate
from experiments.runs.summary import values

MOST_FAILED = 50  # rows


@dataclass(frozen=True)
class Row:
    """Cells of a table; a doubtful row is one of an invalid or failed trial."""

    cells: list[str]
    doubtful: bool = False


@dataclass(frozen=True)
class Table:
    """A table of the page. The first column names its row; `numbers` are those set to the right."""

    columns: list[str]
    rows: list[Row]
    numbers: frozenset[int] = field(default_factory=frozenset)
    note: str = ""


def systems(found: Found) -> Table:
    """Return what was compared: one row a system, a column for whatever differs from the usual."""
    planned = found.plan.systems if found.plan else ()
    always = ("network", "routing", "plane", "timers", "rate_mbit")
    used = [
        one.name
        for one in fields(System)
        if one.name in always
        or (one.name != "label" and any(getattr(p, one.name) != _usual(one) for p in planned))
    ]
    labs = found.manifest.get("systems") or {}
    rows = []
    for system in planned:
        lab = labs.get(system.name) or {}  # knows what "auto" has become
        told = [_word(lab.get(name) or getattr(system, name)) for name in used]
        cells = [word or units.MISSING for word in told]
        rows.append(Row([system.name, *cells]))
    return Table(["system", *(name.replace("_", " ") for name in used)], rows)


def _usual(one: Field[Any]) -> Any:
    """Return a setting's default."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def _word(value: Any) -> str:
    """Return a setting as text; nothing for what is not set."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    if value is None or value == "":
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def workload(plan: Experiment) -> str:
    """Return in a sentence what was sent."""
    load = plan.workload
    much = (
        f"{units.size(load.volume_bytes)} a flow"
        if load.volume_bytes is not None
        else f"for {units.time(load.duration_s)}"
    )
    options = f" ({_word(load.options)})" if load.options else ""
    return (
        f"{load.pattern}{options}, {much}, TCP with {load.congestion}; "
        f"{plan.repeats} repeat{'s' if plan.repeats > 1 else ''}, seed {plan.seed}"
    )


def faults(plan: Experiment) -> list[str]:
    """Return each planned fault in words."""
    told = []
    for fault in plan.faults:
        if isinstance(fault, FaultAt):
            until = f" until {units.time(fault.until_s)}" if fault.until_s is not None else ""
            told.append(f"{fault.kind} {' '.join(fault.what)} at {units.time(fault.at_s)}{until}")
        else:
            lasting = units.time(fault.lasting_s)
            told.append(
                f"{fault.kind}: {fault.per_minute:g} a minute at random, each for {lasting}"
            )
    return told


def summary(found: Found) -> Table:
    """Return a row for each system: means of its valid trials, with confidence intervals."""
    columns = ["system", "valid trials", "total goodput", "of ideal", "last flow done after"]
    columns += ["fairness (Jain)", "link spread (sd/mean)", "failed flows"]
    texts: dict[str, Any] = {
        "goodput_bps": units.rate,
        "of_ideal": units.share,
        "completion_s": units.time,
    }
    texts |= {"fairness": units.three_figures, "link_spread": units.share}
    rows = []
    for system in found.systems:
        own = found.run.of(system)
        valid = len(own.valid().told)
        means = [
            interval(estimate([*values(found.run, system, name).values()]), text)
            for name, text in texts.items()
        ]
        failures = str(int(own.trials["failed_flows"].fillna(0).sum()))
        cells = [system, f"{valid} of {len(own.told)}", *means, failures]
        rows.append(Row(cells, doubtful=not valid))
    note = (
        "Means over valid trials, with 95 % confidence intervals below them; a system without a "
        "valid trial has no figures."
    )
    return Table(columns, rows, frozenset(range(1, len(columns))), note)


def interval(found: Estimate, text: Any) -> str:
    """Return a mean with its interval as text."""
    if not units.known(found.value):
        return units.MISSING
    if not units.known(found.low):
        return str(text(found.value))
    return f"{text(found.value)}\n{text(found.low)} to {text(found.high)}"


def comparisons(found: Found) -> list[str]:
    """Return how each other system compares with the first, by the repeats that both have."""
    first, *others = found.systems or [""]
    goodput = {name: values(found.run, name, "goodput_bps") for name in found.systems}
    ratios = {other: compare(goodput[other], goodput[first]) for other in others}
    return [
        f"{other} has {_times(ratio)} the goodput of {first}{_doubt(ratio)}."
        for other, ratio in ratios.items()
        if ratio.ratio.repeats
    ]


def _times(found: Comparison) -> str:
    """Return a ratio with its interval, where it has one."""
    value, low, high = (units.three_figures(end) for end in found.ratio[:3])
    interval = f" ({low} to {high})" if found.ratio.repeats > 1 else ""
    return f"{value} times{interval}"


def _doubt(found: Comparison) -> str:
    """Return what must be said when a ratio shows nothing."""
    if found.ratio.repeats < 2:
        return ", by one pair of trials, from which little follows"
    return "" if found.differs else ": no difference is shown"


def fault_times(times: pd.DataFrame) -> Table:
    """Return how long things took after each kind of fault: the median, and the longest."""
    columns = ["system", "event", "how often", "detected", "rerouted", "recovered"]
    rows = []
    for row in times.to_dict("records"):
        after = [
            units.time(row[name]) + (f"\nat most {units.time(most)}" if units.known(most) else "")
            for name, most in ((name, row[f"{name}_most"]) for name in series.AFTERWARDS)
        ]
        rows.append(Row([row["system"], row["event"], str(row["events"]), *after]))
    note = (
        "Medians over all faults of valid trials, counted from the fault: detected by the first "
        "server beside it; rerouted when the last flow that had stopped went on; recovered when "
        "those flows had 90 % of their goodput again. – where no flow had stopped."
    )
    return Table(columns, rows, frozenset(range(2, 6)), note)


def events(marks: pd.DataFrame) -> Table:
    """Return a row for each fault of the trials in the figure, numbered as there."""
    columns = ["no.", "system", "at", "event", "what", "detected", "rerouted", "recovered"]
    rows = []
    for _, own in marks.groupby("system", sort=False):
        for number, mark in enumerate(own.to_dict("records"), start=1):
            after = [units.time(mark[name] - mark["at_s"]) for name in series.AFTERWARDS]
            reason = _text(mark["reason"])
            what = _text(mark["what"]) + (f" (not done: {reason})" if reason else "")
            told = [str(mark["system"]), units.time(mark["at_s"]), _text(mark["event"]), what]
            rows.append(Row([str(number), *told, *after], doubtful=bool(reason)))
    return Table(columns, rows, frozenset({2, 5, 6, 7}))


def slowest(found: Found) -> Table:
    """Return the slowest flows of each system."""
    columns = ["system", "trial", "flow", "goodput", "of ideal", "took", "retransmits", "path"]
    rows = []
    for flow in series.slowest(found.tables["flows"]).to_dict("records"):
        ideal, took = flow["ideal_bps"], flow["end_s"] - flow["begin_s"]
        rows.append(
            Row(
                [
                    flow["system"],
                    str(flow["trial"] + 1),
                    f"{flow['source']} to {flow['destination']}",
                    units.rate(flow["goodput_bps"]),
                    units.share(flow["goodput_bps"] / ideal if units.known(ideal) else None),
                    units.time(took),
                    units.plain(flow["retransmits"]) or units.MISSING,
                    _text(flow["path"]),
                ],
                doubtful=not _true(flow["valid"]),
            )
        )
    return Table(columns, rows, frozenset({1, 3, 4, 5, 6}))


def failed(found: Found) -> Table:
    """Return the flows that failed, with their reasons."""
    columns = ["system", "trial", "flow", "delivered", "tries", "reason"]
    flows = series.failed(found.tables["flows"])
    rows = [
        Row(
            [
                flow["system"],
                str(flow["trial"] + 1),
                f"{flow['source']} to {flow['destination']}",
                units.size(flow["delivered_bytes"]),
                str(flow["tries"]),
                _text(flow["reason"]),
            ],
            doubtful=not _true(flow["valid"]),
        )
        for flow in flows.head(MOST_FAILED).to_dict("records")
    ]
    more = len(flows) - len(rows)
    note = f"And {more} more: flows.csv has them all." if more else ""
    return Table(columns, rows, frozenset({1, 3, 4}), note)


def link_spread(spread: pd.DataFrame) -> Table:
    """Return the loads of each level in figures."""
    rows = [
        Row(
            [
                row["system"],
                f"{row['level']:.0f}" if row["level"] >= 0 else units.MISSING,
                str(row["links"]),
                *(units.share(row[name]) for name in ("mean", "sd", "most")),
                units.share(row["sd"] / row["mean"] if row["mean"] else None),
            ]
        )
        for row in spread.to_dict("records")
    ]
    columns = ["system", "level", "directed links", "mean load", "sd", "most", "sd/mean"]
    return Table(columns, rows, frozenset(range(1, len(columns))))


@dataclass(frozen=True)
class Judged:
    """A trial and what was judged of it."""

    number: int
    system: str
    repeat: int
    state: str  # valid, invalid, failed
    told: str  # its figures in a line
    sentences: list[str]  # why not, and what makes one careful
    figures: Table


def trials(found: Found) -> list[Judged]:
    """Return every trial with its verdict."""
    return [_judged(row, told) for row, told in zip(_rows(found), found.told, strict=True)]


def _rows(found: Found) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.tables["trials"].to_dict("records")
    return rows


def _judged(row: dict[str, Any], told: dict[str, Any]) -> Judged:
    verdict = told.get("verdict") or {}
    ran = row["status"] != "failed"
    state = "failed" if not ran else "valid" if _true(row["valid"]) else "invalid"
    sentences = [*verdict.get("reasons", ()), *verdict.get("warnings", ())]
    if not ran and _text(row["reason"]):
        sentences.insert(0, _text(row["reason"]))
    parts = [
        (units.rate(row["goodput_bps"]), "{}"),
        (units.share(row["goodput_bps"] / row["ideal_bps"]) if ran else "–", "{} of ideal"),
        (units.time(row["completion_s"]), "last flow done after {}"),
    ]
    line = ", ".join(form.format(text) for text, form in parts if text != units.MISSING)
    figures = verdict.get("figures") or {}
    rows = [Row([str(name).replace("_", " "), units.plain(one)]) for name, one in figures.items()]
    table = Table(["figure", "value"], rows, frozenset({1}))
    number, repeat = int(row["trial"]) + 1, int(row["repeat"]) + 1
    return Judged(number, str(row["system"]), repeat, state, line, sentences, table)


def _true(value: object) -> bool:
    """Tell whether a record says true: missing is not true."""
    return not pd.isna(value) and bool(value)


def _text(value: object) -> str:
    return "" if value is None or pd.isna(value) else str(value)
