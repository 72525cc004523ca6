"""What a run of two networks, without and with a fault, comes to: sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy

from experiments import units
from experiments.text import columns
from experiments.traffic.flows import COMPLETED
from experiments.trials.runs.recovery import STILL_WITHIN_S
from experiments.trials.runs.summary import (
    ABOUT_DOUBT,
    DOUBT,
    GOODPUT,
    SHARES,
    comparisons,
    main_of,
    summaries,
    totals_text,
)

if TYPE_CHECKING:
    import pandas

    from experiments.trials.runs.records import Run

MOST_HEADLINES = 3  # sentences of a kind
NOT_VALID = "not valid, so do not trust it"
LATE = 1.1  # the last flow is a straggler if it takes so many times as long as 95 % of all
LEAST_STILL_S = 0.2  # Linux's shortest retransmission time-out


# Experiments whose first system the papers compare with the second, and how many times as fast it
# was there: Guo 2009, section 7.5, and Guo 2008, section 7.3.
PAPERS_RATIOS = {"demo": 2.9, "bcube-tree": 2.9, "dcell-tree": 1.96}


def headline(run: Run) -> list[str]:
    """Return what came of a run in sentences, a system's faults among them.

    Figures of trials that are not valid are marked as in the terminal.
    """
    name, systems = run.manifest["plan"]["name"], run.systems
    ratio = PAPERS_RATIOS.get(name)
    arrived = [system for system in systems if len(run.of(system).flows)]
    volumes = run.manifest["plan"]["workload"]["volume_bytes"] is not None
    if ratio and volumes and arrived[:2] == systems[:2]:
        said = [comparison(run, systems[0], systems[1], ratio)]
    else:
        said = [*comparisons(summaries(run), main_of(run))] or [
            f"{one['system']}: {totals_text(one)}{'' if one['valid'] else f' ({NOT_VALID})'}."
            for one in run.records[:MOST_HEADLINES]
            if totals_text(one)
        ]
    struck = [system for system in arrived if len(run.of(system).events)]
    wholes = [system for system in systems if system not in struck]
    networks = {one["label"] or one["network"]: one["network"] for one in _planned(run)}
    for system in struck[:MOST_HEADLINES]:
        whole = next((one for one in wholes if networks.get(one) == networks.get(system)), "")
        if len(run.of(system).records) == 1:
            said.append(after_fault(run, system, whole))
    return said


def _planned(run: Run) -> list[dict[str, Any]]:
    planned: list[dict[str, Any]] = run.manifest["plan"]["systems"]
    return planned


def comparison(run: Run, ours: str, theirs: str, papers: float) -> str:
    """Return how much sooner one system was done than another, beside what the paper measured."""
    ours_s, theirs_s = _done_s(run, ours), _done_s(run, theirs)
    if ours_s is None or theirs_s is None:
        return f"Not all flows of {ours} and {theirs} came to their end: the report says why."
    doubt = [one for one in (ours, theirs) if run.of(one).valid().records != run.of(one).records]
    flows = run.of(ours).flows
    much = f"{len(flows)} flows of {units.size(float(flows.volume_bytes.iloc[0]))}"
    return (
        f"{ours} moved {much} in {units.time(ours_s)}, the {theirs} in {units.time(theirs_s)}: "
        f"{theirs_s / ours_s:.1f} times as fast; the paper measured {papers:g}."
        + (f" Do not trust this: {doubtful_trials(doubt)}." if doubt else "")
    )


def doubtful_trials(systems: list[str]) -> str:
    """Return in words that trials of these systems are not valid."""
    return f"not all trials of {' and '.join(systems)} are valid"


def after_fault(run: Run, system: str, whole: str) -> str:
    """Return what a fault did to a system, beside the same system without it."""
    own = run.of(system)
    struck = own.events[(own.events.event != "healed") & (own.events.reason == "")]
    healed = own.events[own.events.event == "healed"]
    if own.flows.empty:
        return f"{system}: its trial came to no end."
    if struck.empty:
        return f"Nothing failed in {system}: all was done before."
    fault = struck.iloc[0]
    parts = [f"{fault.event} of {fault.what.replace(' ', '-')} at {units.time(fault.at_s)}"]
    if units.known(fault.detected_s):
        parts.append(f"noticed after {units.time(fault.detected_s)}")
    still_s = _stood_still_s(own, fault.at_s)
    cut_off = _cut_off(own, fault.at_s, float(healed.at_s.min())) if len(healed) else 0
    if cut_off:
        parts.append(f"{_count(cut_off, 'flow')} got nothing through until it was mended")
    elif still_s:
        count = _count(len(still_s), "flow")
        parts.append(f"at once {count} stood still, the longest for {units.time(max(still_s))}")
    else:
        parts.append(f"no flow stood still for {units.time(LEAST_STILL_S)}")
    done_s, whole_s = _done_s(run, system), _done_s(run, whole)
    end = f"all was done after {units.time(done_s)}" if done_s else "not all flows came to an end"
    beside = f" instead of {units.time(whole_s)}" if done_s and whole_s else ""
    doubt = f" ({doubtful_trials([system])})" if own.valid().records != own.records else ""
    return f"{system}: {'; '.join([*parts, end + beside])}{doubt}."


def _cut_off(run: Run, from_s: float, until_s: float) -> int:
    """Return how many flows delivered nothing between two moments, but for what queues held."""
    rows = run.intervals
    within = rows[(rows.begin_s >= from_s + LEAST_STILL_S) & (rows.end_s <= until_s)]
    return int((within.groupby(["trial", "flow"]).delivered_bytes.sum() == 0).sum())


def _stood_still_s(run: Run, from_s: float) -> list[float]:
    """Return how long each flow stood still that did, from soon after that moment on.

    Shorter pauses than a retransmission time-out have no fault as their reason: each of many flows
    on a cable has some.
    """
    flows = run.intervals.groupby(["trial", "flow"])
    pauses = (pause for _, own in flows for pause in _pauses(own))
    until_s = from_s + STILL_WITHIN_S
    return [
        took_s
        for begin_s, took_s in pauses
        if from_s <= begin_s <= until_s and took_s >= LEAST_STILL_S
    ]


def times(run: Run) -> str:
    """Return a table of when flows were done: the median, 95 of 100, and the last."""
    rows = [["system", "valid", "goodput", "of bound", "median", "95th pct", "last flow"]]
    rows.append(["", "", GOODPUT.unit, "%", "s", "s", "s"])
    doubted = False
    for system in run.systems:
        own = run.of(system)
        trials, ends = own.trials, _ends_s(own)
        bound = trials.goodput_bps / trials[SHARES["of_bound"]]
        shown = [trials.goodput_bps.mean() * GOODPUT.scale, bound.mean() * 100]
        shown += [*numpy.quantile(ends, (0.5, 0.95, 1.0))] if len(ends) else [None] * 3
        valid = len(own.valid().records)
        mark = "" if valid == len(own.records) else DOUBT
        doubted |= bool(mark)
        cells = [
            units.three_figures(float(one)) + mark if units.known(one) else "-" for one in shown
        ]
        rows.append([system, f"{valid}/{len(own.records)}", *cells])
    return "\n".join([columns(rows, range(1, len(rows[0]))), *[ABOUT_DOUBT] * doubted])


def stragglers(run: Run) -> Iterator[str]:
    """Yield of each trial whose last flow was late which one it was, and what held it up."""
    for system in run.systems:
        for trial, flows in run.of(system).flows.groupby("trial"):
            done = flows[flows.status == COMPLETED]
            if len(done) and done.end_s.max() > LATE * done.end_s.quantile(0.95):
                late = done.loc[done.end_s.idxmax()]
                yield f"{system}: {_held_up(run, int(trial), late, done.end_s.quantile(0.95))}."


def _held_up(run: Run, trial: int, flow: Any, others_s: float) -> str:
    """Return which flow was the last, what it lost, how long it stood still, and where."""
    parts = [
        f"the last flow, {flow.source} to {flow.destination}, took "
        f"{units.time(flow.end_s - others_s)} longer than 95 % of them"
    ]
    if units.known(flow.retransmits):
        parts.append(f"it sent {_count(int(flow.retransmits), 'packet')} again")
    own = run.intervals[(run.intervals.trial == trial) & (run.intervals.flow == flow.flow)]
    pauses = [took_s for _, took_s in _pauses(own) if took_s >= LEAST_STILL_S]
    if pauses:
        parts.append(f"it {_still(pauses)}, as TCP does after a retransmission time-out")
    crossed = _crossed(run.links[run.links.trial == trial], flow.path.split())
    worst = max(crossed, key=lambda link: link["dropped_packets"], default=None)
    if worst and worst["dropped_packets"]:
        where = f"{worst['from']} to {worst['to']}"
        parts.append(
            f"the port from {where} dropped the most on its way, "
            f"{_count(int(worst['dropped_packets']), 'packet')} of all flows'"
        )
    return "; ".join(parts)


def _still(pauses: list[float]) -> str:
    """Return how often a flow stood still, and for how long, as everywhere: the longest pause."""
    longest = units.time(max(pauses))
    if len(pauses) == 1:
        return f"stood still once, for {longest}"
    return f"stood still {len(pauses)} times, the longest for {longest}"


def _pauses(intervals: pandas.DataFrame) -> Iterator[tuple[float, float]]:
    """Yield each stretch of intervals in which nothing arrived: when it began, and how long."""
    rows = intervals.sort_values("begin_s").itertuples()
    for still, stretch in groupby(rows, key=lambda row: row.delivered_bytes == 0):
        if still:
            first, *_ = own = [*stretch]
            yield first.begin_s, sum(row.end_s - row.begin_s for row in own)


def _crossed(links: pandas.DataFrame, servers: list[str]) -> list[dict[str, Any]]:
    """Return the links between the servers of a path, over a switch or several in between.

    Where several ways of as many switches lead from one to the next, which it was is not known,
    and they are left out.
    """
    leaving: dict[str, list[dict[str, Any]]] = {}
    for link in links.to_dict("records"):
        leaving.setdefault(link["from"], []).append(link)
    found = []
    for near, far in pairwise(servers):
        ways = [[link] for link in leaving.get(near, [])]
        while ways and not any(way[-1]["to"] == far for way in ways):
            ways = list(_longer(ways, leaving))
        there = [way for way in ways if way[-1]["to"] == far]
        found += there[0] if len(there) == 1 else []
    return found


def _longer(
    ways: Iterable[list[dict[str, Any]]], leaving: dict[str, list[dict[str, Any]]]
) -> Iterator[list[dict[str, Any]]]:
    """Yield the ways with one more link: servers do not relay here, and nothing turns back."""
    for way in ways:
        passed = {link["from"] for link in way}
        if way[-1]["to"].startswith("s"):
            yield from ([*way, link] for link in leaving[way[-1]["to"]] if link["to"] not in passed)


def _done_s(run: Run, system: str) -> float | None:
    """Return when the last flow of a system was done, on average over its trials."""
    ends_s = run.of(system).trials.completion_s
    return float(ends_s.mean()) if len(ends_s) and ends_s.notna().all() else None


def _ends_s(run: Run) -> list[float]:
    flows = run.flows
    return [float(end_s) for end_s in flows[flows.status == COMPLETED].end_s]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
