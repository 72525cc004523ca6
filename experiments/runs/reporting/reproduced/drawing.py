"""Drawing of reproduced figures: points of the paper hollow, our points filled, ideal dashed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pillarbox.experiments.base import units
from pillarbox.experiments.base.files import output_folder
from pillarbox.experiments.runs.reporting import style
from pillarbox.experiments.runs.reporting.drawing.network_figure import INK
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Reproduction

FEW = 6  # maximum number of x values of a reproduced figure that all get an axis tick
CROWDED = 40  # maximum number of points of a reproduced line that has markers
ROW = 0.26  # height of a row of a reproduced table, in inches


def draw_reproduction(reproduction: Reproduction, folder: Path) -> list[Path]:
    """Write a reproduced figure to NAME.svg and NAME.png in a folder; return the files."""
    return style.save(reproduction_figure(reproduction), output_folder(folder), reproduction.name)


def reproduction_figure(reproduction: Reproduction) -> Figure:
    """Return a reproduced figure, drawn as lines, bars or a table."""
    with style.looks():
        if reproduction.kind == "table":
            return _table_figure(reproduction)
        figure = Figure(figsize=(style.WIDTH, style.HEIGHT * 1.1), layout="constrained")
        axes = figure.subplots()
        draw = _draw_bars if reproduction.kind == "bars" else _draw_lines
        handles = [*draw(axes, reproduction), *_kind_entries(reproduction)]
        axes.set_title(style.shown(reproduction.title))
        axes.set_xlabel(style.shown(reproduction.x_label))
        axes.set_ylabel(style.shown(reproduction.y_label))
        if reproduction.log_x:
            style.log_axis(axes, "x")
        if reproduction.log_y:
            style.log_axis(axes, "y")
        elif axes.get_ylim()[0] > 0:
            axes.set_ylim(bottom=0)
        style.legend_outside(axes, {str(handle.get_label()): handle for handle in handles})
        return figure


def series_of(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return a reproduced figure's points by series, in their order."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.series, []).append(point)
    return found


def _draw_lines(axes: Axes, reproduction: Reproduction) -> list[Artist]:
    """Draw each series of a reproduced figure as a line over x; return the legend entries."""
    places = _x_positions(axes, reproduction)
    crowded = _is_crowded(reproduction.points)
    handles: list[Artist] = []
    for index, (name, points) in enumerate(series_of(reproduction.points).items()):
        colour, marker = style.colour_of(index), style.marker_of(index)
        dots: dict[str, Any] = {"marker": "" if crowded else marker, "markersize": 4.5}
        rings = dots | {
            "markerfacecolor": "none",
            "markersize": 8,
        }  # style of the paper's values: hollow rings
        looks: dict[str, dict[str, Any]] = {
            "ideal": {"linestyle": "--", "linewidth": 1.0},
            "paper": {"linestyle": ":" if crowded else "", **rings},
            "ours": {"linestyle": style.dashes_of(index) if crowded else "-", **dots},
        }
        for kind, look in looks.items():
            known = [p for p in points if getattr(p, kind) is not None]
            values = [getattr(p, kind) for p in known]
            axes.plot([places[p.x] for p in known], values, color=colour, **look)
        _draw_error_bars(axes, [(places[p.x], p) for p in points], colour)
        handles.append(Line2D([], [], color=colour, **dots, label=style.shown(name)))
    return handles


def _draw_bars(axes: Axes, reproduction: Reproduction) -> list[Artist]:
    """Draw a reproduced figure's series as groups of bars; return the legend entries."""
    categories = list(dict.fromkeys(point.x for point in reproduction.points))
    series = series_of(reproduction.points)
    width = 0.8 / len(series)
    handles: list[Artist] = []
    for index, (name, points) in enumerate(series.items()):
        colour = style.colour_of(index)
        for point in points:
            x = categories.index(point.x) - 0.4 + (index + 0.5) * width
            _draw_bar(axes, x, width * 0.9, point, colour)
        handles.append(Patch(color=colour, label=style.shown(name)))
    axes.set_xticks(range(len(categories)), [_wrapped(x) for x in categories])
    axes.grid(visible=False, axis="x")
    return handles


def _draw_bar(axes: Axes, x: float, width: float, point: Point, colour: str) -> None:
    """Draw our value as a bar, the paper's value as a hollow mark, the ideal as a dashed line."""
    if point.ours is not None:
        axes.bar([x], [point.ours], width, color=colour, alpha=0.8)
    if point.ideal is not None:
        ends = [x - width / 2, x + width / 2]
        axes.plot(ends, [point.ideal] * 2, color=INK, linestyle="--", linewidth=1.1)
    if point.paper is not None:
        axes.plot([x], [point.paper], marker="o", markersize=6, color=INK, markerfacecolor="white")
    _draw_error_bars(axes, [(x, point)], INK)


def _draw_error_bars(axes: Axes, placed: list[tuple[float, Point]], colour: str) -> None:
    for x, point in placed:
        if point.low is not None and point.high is not None:
            axes.plot([x, x], [point.low, point.high], color=colour, linewidth=1.1, zorder=4)


def _kind_entries(reproduction: Reproduction) -> list[Artist]:
    """Return the legend entries of the paper's values, our values and the ideal, if they occur."""
    points = reproduction.points
    if _is_crowded(points) and reproduction.kind != "bars":
        paper: dict[str, Any] = {"linestyle": ":"}
        ours: dict[str, Any] = {"linestyle": "-"}
    else:
        paper = {"linestyle": "", "marker": "o", "markerfacecolor": "none", "markersize": 8}
        ours = {"linestyle": "", "marker": "s" if reproduction.kind == "bars" else "o"}
    looks = {"paper": paper, "ours": ours, "ideal": {"linestyle": "--", "linewidth": 1.1}}
    there = [name for name in looks if any(getattr(point, name) is not None for point in points)]
    return [
        Line2D([], [], color=INK, label="the paper's" if name == "paper" else name, **looks[name])
        for name in (there if len(there) > 1 else ())  # no legend for our values alone
    ]


def _is_crowded(points: Sequence[Point]) -> bool:
    return max(map(len, series_of(points).values()), default=0) > CROWDED


def _x_positions(axes: Axes, reproduction: Reproduction) -> dict[float | str, float]:
    """Set the ticks of the x axis; return the position of each x value (number or category)."""
    values = list(dict.fromkeys(point.x for point in reproduction.points))
    if all(isinstance(value, (int, float)) for value in values):
        if len(values) <= FEW and not reproduction.log_x:
            axes.set_xticks(values, [f"{value:g}" for value in values])
        elif not reproduction.log_x and all(float(value).is_integer() for value in values):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return {value: float(value) for value in values}
    axes.set_xticks(range(len(values)), [_wrapped(value) for value in values])
    return {value: float(place) for place, value in enumerate(values)}


def _wrapped(value: float | str) -> str:
    """Return the name of a category; a long name is split into several lines."""
    text = f"{value:g}" if isinstance(value, (int, float)) else style.shown(value)
    return "\n".join(text.split(" ")) if len(text) > 9 else text


def _table_figure(reproduction: Reproduction) -> Figure:
    """Draw a reproduced table: series, paper's value, our value and ideal of each point."""
    columns, rows = table_of(reproduction)
    figure = Figure(figsize=(style.WIDTH, ROW * (len(rows) + 1) + 0.5))
    axes = figure.add_axes((0.02, 0.01, 0.96, 1 - 0.4 / figure.get_figheight()))
    axes.set_axis_off()
    axes.set_title(style.shown(reproduction.title))
    shown = [[style.shown(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in shown) + 2 for i in range(len(columns))]
    edges = [sum(widths[:i]) / sum(widths) for i in range(len(columns) + 1)]
    for number, row in enumerate(shown):
        y = 1 - (number + 0.5) / len(shown)
        for i, cell in enumerate(row):
            left = i < 2
            x = edges[i] if left else edges[i + 1] - 0.01
            weight = "bold" if number == 0 or columns[i] == "ours" else "normal"
            look: dict[str, Any] = {"ha": "left" if left else "right", "weight": weight}
            axes.text(x, y, cell, va="center", transform=axes.transAxes, **look)
        rule = 1 - (number + 1) / len(shown)
        look = {"color": INK if number == 0 else style.GRID, "linewidth": 0.7}
        axes.plot([0, 1], [rule, rule], transform=axes.transAxes, clip_on=False, **look)
    return figure


def table_of(
    reproduction: Reproduction, points: Sequence[Point] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a reproduced figure's points as text."""
    x_label = "" if points is reproduction.rows else reproduction.x_label or "x"
    columns = ["", x_label, "paper", "ours", "spread", "ideal"]
    rows = []
    for point in reproduction.points if points is None else points:
        paper, ours, ideal, *ends = (
            units.plain(value, point.figures)
            for value in (point.paper, point.ours, point.ideal, *(point.spread or ()))
        )
        x = f"{point.x:g}" if isinstance(point.x, (int, float)) else str(point.x)
        rows.append([point.series, x, paper, ours, " to ".join(ends), ideal])
    used = [i for i in range(len(columns)) if i < 2 or any(row[i] for row in rows)]
    return [columns[i] for i in used], [[row[i] for i in used] for row in rows]
