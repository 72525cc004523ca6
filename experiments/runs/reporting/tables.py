"""The tables of a report as text, with units and three significant figures."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

import pandas as pd

from pillarbox.experiments.base import units
from pillarbox.experiments.models.workloads.collectives.plan import is_collective
from pillarbox.experiments.models.workloads.flows import COMPLETED
from pillarbox.experiments.models.workloads.workload import TRAINING
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, System
from pillarbox.experiments.runs.reporting import series
from pillarbox.experiments.runs.reporting.run_reading import RunContents
from pillarbox.experiments.runs.trials.statistics import Estimate, compare, estimate
from pillarbox.experiments.runs.trials.summary import (
    ABOUT_DOUBT,
    ARRIVED,
    COMPLETION,
    DOUBT,
    MEASURES,
    Measure,
    aa_check_sentences,
    compared_systems,
    doubts,
    main_measure,
    scale_sentences,
    value_and_interval,
    values,
)
from pillarbox.hosts.base.fault_kinds import fault_kind
from pillarbox.hosts.base.faults import kind_of, read
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

CUT_OFF = "no other path"  # cell text instead of a rerouting time if a fault left no path
MOST_NAMES = 8  # maximum number of server names in a report's table cell
ABOUT_GREEDY = (
    "Goodput is measured at the receivers until the end of the last flow. Ideal is the maximum "
    "that the paths in use carry, at the shares of the flows. Bound is the maximum of any routing "
    "in this network without faults (a linear program). Fairness is Jain's index over flows. Link "
    "spread is the standard deviation divided by the mean of the bytes that servers' ports sent."
)
ABOUT_ARRIVED = (
    "Offered is the load of flows that began in the measured time, carried the load that was "
    "delivered in it. Slowdown is the mean over all flows, then their median and 99th percentile."
)
TITLES = {"rate_mbit": "rate, Mbit/s", "loss": "loss, %", "mtu": "MTU, bytes"}


@dataclass(frozen=True)
class Row:
    """Row of a report's table; a doubtful row belongs to an invalid or failed trial."""

    cells: list[str]
    doubtful: bool = False


@dataclass(frozen=True)
class Table:
    """A table of the report; `numbers` are the indices of the right-aligned columns."""

    columns: list[str]
    rows: list[Row]
    numbers: frozenset[int] = field(default_factory=frozenset)
    note: str = ""


def systems(found: RunContents) -> Table:
    """Return the report's table of compared systems, with a column per non-default setting."""
    planned = found.plan.systems if found.plan else ()
    always = ("network", "routing", "plane", "timers", "rate_mbit", "mtu")
    used = [
        *always,
        *(
            one.name
            for one in fields(System)
            if one.name not in (*always, "label")
            and any(getattr(system, one.name) != _default_value(one) for system in planned)
        ),
    ]
    labs = found.manifest.get("systems") or {}
    rows = []
    for system in planned:
        lab = labs.get(system.name) or {}  # the manifest contains the settings chosen for "auto"
        words = [_setting_text(lab.get(name) or getattr(system, name)) for name in used]
        cells = [word or units.MISSING for word in words]
        rows.append(Row([system.name, *cells]))
    titles = [TITLES.get(name, name.replace("_", " ")) for name in used]
    return Table(["system", *titles], rows)


def _default_value(one: Field[Any]) -> Any:
    """Return the default value of a system's setting."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def _setting_text(value: object) -> str:
    """Return a setting as text, empty if not set.

    >>> _setting_text({"placement": "random", "jobs": [{"tp": 4, "pp": 2}, {"dp": 8}]})
    'placement random, jobs (tp 4, pp 2) (dp 8)'
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_setting_text(one)}" for name, one in value.items())
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        return " ".join(f"({_setting_text(one)})" for one in value)
    if value is None or value == "":
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def reasons(found: RunContents) -> list[str]:
    """Return why a run's trials failed or are invalid, each reason with its trial numbers."""
    lines = []
    for reason, trials in doubts(found.records).items():
        lines.append(
            f"trial{'s' * (len(trials) > 1)} {_first_names([*map(str, trials)])}: {reason}"
        )
    return lines


def comparisons(found: RunContents) -> list[str]:
    """Return the sentences of A/A checks and scale checks, if an experiment has such systems."""
    return [*aa_check_sentences(found.run), *scale_sentences(found.run)] if found.plan else []


def command(found: RunContents) -> str:
    """Return the command line that started the run."""
    _, *words = found.manifest.get("command_line") or [""]
    return shlex.join(["pillarbox", *words]) if words else ""


def workload(plan: Experiment) -> str:
    """Return a sentence that describes the workload: pattern, volume or duration, TCP, repeats."""
    load = plan.workload
    much = f"for {units.time(load.duration_s)}"
    if load.volume_bytes is not None:
        much = f"{units.size(load.volume_bytes)} per {'server' if is_collective(load) else 'flow'}"
    elif load.pattern == TRAINING:
        much = "one iteration"
    options = f" ({_setting_text(load.options)})" if load.options else ""
    if load.trace is not None:
        much = f"flows of the trace {load.trace}"
    elif load.arrivals is not None:
        loads = sorted({one.at_load or load.load or 0.0 for one in plan.systems})
        scale = f" x {load.size_scale:g}" if load.size_scale != 1 else ""
        much = (
            f"flows that arrive for {units.time(load.duration_s)}, sizes of {load.sizes}{scale}, "
            f"load {' and '.join(f'{one:g}' for one in loads)} ({load.load_of})"
        )
    return (
        f"{load.pattern}{options}, {much}, TCP with {load.congestion}; "
        f"{plan.repeats} repeat{'s' if plan.repeats > 1 else ''}, seed {plan.seed}"
    )


def faults(plan: Experiment, networks: Mapping[str, Topology]) -> list[str]:
    """Return a text for each planned fault; nodes have the names of the systems' networks."""
    lines = []
    for fault in plan.faults:
        if isinstance(fault, FaultAt):
            own = [
                network
                for name, network in networks.items()
                if not fault.systems or name in fault.systems
            ]
            one = read(fault.fault)
            what = " or ".join(dict.fromkeys(named(one.what, network) for network in own))
            until = f" until {units.time(one.until_s)}" if one.until_s is not None else ""
            kind = _named_kind(one.kind, one.amounts)
            lines.append(f"{kind} {what or named(one.what)} at {units.time(one.at_s)}{until}")
        else:
            lasting = units.time(fault.lasting_s)
            often = f"{fault.per_minute:g} per minute at random"
            lines.append(f"{_named_kind(*kind_of(fault.fault))}: {often}, each for {lasting}")
    return lines


def _named_kind(name: str, amounts: Iterable[float]) -> str:
    """Return the name of a kind of fault, followed by the numbers of a fault."""
    return f"{name} {fault_kind(name).amount_words(amounts)}".rstrip()


def named(what: Iterable[str], network: Topology | None = None) -> str:
    """Return a fault's target (node or cable) as commands write it, such as ``0.3-4.0``."""
    if network:
        with suppress(PillarboxError):
            what = [network.name(network.node(one)) for one in what]
    return "-".join(what)


def summary(found: RunContents) -> Table:
    """Return the report's summary table: means over valid trials, with confidence intervals."""
    workload = found.plan.workload if found.plan else None
    arrive = workload is not None and workload.arrivals is not None
    main = main_measure(completes=workload is not None and workload.completes, arrive=arrive)
    measures = [one for one in MEASURES if main is COMPLETION or one is not COMPLETION]
    if arrive:
        known = found.run.trials
        measures = [one for one in ARRIVED if known[one.column].notna().any()]
    first = next(iter(found.systems), "")
    others = compared_systems(found.plan) if found.plan else []
    columns = [
        "system",
        "valid trials",
        *(_title_with_unit(one) for one in measures),
        "failed flows",
    ]
    columns += [f"{main.title} against {first}"] if others else []
    rows = []
    for system in found.systems:
        own = found.run.of(system)
        valid = len(own.valid().records)
        means = [
            _mean_with_interval(
                estimate([*values(found.run, system, one.column).values()]), one.scale
            )
            for one in measures
        ]
        failures = str(int(own.trials["failed_flows"].fillna(0).sum()))
        cells = [system, f"{valid} of {len(own.records)}", *means, failures]
        compared = system in others
        ratio = _ratio_to_first(found, system, first, main) if compared else ""
        cells += [ratio] if others else []
        rows.append(Row(cells, doubtful=not valid))
        rows += [
            Row([*cells, *[""] * (len(columns) - len(cells))], doubtful=True)
            for cells in _invalid_figures(found, system, measures)
        ]
    note = "Means over valid trials, with 95 % confidence intervals below. "
    note += ABOUT_ARRIVED if arrive else ABOUT_GREEDY
    if others and all(len(found.run.of(system).valid().records) < 2 for system in found.systems):
        note += " Confidence intervals need at least two trials of each system."
    if any(row.doubtful for row in rows):
        note += f" {ABOUT_DOUBT}"
    return Table(columns, rows, frozenset(range(1, len(columns))), note)


def _invalid_figures(
    found: RunContents, system: str, measures: Iterable[Measure]
) -> list[list[str]]:
    """Return table cells with the marked results of a system's invalid trials."""
    own = [one for one in found.records if one["system"] == system and not one["valid"]]
    ended = sum(one["status"] == COMPLETED for one in own)
    means = [
        estimate([*values(found.run, system, one.column, valid=False).values()]).value * one.scale
        for one in measures
    ]
    figures = [f"{units.three_figures(one)}{DOUBT}" if units.known(one) else "–" for one in means]
    return [["not valid", f"{ended} trial{'s' * (ended > 1)}", *figures]] if ended else []


def _title_with_unit(measure: Measure) -> str:
    return ", ".join(filter(None, (measure.title, measure.unit)))


def _mean_with_interval(found: Estimate, scale: float = 1.0) -> str:
    """Return a mean as text, with its confidence interval in a second line."""
    value, interval = value_and_interval(found, scale)
    return "\n".join(filter(None, (value, interval)))


def _ratio_to_first(found: RunContents, system: str, first: str, main: Measure) -> str:
    """Return the ratio of a system's main measure to that of the first, over common repeats."""
    ratio = compare(values(found.run, system, main.column), values(found.run, first, main.column))
    if not ratio.ratio.repeats:
        return units.MISSING
    value, interval = value_and_interval(ratio.ratio)
    doubt = "no difference shown" if interval and not ratio.differs else ""
    return "\n".join(filter(None, (f"{value} times", interval, doubt)))


def fault_times(times: pd.DataFrame) -> Table:
    """Return the report's table of recovery times after each kind of fault."""
    columns = ["system", "event", "count", "detected", "rerouted", "recovered"]
    rows = []
    for row in times.to_dict("records"):
        after = [
            units.time(row[name])
            + (f"\nat most {units.time(most)}" if units.known(most) and row["events"] > 1 else "")
            for name, most in ((name, row[f"{name}_most"]) for name in series.AFTERWARDS)
        ]
        if row["cut_off"]:
            moved = series.AFTERWARDS.index("rerouted_s")
            after[moved] = CUT_OFF if row["cut_off"] == row["events"] else after[moved]
        rows.append(Row([row["system"], row["event"], str(row["events"]), *after]))
    note = (
        "Medians over all faults of valid trials, in time after the fault. Detected: by the first "
        "adjacent server. Rerouted: the last stopped flow delivers again. Recovered: the stopped "
        "flows have 90 % of their goodput again. A dash: no flow had stopped, or the flows did not "
        f"recover. “{CUT_OFF}”: flows resumed only after the repair."
    )
    return Table(columns, rows, frozenset(range(2, 6)), note)


def events(marks: pd.DataFrame) -> Table:
    """Return the report's table of fault events, numbered as in the figure of faults."""
    columns = ["no.", "system", "at", "event", "what", "detected", "rerouted", "recovered"]
    rows = []
    for _, own in marks.groupby("system", sort=False):
        for number, mark in enumerate(own.to_dict("records"), start=1):
            after = [units.time(mark[name] - mark["at_s"]) for name in series.AFTERWARDS]
            if mark["cut_off"]:
                after[series.AFTERWARDS.index("rerouted_s")] = CUT_OFF
            reason = _text_or_empty(mark["reason"])
            what = named(_text_or_empty(mark["what"]).split()) + (
                f" (failed: {reason})" if reason else ""
            )
            cells = [
                str(mark["system"]),
                units.time(mark["at_s"]),
                _text_or_empty(mark["event"]),
                what,
            ]
            rows.append(Row([str(number), *cells, *after], doubtful=bool(reason)))
    return Table(columns, rows, frozenset({2, 5, 6, 7}))


def slowest(found: RunContents) -> Table:
    """Return the table of the slowest flows of each system."""
    columns = ["system", "trial", "flow", "goodput", "of ideal", "took", "retransmits", "path"]
    rows = []
    for flow in series.slowest(found.tables["flows"]).to_dict("records"):
        took = flow["end_s"] - flow["begin_s"]
        rows.append(
            Row(
                [
                    flow["system"],
                    str(flow["trial"] + 1),
                    f"{flow['source']} to {flow['destination']}",
                    units.rate(flow["goodput_bps"]),
                    _share_of_ideal(flow),
                    units.time(took),
                    units.plain(flow["retransmits"]) or units.MISSING,
                    _text_or_empty(flow["path"]),
                ],
                doubtful=not _is_true(flow["valid"]),
            )
        )
    return Table(columns, rows, frozenset({1, 3, 4, 5, 6}))


def failed(found: RunContents) -> Table:
    """Return the table of failed flows, with a row for each system and reason."""
    columns = ["system", "reason", "flows", "trials", "examples", "delivered"]
    flows = series.failed(found.tables["flows"])
    rows = []
    for (system, reason), own in flows.groupby(["system", "reason"], sort=False, dropna=False):
        ends = [f"{a} to {b}" for a, b in zip(own["source"], own["destination"], strict=True)]
        trials = [str(number + 1) for number in sorted(set(own["trial"]))]
        cells = [str(system), _text_or_empty(reason), str(len(own))]
        cells += [_first_names(trials), _first_names(list(dict.fromkeys(ends)))]
        cells += [units.size(own["delivered_bytes"].sum())]
        rows.append(Row(cells, doubtful=not any(map(_is_true, own["valid"]))))
    return Table(columns, rows, frozenset({2, 5}), "flows.csv lists all failed flows.")


def _first_names(names: list[str]) -> str:
    """Return the first MOST_NAMES names of a list as text."""
    return ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)


def link_spread(spread: pd.DataFrame, systems: list[str]) -> Table:
    """Return the table of link loads by system and level, in the order of `systems`."""
    order = spread.sort_values("system", key=lambda one: one.map(systems.index), kind="stable")
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
        for row in order.to_dict("records")
    ]
    columns = ["system", "level", "directed links", "mean load", "sd", "maximum", "sd/mean"]
    return Table(columns, rows, frozenset(range(1, len(columns))))


@dataclass(frozen=True)
class JudgedTrial:
    """A trial in the report: its verdict, measured values and machines."""

    number: int
    system: str
    repeat: int
    state: str  # "valid", "invalid" or "failed"
    line: str  # goodput, share of the ideal and completion time
    sentences: list[str]  # reasons and warnings of the trial's verdict
    figures: Table  # table of the measured values on which the verdict depends
    machines: Table  # table of machines, empty for a trial on one machine


def trials(found: RunContents) -> list[JudgedTrial]:
    """Return all trials of a run with their verdicts, for the report."""
    return [
        _judged_trial(row, record)
        for row, record in zip(_trial_rows(found), found.records, strict=True)
    ]


def _trial_rows(found: RunContents) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.tables["trials"].to_dict("records")
    return rows


def _judged_trial(row: dict[str, Any], record: dict[str, Any]) -> JudgedTrial:
    verdict = record.get("verdict") or {}
    ran = row["status"] != "failed"
    state = "failed" if not ran else "valid" if _is_true(row["valid"]) else "invalid"
    sentences = [*verdict.get("reasons", ()), *verdict.get("warnings", ())]
    if not ran and _text_or_empty(row["reason"]):
        sentences.insert(0, _text_or_empty(row["reason"]))
    parts = [
        (units.rate(row["goodput_bps"]), "{}"),
        (_share_of_ideal(row), "{} of ideal"),
        (units.time(row["completion_s"]), "last flow completed after {}"),
    ]
    line = ", ".join(form.format(text) for text, form in parts if text != units.MISSING)
    figures = verdict.get("figures") or {}
    rows = [Row([str(name).replace("_", " "), units.plain(one)]) for name, one in figures.items()]
    table = Table(["figure", "value"], rows, frozenset({1}))
    number, repeat = int(row["trial"]) + 1, int(row["repeat"]) + 1
    own = machines(record.get("readings") or {})
    return JudgedTrial(number, str(row["system"]), repeat, state, line, sentences, table, own)


def machines(readings: dict[str, Any]) -> Table:
    """Return the table of machines of a trial over several machines: network card and delays."""
    rows = []
    for one in readings.get("machines", ()):
        lasted_s = max(readings["duration_s"], 1e-9)
        card = [
            units.rate(one[f"card_{direction}_bytes"] * 8 / lasted_s)
            for direction in ("sent", "received")
        ]
        late = [units.time(one[name]) for name in ("pacing_p99_s", "canary_p99_s")]
        rows.append(
            Row(
                [
                    f"{one['machine']}" + (f": {one['away']}" if one["away"] else ""),
                    *card,
                    units.share(one["card_full"]),
                    units.plain(one["card_dropped"]),
                    units.plain(one["crossed_out"]),
                    units.time(one["clock_moved_s"]),
                    *late,
                    units.share(one["idle"]),
                ],
                doubtful=bool(one["away"]),
            )
        )
    columns = ["machine", "card sent", "card received", "card queue full", "card drops"]
    columns += ["packets to other machines", "clock shift", "kernel delay, 99th"]
    columns += ["program delay, 99th", "CPU idle"]
    return Table(columns, rows, frozenset(range(1, len(columns))))


def _share_of_ideal(row: dict[str, Any]) -> str:
    """Return the goodput of a flow or a trial as a share of the ideal, if the ideal is above 0."""
    ideal_bps = row["ideal_bps"]
    comparable = units.known(ideal_bps) and ideal_bps > 0
    return units.share(row["goodput_bps"] / ideal_bps if comparable else None)


def _is_true(value: object) -> bool:
    """Return True if a record's value is true; a missing value counts as false."""
    return not pd.isna(value) and bool(value)


def _text_or_empty(value: object) -> str:
    return "" if value is None or pd.isna(value) else str(value)
