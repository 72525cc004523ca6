"""The main results of a run as sentences: comparisons, effects of faults, and the last flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy

from pillarbox.experiments.base import units
from pillarbox.experiments.base.text import columns
from pillarbox.experiments.models.workloads.flows import COMPLETED
from pillarbox.experiments.runs.trials.recovery import STILL_WITHIN_S
from pillarbox.experiments.runs.trials.summary import (
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

    from pillarbox.experiments.runs.trials.records import Run

MOST_HEADLINES = 3  # maximum number of headline sentences of a kind
NOT_VALID = "not valid, so do not trust it"
LATE = 1.1  # a straggler's minimum ratio of end time to the 95th percentile
LEAST_STILL_S = 0.2  # minimum retransmission timeout of Linux, in seconds


# Speed ratio of the first to the second network in the papers, by experiment. Sources: Guo 2009,
# section 7.5, and Guo 2008, section 7.3.
PAPERS_RATIOS = {"demo": 2.9, "bcube-tree": 2.9, "dcell-tree": 1.96}


def headline(run: Run) -> list[str]:
    """Return the main results of a run as sentences, including the effects of faults.

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
    networks = {one["label"] or one["network"]: one["network"] for one in _planned_systems(run)}
    for system in struck[:MOST_HEADLINES]:
        whole = next((one for one in wholes if networks.get(one) == networks.get(system)), "")
        if len(run.of(system).records) == 1:
            said.append(after_fault(run, system, whole))
    return said


def _planned_systems(run: Run) -> list[dict[str, Any]]:
    planned: list[dict[str, Any]] = run.manifest["plan"]["systems"]
    return planned


def comparison(run: Run, ours: str, theirs: str, papers: float) -> str:
    """Return the speed ratio of two compared systems as a sentence, with the paper's ratio."""
    ours_s, theirs_s = _mean_completion_s(run, ours), _mean_completion_s(run, theirs)
    if ours_s is None or theirs_s is None:
        return f"Not all flows of {ours} and {theirs} are completed: the report lists the reasons."
    doubt = [one for one in (ours, theirs) if run.of(one).valid().records != run.of(one).records]
    flows = run.of(ours).flows
    much = f"{len(flows)} flows of {units.size(float(flows.volume_bytes.iloc[0]))}"
    return (
        f"{ours} moved {much} in {units.time(ours_s)}, the {theirs} in {units.time(theirs_s)}: "
        f"{theirs_s / ours_s:.1f} times as fast; the paper measured {papers:g}."
        + (f" Do not trust this: {doubtful_trials(doubt)}." if doubt else "")
    )


def doubtful_trials(systems: list[str]) -> str:
    """Return a sentence that trials of the given systems are not valid."""
    return f"not all trials of {' and '.join(systems)} are valid"


def after_fault(run: Run, system: str, whole: str) -> str:
    """Return a sentence on a fault's effect on a system, compared with `whole` without faults."""
    own = run.of(system)
    struck = own.events[(own.events.event != "healed") & (own.events.reason == "")]
    healed = own.events[own.events.event == "healed"]
    if own.flows.empty:
        return f"{system}: the trial has no flows, as it failed."
    if struck.empty:
        return f"No fault in {system}: all flows were completed before."
    fault = struck.iloc[0]
    parts = [f"{fault.event} of {fault.what.replace(' ', '-')} at {units.time(fault.at_s)}"]
    if units.known(fault.detected_s):
        parts.append(f"detected after {units.time(fault.detected_s)}")
    still_s = _stalls_s(own, fault.at_s)
    cut_off = _stopped_flow_count(own, fault.at_s, float(healed.at_s.min())) if len(healed) else 0
    if cut_off:
        parts.append(f"{_counted_noun(cut_off, 'flow')} delivered nothing until the repair")
    elif still_s:
        count = _counted_noun(len(still_s), "flow")
        parts.append(f"{count} stalled, the longest for {units.time(max(still_s))}")
    else:
        parts.append(f"no flow stalled for {units.time(LEAST_STILL_S)}")
    done_s, whole_s = _mean_completion_s(run, system), _mean_completion_s(run, whole)
    end = (
        f"all flows completed after {units.time(done_s)}" if done_s else "some flows not completed"
    )
    comparison_text = f" instead of {units.time(whole_s)}" if done_s and whole_s else ""
    doubt = f" ({doubtful_trials([system])})" if own.valid().records != own.records else ""
    return f"{system}: {'; '.join([*parts, end + comparison_text])}{doubt}."


def _stopped_flow_count(run: Run, from_s: float, until_s: float) -> int:
    """Return the number of flows that delivered nothing between two times after a fault."""
    rows = run.intervals
    within = rows[(rows.begin_s >= from_s + LEAST_STILL_S) & (rows.end_s <= until_s)]
    return int((within.groupby(["trial", "flow"]).delivered_bytes.sum() == 0).sum())


def _stalls_s(run: Run, from_s: float) -> list[float]:
    """Return the durations of flow stalls that begin shortly after a fault, in seconds.

    Pauses below the retransmission timeout are left out. They occur without faults if many flows
    share a cable.
    """
    flows = run.intervals.groupby(["trial", "flow"])
    pauses = (pause for _, own in flows for pause in _delivery_pauses(own))
    until_s = from_s + STILL_WITHIN_S
    return [
        took_s
        for begin_s, took_s in pauses
        if from_s <= begin_s <= until_s and took_s >= LEAST_STILL_S
    ]


def times(run: Run) -> str:
    """Return the text table of flow completion times: median, 95th percentile and last flow."""
    rows = [["system", "valid", "goodput", "of bound", "median", "95th pct", "last flow"]]
    rows.append(["", "", GOODPUT.unit, "%", "s", "s", "s"])
    doubted = False
    for system in run.systems:
        own = run.of(system)
        trials, ends = own.trials, _completion_times_s(own)
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
    """Yield a sentence on the last flow of each trial with a straggler, and the causes."""
    for system in run.systems:
        for trial, flows in run.of(system).flows.groupby("trial"):
            done = flows[flows.status == COMPLETED]
            if len(done) and done.end_s.max() > LATE * done.end_s.quantile(0.95):
                late, others_s = done.loc[done.end_s.idxmax()], done.end_s.quantile(0.95)
                yield f"{system}: {_straggler_text(run, int(trial), late, others_s)}."


def _straggler_text(run: Run, trial: int, flow: Any, others_s: float) -> str:
    """Return a sentence on a straggler's delay, retransmissions and stalls, and on port drops."""
    parts = [
        f"the last flow, {flow.source} to {flow.destination}, took "
        f"{units.time(flow.end_s - others_s)} longer than 95 % of them"
    ]
    if units.known(flow.retransmits):
        parts.append(f"it retransmitted {_counted_noun(int(flow.retransmits), 'packet')}")
    own = run.intervals[(run.intervals.trial == trial) & (run.intervals.flow == flow.flow)]
    pauses = [took_s for _, took_s in _delivery_pauses(own) if took_s >= LEAST_STILL_S]
    if pauses:
        parts.append(f"it {_stall_text(pauses)}, as TCP does after a retransmission timeout")
    crossed = _links_on_path(run.links[run.links.trial == trial], flow.path.split())
    worst = max(crossed, key=lambda link: link["dropped_packets"], default=None)
    if worst and worst["dropped_packets"]:
        where = f"{worst['from']} to {worst['to']}"
        parts.append(
            f"of the ports on its path, {where} dropped the most: "
            f"{_counted_noun(int(worst['dropped_packets']), 'packet')} of all flows"
        )
    return "; ".join(parts)


def _stall_text(pauses: list[float]) -> str:
    """Return the number of a flow's stalls and the longest stall as text."""
    longest = units.time(max(pauses))
    if len(pauses) == 1:
        return f"stalled once, for {longest}"
    return f"stalled {len(pauses)} times, the longest for {longest}"


def _delivery_pauses(intervals: pandas.DataFrame) -> Iterator[tuple[float, float]]:
    """Yield the begin and the duration of each pause of a flow, in which nothing arrived."""
    rows = intervals.sort_values("begin_s").itertuples()
    for still, stretch in groupby(rows, key=lambda row: row.delivered_bytes == 0):
        if still:
            first, *_ = own = [*stretch]
            yield first.begin_s, sum(row.end_s - row.begin_s for row in own)


def _links_on_path(links: pandas.DataFrame, servers: list[str]) -> list[dict[str, Any]]:
    """Return the link records on a path of servers, including links to and from switches.

    If several shortest switch paths lead from one server to the next, the path taken is unknown,
    and their links are left out.
    """
    leaving: dict[str, list[dict[str, Any]]] = {}
    for link in links.to_dict("records"):
        leaving.setdefault(link["from"], []).append(link)
    found = []
    for near, far in pairwise(servers):
        paths = [[link] for link in leaving.get(near, [])]
        while paths and not any(path[-1]["to"] == far for path in paths):
            paths = list(_extended_paths(paths, leaving))
        reaching = [path for path in paths if path[-1]["to"] == far]
        found += reaching[0] if len(reaching) == 1 else []
    return found


def _extended_paths(
    paths: Iterable[list[dict[str, Any]]], leaving: dict[str, list[dict[str, Any]]]
) -> Iterator[list[dict[str, Any]]]:
    """Yield each path through switches extended by one link, without repeated nodes."""
    for path in paths:
        passed = {link["from"] for link in path}
        if path[-1]["to"].startswith("s"):
            yield from (
                [*path, link] for link in leaving[path[-1]["to"]] if link["to"] not in passed
            )


def _mean_completion_s(run: Run, system: str) -> float | None:
    """Return a system's mean completion time of the last flow over its trials, in seconds."""
    ends_s = run.of(system).trials.completion_s
    return float(ends_s.mean()) if len(ends_s) and ends_s.notna().all() else None


def _completion_times_s(run: Run) -> list[float]:
    flows = run.flows
    return [float(end_s) for end_s in flows[flows.status == COMPLETED].end_s]


def _counted_noun(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
