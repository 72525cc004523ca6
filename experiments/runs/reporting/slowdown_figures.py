"""Figures and a table of flow slowdowns in runs with arriving flows: by size and by load.

The first functions compute the data series; the figures themselves compute nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pillarbox.experiments.base import units
from pillarbox.experiments.base.units import three_figures
from pillarbox.experiments.models.workloads.sizes import ALL
from pillarbox.experiments.runs.reporting import style
from pillarbox.experiments.runs.reporting.drawing.network_figure import PAPER
from pillarbox.experiments.runs.reporting.tables import Row, Table
from pillarbox.experiments.runs.trials.slowdowns import burst_note, slowdowns_in
from pillarbox.experiments.runs.trials.statistics import Estimate

PANELS = {"slowdown_median": "median", "slowdown_p99": "99th percentile"}  # columns and titles
# burst that an idle port forwards without waiting, and number of flows that fit into it
BURST = ["burst_bytes", "burst_flows"]
LOADS_SHOWN = 2  # minimum number of link loads for a figure of slowdown by load
SIZES = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)  # ticks of the size axis, in bytes


def by_size(classes: pd.DataFrame) -> pd.DataFrame:
    """Return mean flow slowdowns by system and flow size class, over valid trials.

    Columns: system, valid, mean_bytes, those of BURST, and those of PANELS.
    """
    values = ["mean_bytes", *BURST, *PANELS]
    return _mean_rows(classes[classes["sizes"] != ALL], ["sizes"], values)


def by_load(trials: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    """Return mean flow slowdowns by system and link load, over valid trials.

    `names` are the names of the systems without their loads. Columns: system, valid, load, and
    those of PANELS.
    """
    arrived = trials[trials["slowdown_mean"].notna() & trials["load"].notna()]
    found = arrived.assign(system=arrived["system"].map(lambda name: names.get(name, name)))
    return _mean_rows(found, ["load"], list(PANELS)).sort_values("load", kind="stable")


def _mean_rows(rows: pd.DataFrame, keys: list[str], values: list[str]) -> pd.DataFrame:
    parts = []
    for _, own in rows.groupby(["system", *keys], sort=False):
        valid = own["valid"].fillna(False).astype(bool)
        used = own[valid] if valid.any() else own
        first = {name: used[name].iloc[0] for name in ("system", *keys)}
        means = used[values].astype(float).mean().to_dict()
        parts.append(first | {"valid": bool(valid.any())} | means)
    return pd.DataFrame(parts, columns=list(dict.fromkeys(["system", *keys, "valid", *values])))


def size_figure(sizes: pd.DataFrame, systems: list[str]) -> Figure | None:
    """Draw the flows' slowdown by flow size; return None without data."""
    if sizes.empty:
        return None
    figure = _panel_figure(sizes, systems, "mean_bytes", "size of the flows of a class")
    for axes in figure.axes:
        axes.set_xscale("log")
        axes.set_xticks([at for at in SIZES if _is_visible(axes, at)])
        style.axis_units(
            axes.xaxis, lambda value: units.size(value).replace(".00", "").replace(".0", "")
        )
        axes.minorticks_off()
    return figure


def load_figure(loads: pd.DataFrame) -> Figure | None:
    """Draw the flows' slowdown by link load; return None with fewer than LOADS_SHOWN loads."""
    if loads.empty or loads["load"].nunique() < LOADS_SHOWN:
        return None
    systems = list(dict.fromkeys(loads["system"]))
    figure = _panel_figure(loads, systems, "load", "load")
    for axes in figure.axes:
        axes.set_xlim(0, 1)
    return figure


def _panel_figure(rows: pd.DataFrame, systems: list[str], x: str, label: str) -> Figure:
    with style.looks():
        figure = Figure(figsize=(style.WIDTH, style.HEIGHT), layout="constrained")
        entries: dict[str, Any] = {}
        panels = figure.subplots(1, len(PANELS), sharex=True)
        for axes, (column, title) in zip(panels, PANELS.items(), strict=True):
            entries |= _draw_lines(axes, rows, systems, x, column) | _draw_bursts(axes, rows)
            axes.set_yscale("log")
            axes.set(title=title, xlabel=label)
            low, high = axes.get_ylim()
            axes.set_ylim(min(low, 0.9), max(high, 3.0))
            style.log_axis(axes, "y")
            axes.axhline(1.0, color=style.INVALID, linewidth=0.8)
        panels[0].set_ylabel("slowdown")
        style.legend_below(figure, entries)
        return figure


def _draw_lines(
    axes: Axes, rows: pd.DataFrame, systems: list[str], x: str, column: str
) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for index, system in enumerate(systems):
        own = rows[(rows["system"] == system) & rows[column].notna()]
        if own.empty:
            continue
        valid = bool(own["valid"].all())
        colour = style.colour_of(index) if valid else style.INVALID
        line_style = style.dashes_of(index) if valid else style.DOUBTED
        (line,) = axes.plot(
            own[x],
            own[column],
            color=colour,
            linestyle=line_style,
            marker=style.marker_of(index),
            markersize=4,
        )
        if "burst_flows" in own:
            hollow = own[own["burst_flows"] > 0]
            axes.plot(
                hollow[x],
                hollow[column],
                color=colour,
                linestyle="",
                marker=style.marker_of(index),
                markersize=4,
                markerfacecolor=PAPER,
            )
        entries[style.shown(system) + ("" if valid else " (invalid)")] = line
    return entries


def _draw_bursts(axes: Axes, rows: pd.DataFrame) -> dict[str, Any]:
    """Draw the bursts of idle ports on an axis of flow sizes; return their legend entry."""
    bursts = sorted(rows["burst_bytes"].dropna().unique()) if "burst_bytes" in rows else []
    entries = {}
    for burst in bursts:
        line = axes.axvline(burst, color=style.INVALID, linewidth=0.8, linestyle=style.IDEAL)
        sizes = ", ".join(map(units.size, bursts))
        entries[f"burst of an idle port, {sizes} (hollow: some flows fit)"] = line
    return entries


def _is_visible(axes: Axes, at: float) -> bool:
    low, high = axes.get_xlim()
    return bool(low <= at <= high)


def table(classes: pd.DataFrame, systems: list[str]) -> Table:
    """Return the report's table of slowdowns and completion times by flow size class."""
    columns = ["system, flow sizes", "flows", "failed", "slowdown, median", "95th", "99th"]
    columns += ["completion, median", "99th"]
    found = slowdowns_in(classes, systems)
    rows = [
        Row(
            [
                f"{one.system}, {one.named_sizes}",
                f"{one.flows:,}",
                f"{one.failed_flows:,}",
                *(
                    _estimate_text(one.estimates[f"slowdown_{name}"], three_figures)
                    for name in ("median", "p95", "p99")
                ),
                *(
                    _estimate_text(one.estimates[f"completion_{name}_s"], units.time)
                    for name in ("median", "p99")
                ),
            ]
        )
        for one in found
    ]
    notes = [
        "Flows that began neither in the warm-up nor in the cool-down. Slowdown is the time from a "
        "flow's planned start to its last byte, divided by its ideal time: bytes over the rate of "
        "the slowest cable, and the hops of its path. Means over valid trials, with 95 % "
        "confidence intervals below.",
        burst_note(found),
    ]
    return Table(columns, rows, frozenset(range(1, len(columns))), " ".join(filter(None, notes)))


def _estimate_text(found: Estimate, text: Callable[[float], str]) -> str:
    if not found.repeats:
        return units.MISSING
    interval = f"{text(found.low)}-{text(found.high)}" if found.repeats > 1 else ""
    return "\n".join(filter(None, (text(found.value), interval)))


def names_without_loads(systems: Iterable[Any]) -> dict[str, str]:
    """Return the name of each compared system without the link load that its name contains."""
    return {
        one.name: one.name.removesuffix(f" at {one.at_load:g}") if one.at_load else one.name
        for one in systems
    }
