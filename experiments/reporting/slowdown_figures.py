"""Slowdowns of flows that arrived: by size, by load, and as a table.

First what the figures show, DataFrame by DataFrame, then the figures, which compute nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import units
from experiments.reporting import style
from experiments.reporting.tables import Row, Table
from experiments.traffic.sizes import ALL
from experiments.trials.runs.slowdowns import slowdowns_in
from experiments.trials.runs.statistics import Estimate
from experiments.units import three_figures

PANELS = {"slowdown_median": "median", "slowdown_p99": "99th percentile"}
LOADS_SHOWN = 2  # from so many on there is a figure against load
SIZES = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)


def by_size(classes: pd.DataFrame) -> pd.DataFrame:
    """Return a row by system and class of sizes: means over valid trials, or over all if none is.

    Columns: system, valid, mean_bytes, and those of PANELS.
    """
    return _means(classes[classes["sizes"] != ALL], ["sizes"], ["mean_bytes", *PANELS])


def by_load(trials: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    """Return a row by network and load: means over valid trials, or over all if none is.

    `names` are what systems are called without their loads. Columns: system, valid, load, and
    those of PANELS.
    """
    arrived = trials[trials["slowdown_mean"].notna() & trials["load"].notna()]
    found = arrived.assign(system=arrived["system"].map(lambda name: names.get(name, name)))
    return _means(found, ["load"], list(PANELS)).sort_values("load", kind="stable")


def _means(rows: pd.DataFrame, keys: list[str], values: list[str]) -> pd.DataFrame:
    parts = []
    for _, own in rows.groupby(["system", *keys], sort=False):
        valid = own["valid"].fillna(False).astype(bool)
        used = own[valid] if valid.any() else own
        first = {name: used[name].iloc[0] for name in ("system", *keys)}
        means = used[values].astype(float).mean().to_dict()
        parts.append(first | {"valid": bool(valid.any())} | means)
    return pd.DataFrame(parts, columns=list(dict.fromkeys(["system", *keys, "valid", *values])))


def size_figure(sizes: pd.DataFrame, systems: list[str]) -> Figure | None:
    """Draw slowdown against the size of flows."""
    if sizes.empty:
        return None
    figure = _panels(sizes, systems, "mean_bytes", "size of the flows of a class")
    for axes in figure.axes:
        axes.set_xscale("log")
        axes.set_xticks([at for at in SIZES if _inside(axes, at)])
        style.axis_units(
            axes.xaxis, lambda value: units.size(value).replace(".00", "").replace(".0", "")
        )
        axes.minorticks_off()
    return figure


def load_figure(loads: pd.DataFrame) -> Figure | None:
    """Draw slowdown against load, where there are several."""
    if loads.empty or loads["load"].nunique() < LOADS_SHOWN:
        return None
    systems = list(dict.fromkeys(loads["system"]))
    figure = _panels(loads, systems, "load", "load")
    for axes in figure.axes:
        axes.set_xlim(0, 1)
    return figure


def _panels(rows: pd.DataFrame, systems: list[str], x: str, label: str) -> Figure:
    with style.looks():
        figure = Figure(figsize=(style.WIDTH, style.HEIGHT), layout="constrained")
        entries: dict[str, Any] = {}
        panels = figure.subplots(1, len(PANELS), sharex=True)
        for axes, (column, title) in zip(panels, PANELS.items(), strict=True):
            entries |= _lines(axes, rows, systems, x, column)
            axes.set_yscale("log")
            axes.set(title=title, xlabel=label)
            low, high = axes.get_ylim()
            axes.set_ylim(min(low, 0.9), max(high, 3.0))
            style.log_axis(axes, "y")
            axes.axhline(1.0, color=style.INVALID, linewidth=0.8)
        panels[0].set_ylabel("slowdown")
        style.legend_below(figure, entries)
        return figure


def _lines(
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
        entries[style.shown(system) + ("" if valid else " (invalid)")] = line
    return entries


def _inside(axes: Axes, at: float) -> bool:
    low, high = axes.get_xlim()
    return bool(low <= at <= high)


def table(classes: pd.DataFrame, systems: list[str]) -> Table:
    """Return a row for each class of sizes of each system."""
    columns = ["flows of", "how many", "failed", "slowdown, median", "95th", "99th"]
    columns += ["completion, median", "99th"]
    rows = [
        Row(
            [
                f"{one.system}, {one.sizes}",
                f"{one.flows:,}",
                f"{one.failed_flows:,}",
                *(
                    _shown(one.estimates[f"slowdown_{name}"], three_figures)
                    for name in ("median", "p95", "p99")
                ),
                *(
                    _shown(one.estimates[f"completion_{name}_s"], units.time)
                    for name in ("median", "p99")
                ),
            ]
        )
        for one in slowdowns_in(classes, systems)
    ]
    note = (
        "Flows that began neither in the warm-up nor in the cool-down. Slowdown is the time from a "
        "flow's planned start to its last byte, over what it would take alone. Means over valid "
        "trials, and below them where they lie with 95 % confidence."
    )
    return Table(columns, rows, frozenset(range(1, len(columns))), note)


def _shown(found: Estimate, text: Any) -> str:
    if not found.repeats:
        return units.MISSING
    interval = f"{text(found.low)}-{text(found.high)}" if found.repeats > 1 else ""
    return "\n".join(filter(None, (text(found.value), interval)))


def names_without_loads(systems: Iterable[Any]) -> dict[str, str]:
    """Return what each system of a plan is called without its own load."""
    return {
        one.name: one.name.removesuffix(f" at {one.at_load:g}") if one.at_load else one.name
        for one in systems
    }
