"""The data series of a run's figures: functions from one DataFrame to another.

The input tables are those of trials/runs/schema.py. Rows of invalid trials are kept, with ``valid``
false: figures mark them, and means exclude them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pillarbox.experiments.base import units
from pillarbox.experiments.models.workloads.flows import COMPLETED
from pillarbox.experiments.runs.trials.trial_faults import HEALED, REVIVE
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

TRIAL = ["system", "repeat", "trial", "valid"]  # columns that identify a trial in each table
BINS = 150  # approximate number of time bins of a plot over time
AFTERWARDS = ("detected_s", "rerouted_s", "recovered_s")  # event table's columns of recovery times
MOST_POINTS = 400  # maximum number of points of a plotted curve
NEARER_S = 0.1  # minimum width of a plot's time bin, in seconds


def bin_width_s(intervals: pd.DataFrame) -> float:
    """Return the width in seconds of a plot's time bins, for about BINS bins."""
    if intervals.empty:
        return NEARER_S
    wish = max(float(intervals["end_s"].max()) / BINS, NEARER_S)
    power = 10.0 ** np.floor(np.log10(wish))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= wish * 0.999))


def goodput_over_time(intervals: pd.DataFrame, bin_s: float) -> pd.DataFrame:
    """Return each trial's total goodput per time bin: TRIAL, at_s (middle of bin), goodput_bps.

    The bytes of an interval are spread evenly over its time. The flows' intervals may differ.
    """
    parts = []
    for trial, rows in _groups_by_trial(intervals):
        rows = rows[rows["end_s"] > rows["begin_s"]]
        if rows.empty:
            continue
        edges = np.arange(0.0, float(rows["end_s"].max()) + bin_s, bin_s)
        bits = np.diff(delivered_by(rows, edges)) * 8
        middles = (edges[:-1] + edges[1:]) / 2
        parts.append(_with_trial(trial, at_s=middles, goodput_bps=bits / bin_s))
    return _concatenated(parts, "at_s", "goodput_bps")


def of_whole_bins(series: pd.DataFrame, intervals: pd.DataFrame, bin_s: float) -> pd.DataFrame:
    """Return a goodput series without time bins that lie mostly after a trial's end.

    In such a bin goodput would seem to fall, although the flows have ended.
    """
    ends = series["trial"].map(intervals.groupby("trial")["end_s"].max())
    return series[(series["at_s"] <= ends) | (series["at_s"] < bin_s)]


def delivered_by(intervals: pd.DataFrame, moments: np.ndarray) -> np.ndarray:
    """Return the total bytes that all flows of a trial have delivered until each given time."""
    begins, ends = (intervals[column].to_numpy(float) for column in ("begin_s", "end_s"))
    slopes = intervals["delivered_bytes"].to_numpy(float) / np.maximum(ends - begins, 1e-9)
    times = np.concatenate([begins, ends])
    order = np.argsort(times, kind="stable")
    times, changes = times[order], np.concatenate([slopes, -slopes])[order]
    rates = np.cumsum(changes)[:-1]
    total = np.concatenate([[0.0], np.cumsum(rates * np.diff(times))])
    delivered: np.ndarray = np.interp(moments, times, total)
    return delivered


def mean_of_valid(series: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Return a data series' mean over each system's valid trials: system, x, y, trials.

    Where one trial has no value (it had ended by then) and another has, it counts as zero.
    """
    valid = series[series["valid"].fillna(False).astype(bool)]
    parts = []
    for system, rows in valid.groupby("system", sort=False):
        wide = rows.pivot_table(index=x, columns="trial", values=y, aggfunc="first").fillna(0.0)
        part = pd.DataFrame({x: wide.index, y: wide.mean(axis=1).to_numpy()})
        parts.append(part.assign(system=system, trials=wide.shape[1]))
    return _concatenated(parts, "system", x, y, "trials")


def ideal_over_time(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the ideal goodput of each trial as a step function: TRIAL, at_s, ideal_bps.

    Records without steps have one row if the flows have a duration: the ideal is then constant.
    """
    parts = []
    for record in records:
        steps = record.get("ideal_steps") or []
        if not steps and units.known(record["ideal_bps"]) and not units.known(record["ideal_s"]):
            steps = [(0.0, record["ideal_bps"])]
        if steps:
            at_s, bps = np.array(steps, float).T
            trial = {name: record[name] for name in TRIAL}
            parts.append(_with_trial(trial, at_s=at_s, ideal_bps=bps))
    return _concatenated(parts, "at_s", "ideal_bps")


def of_first_trials(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a table's rows of each system's first valid trial, or else its first trial."""
    kept = rows[_is_counted(rows)]
    return kept[kept["trial"] == kept.groupby("system")["trial"].transform("min")]


def throughput_shares(flows: pd.DataFrame) -> pd.DataFrame:
    """Return the cumulative distribution of the flows' goodput for each compared system.

    Columns: system, valid, goodput_bps, share (of the flows with at most this goodput) and failed
    (number of failed flows). The flows of all valid trials of a system form one distribution, those
    of its invalid trials another. A failed flow has no goodput but is part of the total, so that
    the distribution ends below 1.
    """
    parts = []
    for (system, valid), rows in _by_validity(flows):
        done = rows.loc[rows["status"] == COMPLETED, "goodput_bps"].astype("float64").dropna()
        if done.empty:
            continue
        points = _thinned(np.sort(done.to_numpy()))
        counts = np.searchsorted(np.sort(done.to_numpy()), points, side="right")
        points, counts = np.insert(points, 0, points[0]), np.insert(counts, 0, 0)
        part = pd.DataFrame({"goodput_bps": points, "share": counts / len(rows)})
        parts.append(part.assign(system=system, valid=valid, failed=len(rows) - len(done)))
    return _concatenated(parts, "system", "valid", "goodput_bps", "share", "failed")


def flows_done(flows: pd.DataFrame) -> pd.DataFrame:
    """Return the share of completed flows of each trial over time: TRIAL, at_s, share."""
    parts = []
    for trial, rows in _groups_by_trial(flows):
        ends = rows.loc[rows["status"] == COMPLETED, "end_s"].astype("float64").dropna()
        parts.append(_with_trial(trial, **_step_curve(ends.to_numpy(), len(rows))))
    return _concatenated(parts, "at_s", "share")


def ideal_done(flows: pd.DataFrame) -> pd.DataFrame:
    """Return the ideal share of completed flows over time in each system's first valid trial.

    Columns: system, at_s, share.
    """
    parts = []
    for system, rows in flows[_is_counted(flows)].groupby("system", sort=False):
        first = rows[rows["trial"] == rows["trial"].min()]
        ends = first["ideal_end_s"].astype("float64").dropna().to_numpy()
        if len(ends):
            parts.append(pd.DataFrame(_step_curve(ends, len(first))).assign(system=system))
    return _concatenated(parts, "system", "at_s", "share")


def bytes_done(intervals: pd.DataFrame, flows: pd.DataFrame) -> pd.DataFrame:
    """Return the share of delivered bytes of each trial over time: TRIAL, at_s, share."""
    volumes = flows.groupby("trial")["volume_bytes"].sum()
    parts = []
    for trial, rows in _groups_by_trial(intervals):
        volume = float(volumes.get(trial["trial"], 0))
        if volume > 0 and len(rows):
            moments = np.linspace(0.0, float(rows["end_s"].max()), 2 * BINS)
            shares = delivered_by(rows, moments) / volume
            parts.append(_with_trial(trial, at_s=moments, share=shares))
    return _concatenated(parts, "at_s", "share")


def link_loads(links: pd.DataFrame, topologies: Mapping[str, Topology]) -> pd.DataFrame:
    """Return the mean load of each link over a system's valid trials, heaviest first.

    Columns: system, valid, from, to, port, level (missing where the network is not known) and
    load, the share of the time in which the link was busy. A system without a valid trial has the
    mean of its invalid ones, and ``valid`` false.
    """
    kept = links[_is_counted(links)]
    if kept.empty:
        return _concatenated([], "system", "valid", "from", "to", "port", "level", "load")
    keys = ["system", "valid", "from", "to", "port"]
    loads = kept.groupby(keys, sort=False, as_index=False)["busy_share"].mean()
    loads = loads.rename(columns={"busy_share": "load"}).dropna(subset=["load"])
    loads["level"] = [
        level_of(topologies.get(system), start, int(port))
        for system, start, port in zip(loads["system"], loads["from"], loads["port"], strict=True)
    ]
    return loads.sort_values(["system", "load"], ascending=[True, False], kind="stable")


def level_of(topology: Topology | None, start: str, port: int) -> float:
    """Return the network level of the cable at a node's port, or NaN without a cable."""
    if topology is None:
        return float("nan")
    try:
        return float(topology.plug(topology.node(start), port).level)
    except PillarboxError:
        return float("nan")


def load_spread(loads: pd.DataFrame) -> pd.DataFrame:
    """Return the spread of link loads by cable level: system, level, links, mean, sd, most."""
    levels = loads.assign(level=loads["level"].fillna(-1))
    grouped = levels.groupby(["system", "level"], as_index=False)["load"]
    spread: pd.DataFrame = grouped.agg(
        links="size", mean="mean", sd=lambda load: load.std(ddof=0), most="max"
    )
    return spread


def fault_marks(events: pd.DataFrame) -> pd.DataFrame:
    """Return the fault events of each system's first valid trial, for a plot.

    Columns: system, trial, at_s, event, what, reason, cut_off (see `with_cut_off_column`) and, as
    times after the barrier, detected_s, rerouted_s and recovered_s. Other trials may have other
    faults.
    """
    kept = with_cut_off_column(of_first_trials(events))
    moments = {name: kept["at_s"] + kept[name].astype("float64") for name in AFTERWARDS}
    marks: pd.DataFrame = kept.assign(**moments).sort_values(["system", "at_s"], kind="stable")
    return marks[["system", "trial", "at_s", "event", "what", "reason", "cut_off", *AFTERWARDS]]


def with_cut_off_column(events: pd.DataFrame) -> pd.DataFrame:
    """Return fault events with a column ``cut_off``: True if flows resumed only after the repair.

    The network had no other path, or found none, so ``rerouted_s`` of these events is removed.
    """
    repairs = events[events["event"].isin((HEALED, REVIVE)) & (events["reason"].fillna("") == "")]
    cut_off = []
    for event in events.to_dict("records"):
        own = repairs[(repairs["trial"] == event["trial"]) & (repairs["what"] == event["what"])]
        later = own.loc[own["at_s"] > event["at_s"], "at_s"]
        moved_s = event["at_s"] + event["rerouted_s"]
        cut_off.append(bool(len(later) and units.known(moved_s) and moved_s >= later.min()))
    marked = events.assign(cut_off=pd.Series(cut_off, index=events.index, dtype="bool"))
    rerouted = marked["rerouted_s"].astype("float64").mask(marked["cut_off"])
    return marked.assign(rerouted_s=rerouted)


def fault_times(events: pd.DataFrame) -> pd.DataFrame:
    """Return the recovery times after each kind of fault, over all valid trials of a system.

    Columns: system, event, events (number of events), cut_off (number of events after which flows
    resumed only after the repair), the median of each of AFTERWARDS and, with the suffix ``_most``,
    its maximum.
    """
    done = with_cut_off_column(events[_is_counted(events) & (events["reason"].fillna("") == "")])
    if done.empty:
        return _concatenated([], "system", "event", "events", "cut_off", *AFTERWARDS)
    measures = {name: (name, "median") for name in AFTERWARDS}
    measures |= {f"{name}_most": (name, "max") for name in AFTERWARDS}
    grouped = done.groupby(["system", "event"], sort=False, as_index=False)
    times: pd.DataFrame = grouped.agg(
        events=("at_s", "size"), cut_off=("cut_off", "sum"), **measures
    )
    return times


def shown_trial(
    records: Sequence[Mapping[str, Any]], events: pd.DataFrame, systems: Sequence[str]
) -> int | None:
    """Return the number of the trial to show as an example; None without a completed trial.

    Trials with faults are preferred, then valid trials, then those of the plan's first system.
    """
    faulty = set(events["trial"])

    def place(one: Mapping[str, Any]) -> tuple[bool, bool, int]:
        return one["trial"] not in faulty, not one["valid"], systems.index(one["system"])

    ended = [one for one in records if one["status"] == COMPLETED]
    return int(min(ended, key=place)["trial"]) if ended else None


def of_trials(series: pd.DataFrame, trials: pd.Series) -> pd.DataFrame:
    """Return a plot's data rows that belong to the given trials."""
    return series[series["trial"].isin(trials)]


def slowest(flows: pd.DataFrame, count: int = 5) -> pd.DataFrame:
    """Return the slowest completed flows of each system's valid trials."""
    done = flows[_is_counted(flows) & (flows["status"] == COMPLETED)]
    order = done.sort_values("goodput_bps", kind="stable")
    return order.groupby("system", sort=False).head(count).sort_values("system", kind="stable")


def failed(flows: pd.DataFrame) -> pd.DataFrame:
    """Return the failed flows of all trials."""
    return flows[flows["status"] != COMPLETED]


def _is_counted(rows: pd.DataFrame) -> pd.Series:
    """Return a mask of the rows to count: valid trials, or a system's invalid ones if all are."""
    valid = rows["valid"].fillna(False).astype(bool)
    return valid | ~valid.groupby(rows["system"]).transform("any").astype(bool)


def _by_validity(rows: pd.DataFrame):  # type: ignore[no-untyped-def]
    """Return groups of rows by system and validity; a missing validity counts as invalid."""
    marked = rows.assign(valid=rows["valid"].fillna(False).astype(bool))
    return marked.groupby(["system", "valid"], sort=False)


def _groups_by_trial(rows: pd.DataFrame):  # type: ignore[no-untyped-def]
    """Yield each trial's TRIAL columns and its rows of a table."""
    for _, part in rows.groupby("trial", sort=True):
        trial = part.iloc[0][TRIAL].to_dict()
        trial["valid"] = trial["valid"] is True or trial["valid"] is np.True_
        yield trial, part


def _with_trial(trial: Mapping[str, object], **columns: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(columns).assign(**trial)


def _step_curve(ends: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """Return the step curve of completed flows: times, and shares that rise at each flow's end."""
    moments = _thinned(np.sort(ends))
    heights = np.searchsorted(np.sort(ends), moments, side="right") / max(count, 1)
    return {"at_s": np.concatenate([[0.0], moments]), "share": np.concatenate([[0.0], heights])}


def _thinned(values: np.ndarray) -> np.ndarray:
    """Return at most MOST_POINTS of a curve's sorted values, including both ends."""
    if len(values) <= MOST_POINTS:
        return values
    thinned: np.ndarray = values[np.linspace(0, len(values) - 1, MOST_POINTS).round().astype(int)]
    return thinned


def _concatenated(parts: list[pd.DataFrame], *columns: str) -> pd.DataFrame:
    """Return the concatenated tables, or an empty table with the given columns."""
    if parts:
        return pd.concat(parts, ignore_index=True)
    names = list(columns) if "system" in columns else [*TRIAL, *columns]
    return pd.DataFrame({name: pd.Series(dtype="object") for name in names})
