"""The figures of a run, drawn from the data series of series.py; nothing is computed here.

Each function returns a matplotlib figure, or None without data. `systems` are all systems of
the run in their order: a system has the same colour in every figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pillarbox.experiments.base import units
from pillarbox.experiments.runs.reporting import style
from pillarbox.experiments.runs.reporting.drawing.network_figure import COLOURS, INK

PANEL = 1.75  # height of each panel of a figure, in inches
# Phases of recovery after a fault: column of the phase's end, legend, opacity and hatch.
SPANS = (
    ("detected_s", "until detected", 0.55, None),
    ("rerouted_s", "until rerouted", 0.0, style.HATCH),
    ("recovered_s", "until recovered", 0.1, None),
)
CUT_OFF_LOOK = 0.0, ".."  # opacity and hatch of the phase in which a fault leaves no path
CUT_OFF = "no other path: until repair and recovery"  # legend of the phase without another path
SAME = 0.01  # maximum distance of faults that share a marker line, as a share of the time axis
MOST_MARKS = 12  # maximum number of faults marked in a figure of all trials


def goodput_figure(
    series: pd.DataFrame,
    means: pd.DataFrame,
    ideals: pd.DataFrame,
    marks: pd.DataFrame,
    systems: list[str],
) -> Figure | None:
    """Draw total goodput over time: the mean and the trials of each system, and faults as lines."""
    if series.empty:
        return None
    with style.looks():
        figure, axes = _figure_with_axes()
        entries: dict[str, Any] = {}
        for index, system in enumerate(systems):
            trials = series[series["system"] == system]
            mean = means[means["system"] == system]
            ideal = ideals[ideals["system"] == system]
            entries |= _goodput_lines(axes, index, system, trials, mean, ideal)
        moments = _distinct_times(marks["at_s"].astype(float), float(series["at_s"].max()) * SAME)
        for at_s in moments if len(moments) <= MOST_MARKS else ():
            line = axes.axvline(at_s, color=style.FAULT, linewidth=0.9, linestyle=(0, (2, 2)))
            entries["fault or repair"] = line
        _finish_goodput(axes, series, ideals)
        axes.set_xlabel("time after the start (s)")
        style.legend_outside(axes, entries)
        return figure


def faults_figure(
    series: pd.DataFrame, ideals: pd.DataFrame, marks: pd.DataFrame, systems: list[str]
) -> Figure | None:
    """Draw the goodput of one trial of each system, with the phases of recovery from each fault.

    `series` has only the trials of `marks`.
    """
    shown = [system for system in systems if (marks["system"] == system).any()]
    if series.empty or not shown:
        return None
    with style.looks():
        figure, panels = _figure_with_panels(shown)
        for axes, system in zip(panels, shown, strict=True):
            trial = series[series["system"] == system]
            ideal = ideals[ideals["system"] == system]
            own = marks[marks["system"] == system]
            valid = bool(trial["valid"].all())
            doubted, trusted = (trial.iloc[:0], trial) if valid else (trial, trial.iloc[:0])
            _goodput_lines(axes, systems.index(system), system, doubted, trusted, ideal)
            for number, mark in enumerate(own.itertuples(), start=1):
                _mark_fault(axes, number, mark)
            _finish_goodput(axes, series, ideals)
            axes.set_title(
                f"{_system_label(system, valid)}, trial {own['trial'].iloc[0] + 1}", pad=14
            )
        panels[-1].set_xlabel("time after the start (s); faults are numbered as in the table")
        looks = SPANS[:1] if marks["cut_off"].all() else SPANS
        spans = [
            Patch(label=label, **_span_properties(alpha, hatch)) for _, label, alpha, hatch in looks
        ]
        if marks["cut_off"].any():
            spans.append(Patch(label=CUT_OFF, **_span_properties(*CUT_OFF_LOOK)))
        figure.legend(handles=spans, loc="outside lower center", ncols=3)
        return figure


def throughput_figure(shares: pd.DataFrame, systems: list[str]) -> Figure | None:
    """Draw the cumulative distribution of the flows' goodput for each system."""
    if shares.empty:
        return None
    with style.looks():
        figure, axes = _figure_with_axes()
        entries: dict[str, Any] = {}
        groups = shares.groupby(["system", "valid"], sort=False)
        for (system, valid), rows in sorted(groups, key=lambda one: systems.index(one[0][0])):
            look = _line_properties(systems.index(system), bool(valid))
            (line,) = axes.step(rows["goodput_bps"], rows["share"], where="post", **look)
            count = int(rows["failed"].iloc[0])
            failures = f", {count} failed" if count else ""
            entries[_system_label(system, valid) + failures] = line
        axes.set_ylim(0, 1.02)
        axes.set_xlim(left=0)
        style.rate_axis(axes, shares["goodput_bps"], "x")
        axes.set_xlabel(axes.get_xlabel().replace("goodput", "goodput of a flow"))
        axes.set_ylabel("share of flows with\nat most this goodput")
        style.legend_outside(axes, entries)
        return figure


def completion_figure(
    flows_done: pd.DataFrame, bytes_done: pd.DataFrame, ideal: pd.DataFrame, systems: list[str]
) -> Figure | None:
    """Draw the shares of completed flows and of delivered bytes over time, one line per trial."""
    if flows_done.empty:
        return None
    with style.looks():
        figure = Figure(figsize=(style.WIDTH, style.HEIGHT * 0.9), layout="constrained")
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        entries: dict[str, Any] = {}
        for axes, curves, drawstyle in (
            (left, flows_done, "steps-post"),
            (right, bytes_done, "default"),
        ):
            for (system, _trial, valid), rows in curves.groupby(
                ["system", "trial", "valid"], sort=False
            ):
                look = _line_properties(systems.index(system), bool(valid)) | {"linewidth": 1.2}
                (line,) = axes.plot(rows["at_s"], rows["share"], drawstyle=drawstyle, **look)
                entries.setdefault(_system_label(system, valid), line)
        for system, rows in ideal.groupby("system", sort=False):
            look = _ideal_line_properties(systems.index(system))
            (line,) = left.plot(rows["at_s"], rows["share"], drawstyle="steps-post", **look)
            entries[f"{style.shown(system)}: ideal"] = line
        left.set(ylim=(0, 1.03), title="share of completed flows")
        right.set(title="share of delivered bytes")
        left.set_xlim(left=0)
        for axes in (left, right):
            axes.set_xlabel("time after the start (s)")
        style.legend_below(figure, entries)
        return figure


def links_figure(loads: pd.DataFrame, spread: pd.DataFrame, systems: list[str]) -> Figure | None:
    """Draw the sorted loads of all directed links by level, with mean and standard deviation."""
    shown = [system for system in systems if (loads["system"] == system).any()]
    if not shown:
        return None
    with style.looks():
        figure, panels = _figure_with_panels(shown, sharex=False)
        for axes, system in zip(panels, shown, strict=True):
            _link_bars(axes, loads[loads["system"] == system], spread[spread["system"] == system])
            valid = bool(loads.loc[loads["system"] == system, "valid"].iloc[0])
            axes.set_title(_system_label(system, valid))
            axes.set_ylabel("load")
            axes.set_ylim(0, max(1.0, float(loads["load"].max())) * 1.02)
            style.axis_units(axes.yaxis, lambda value: f"{value:.0%}".replace("%", " %"))
        panels[-1].set_xlabel("directed links, the busiest of each level first")
        return figure


# -- parts ---------------------------------------------------------------------------------------


def _figure_with_axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(style.WIDTH, style.HEIGHT), layout="constrained")
    return figure, figure.subplots()


def _figure_with_panels(systems: list[str], *, sharex: bool = True) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel per system, from top to bottom."""
    height = max(PANEL * len(systems) + 0.7, style.HEIGHT * 0.8)
    figure = Figure(figsize=(style.WIDTH, height), layout="constrained")
    panels = figure.subplots(len(systems), 1, squeeze=False, sharex=sharex, sharey=True)
    return figure, [axes for row in panels for axes in row]


def _system_label(system: str, valid: bool) -> str:
    return style.shown(system) + ("" if valid else " (invalid)")


def _line_properties(index: int, valid: bool) -> dict[str, Any]:
    """Return the matplotlib line properties of a system; lines of invalid trials are grey."""
    if not valid:
        dots = {"marker": style.marker_of(index), "markersize": 3.5, "markevery": 0.08}
        return {"color": style.INVALID, "linestyle": style.DOUBTED, "linewidth": 1.0, **dots}
    return {"color": style.colour_of(index), "linestyle": style.dashes_of(index)}


def _ideal_line_properties(index: int) -> dict[str, Any]:
    return {"color": style.colour_of(index), "linestyle": style.IDEAL, "linewidth": 1.3}


def _distinct_times(moments: Iterable[float], least_s: float) -> list[float]:
    """Return the sorted times of faults, without times closer than `least_s` to an earlier one."""
    kept: list[float] = []
    for at_s in sorted(moments):
        if not kept or at_s - kept[-1] >= least_s:
            kept.append(at_s)
    return kept


def _goodput_lines(
    axes: Axes,
    index: int,
    system: str,
    trials: pd.DataFrame,
    mean: pd.DataFrame,
    ideal: pd.DataFrame,
) -> dict[str, Any]:
    """Draw the goodput lines of one compared system; return their legend entries."""
    entries: dict[str, Any] = {}
    for (_, valid), rows in trials.groupby(["trial", "valid"], sort=False):
        look = _line_properties(index, bool(valid)) | {"linewidth": 0.8}
        look |= {"alpha": 0.35, "linestyle": "-"} if valid else {}
        (line,) = axes.plot(rows["at_s"], rows["goodput_bps"], **look)
        if not valid:
            entries[_system_label(system, False)] = line
    if not mean.empty:
        (line,) = axes.plot(mean["at_s"], mean["goodput_bps"], **_line_properties(index, True))
        count = int(mean["trials"].iloc[0]) if "trials" in mean else 1
        entries = {
            style.shown(system) + (f", mean of {count}" if count > 1 else ""): line
        } | entries
    if not ideal.empty:
        last_s = max([*trials["at_s"], *mean["at_s"], *ideal["at_s"]])
        at_s, bps = [*ideal["at_s"], last_s], [*ideal["ideal_bps"], ideal["ideal_bps"].iloc[-1]]
        (line,) = axes.plot(at_s, bps, drawstyle="steps-post", **_ideal_line_properties(index))
        entries[f"{style.shown(system)}: ideal"] = line
    return entries


def _finish_goodput(axes: Axes, series: pd.DataFrame, ideals: pd.DataFrame) -> None:
    """Set the axis limits of a goodput plot, from zero to the largest goodput or ideal."""
    values = [*series["goodput_bps"], *ideals["ideal_bps"]]
    most = max((float(value) for value in values if units.known(value)), default=0.0)
    axes.set_xlim(left=0)
    axes.set_ylim(0, most * 1.08 or 1.0)
    style.rate_axis(axes, values)


def _mark_fault(axes: Axes, number: int, mark: Any) -> None:
    """Mark a fault in a goodput plot: a numbered line, and the phases until recovery."""
    axes.axvline(mark.at_s, color=style.FAULT, linewidth=0.9)
    axes.annotate(
        f"{number}",
        (mark.at_s, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        size=8,
        color=style.FAULT,
    )
    begin_s = mark.at_s
    spans = [(name, alpha, hatch) for name, _, alpha, hatch in SPANS]
    if mark.cut_off:
        spans = [spans[0], ("recovered_s", *CUT_OFF_LOOK)]
    for name, alpha, hatch in spans:
        end_s = getattr(mark, name)
        if units.known(end_s) and end_s > begin_s:
            axes.axvspan(begin_s, end_s, **_span_properties(alpha, hatch))
            begin_s = end_s


def _span_properties(alpha: float, hatch: str | None) -> dict[str, Any]:
    # In SVG, a hatch has the opacity of its fill, and would be invisible on a pale fill.
    fill = "none" if hatch else to_rgba(style.FAULT, alpha)
    return {"facecolor": fill, "edgecolor": style.FAULT, "linewidth": 0, "hatch": hatch}


def _link_bars(axes: Axes, loads: pd.DataFrame, spread: pd.DataFrame) -> None:
    """Draw the link loads of one compared system as bars, in a block for each level."""
    left = 0
    handles: list[Artist] = []
    for row in spread.itertuples():
        rows = loads[loads["level"].fillna(-1) == row.level]
        values, end = rows["load"].to_numpy(float), left + len(rows)
        look = _bar_properties(int(row.level), bool(rows["valid"].iloc[0]))
        axes.stairs(values, range(left, end + 1), fill=True, **look)
        axes.plot([left, end], [row.mean, row.mean], color=INK, linewidth=1.2)
        low, high = row.mean - row.sd, row.mean + row.sd
        axes.fill_between([left, end], low, high, color=INK, alpha=0.15, linewidth=0)
        level = f"level {row.level:.0f}: " if row.level >= 0 else ""
        text = f"{len(rows)} links, mean {units.share(row.mean)}, sd {units.share(row.sd)}"
        handles.append(Patch(label=level + text, **look))
        left = end + max(1, len(loads) // 60)
    handles.append(Line2D([], [], color=INK, linewidth=1.2, label="mean and deviation"))
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    axes.set_xlim(0, left)
    axes.set_xticks([])
    axes.grid(visible=False, axis="x")


def _bar_properties(level: int, valid: bool) -> dict[str, Any]:
    """Return the matplotlib bar properties of a cable level; bars of invalid trials are hatched."""
    if not valid:
        return {"facecolor": "none", "edgecolor": style.INVALID, "hatch": style.HATCH}
    return {"color": COLOURS[level % len(COLOURS)] if level >= 0 else style.INVALID, "alpha": 0.75}
