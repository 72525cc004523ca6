"""The common style of all figures: text sizes, colour-blind safe colours, axes and legends."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from pillarbox.experiments.base import units
from pillarbox.experiments.base.files import write_atomically
from pillarbox.experiments.runs.reporting.drawing.drawing_files import rendered
from pillarbox.experiments.runs.reporting.drawing.network_figure import COLOURS, INK, PAPER

GRID, INVALID, FAULT = "#DDDDDD", "#999999", "#B22222"
# Maximum characters per legend line, for a legend right of the axes and in two columns.
BESIDE, BELOW = 30, 45
ROW = 0.19  # height of a legend line in inches
WIDTH, HEIGHT = 7.2, 3.3  # size of a figure in inches; the width is that of a text column
# Line styles and markers of systems, to distinguish them in print without colour.
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (9, 2, 3, 2)))
IDEAL, DOUBTED = (0, (1, 1)), (0, (3, 2.5))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCH = "////"
# Colours of cable load, from low to high: one hue, light to saturated. Red is for faults.
RAMP = ("#5F91C0", "#4482BA", "#2B71B1", "#1460A5", "#004C94")
SETTINGS: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlecolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # dollar signs in names do not start a formula
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.6,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
}


@contextmanager
def looks() -> Iterator[None]:
    """Apply the common matplotlib settings to figures drawn in a `with` block."""
    with mpl.rc_context(SETTINGS):
        yield


def colour_of(index: int) -> str:
    """Return the line colour of the system or series with the given index."""
    return COLOURS[index % len(COLOURS)]


def dashes_of(index: int) -> Any:
    """Return the line style (dashes) of the system or series with the given index."""
    return DASHES[index % len(DASHES)]


def marker_of(index: int) -> str:
    """Return the line marker of the system or series with the given index."""
    return MARKERS[index % len(MARKERS)]


def shown(name: object) -> str:
    """Return the name of a system or series, shortened to one line for a figure's legend."""
    text = " ".join(str(name).split())
    text = text if len(text) <= 48 else text[:45] + "…"
    return f" {text}" if text.startswith("_") else text  # legends hide names that begin with _


def axis_units(axis: Any, text: Callable[[float], str]) -> None:
    """Format the numbers of a plot's axis with a function."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def rate_axis(axes: Axes, values: Iterable[float], axis: str = "y") -> None:
    """Label a goodput axis with the fitting unit, and scale its numbers to this unit."""
    most = max((float(value) for value in values if units.known(value)), default=1.0)
    power = next((power for power in (12, 9, 6, 3) if most >= 10**power), 0)
    unit = f"{units.PREFIXES[power // 3]}bit/s"
    axis_units(getattr(axes, f"{axis}axis"), lambda value: f"{value / 10**power:g}")
    getattr(axes, f"set_{axis}label")(f"goodput ({unit})")


def log_axis(axes: Axes, name: str) -> None:
    """Make an axis logarithmic, with numbers in plain notation."""
    getattr(axes, f"set_{name}scale")("log")
    axis = getattr(axes, f"{name}axis")
    low, high = getattr(axes, f"get_{name}lim")()
    axis_units(axis, units.plain)
    few = high / low < 20  # a narrow axis needs ticks between powers of ten
    axis.set_minor_formatter(
        FuncFormatter(
            lambda value, _: units.plain(value) if few and f"{value:e}"[0] in "25" else ""
        )
    )


def legend_outside(axes: Axes, entries: dict[str, Any]) -> None:
    """Place the legend right of the axes, or below the figure if its texts are long."""
    if not entries:
        return
    if max(map(len, entries)) <= BESIDE:
        look: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
        axes.legend([*entries.values()], [*entries], **look)
    else:
        figure = axes.get_figure(root=True)
        assert figure is not None
        legend_below(figure, entries)


def legend_below(figure: Figure, entries: dict[str, Any]) -> None:
    """Place the legend below all axes, in up to two columns, and enlarge the figure for it."""
    columns = 2 if max(map(len, entries), default=0) <= BELOW else 1
    rows = -(-len(entries) // columns)
    figure.set_figheight(figure.get_figheight() + ROW * rows)
    figure.legend([*entries.values()], [*entries], loc="outside lower center", ncols=columns)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure to NAME.svg and NAME.png; return both files."""
    from pillarbox.experiments.base.files import give_to_user

    files = []
    for suffix in ("svg", "png"):
        path = folder / f"{name}.{suffix}"
        write_atomically(path, content(figure, suffix))
        give_to_user(path)
        files.append(path)
        if figure.get_layout_engine() is not None:
            figure.set_layout_engine("none")  # a second layout would be slow
    return files


def content(figure: Figure, file_format: str) -> bytes:
    """Return the bytes of a figure in a file format, ``svg`` or ``png``."""
    with looks(), warnings.catch_warnings():
        # Only PNG files show characters that the font lacks as boxes: ignore the warning.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        return rendered(figure, file_format)
