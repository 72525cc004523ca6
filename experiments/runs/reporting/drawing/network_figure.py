"""The drawing of a network: its `layout` as matplotlib shapes.

All lengths are in layout units: the axes fill the figure, and one unit is `inches` long in both
directions. So text sizes can be compared with node sizes before the figure is rendered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Patch
from matplotlib.path import Path as Curve
from matplotlib.textpath import text_to_path

from pillarbox.experiments.runs.reporting.drawing.curves import (
    CableObstacles,
    control_points,
    straight,
)
from pillarbox.experiments.runs.reporting.drawing.shapes import Dashes, Shape, Shapes, box, circle
from pillarbox.topos.base.layout import DrawingDisc, Layout, Point
from pillarbox.topos.base.topology import Cable, Topology

# Colour-blind safe palette of Okabe and Ito, without yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555")
STYLES = ("solid", "dashed", "dashdot", "dotted")
DASHES: dict[str, Dashes] = {
    "solid": "solid",
    "dashed": (0, (5, 2)),
    "dashdot": (0, (6, 1.5, 1.2, 1.5)),
    "dotted": (0, (1.5, 1.5)),
}
AGAIN = (0.0, (2.0, 1.5))  # dash pattern of a network node that is drawn a second time
INK, PAPER, FRAME, FRAME_EDGE = "#222222", "#FFFFFF", "#F4F4F1", "#C9C9C2"
SERVER_FILL, SWITCH_FILL = "#FFFFFF", "#FFE9B8"

SERVER_RADIUS = 0.41  # radius of a server in layout units
SWITCH_HEIGHT = 0.72  # height of a switch in layout units
MARGIN = 0.9  # margin around the drawing in layout units
INCHES = 0.42  # maximum length of a layout unit in inches
WIDEST = 4.0  # maximum ratio of the widths of cables of different rates
MOST_INCHES = 42.0  # maximum width and height of a drawing in inches
POINTS = 72.0  # points per inch
LABEL, CAPTION = 8.5, 11.0  # maximum text sizes of node labels and of the title, in points
SMALLEST = 2.2  # minimum text size of a node label in points; smaller labels are left out
DIGIT = re.compile("[1-9]")


class LegendEntry(NamedTuple):
    """An entry of a drawing's legend: colour, dashes and width of a cable, and their meaning."""

    text: str
    colour: str
    style: Dashes = "solid"
    width: float = 1.4


# Dollar signs in names of nodes and files do not start a formula.
@mpl.rc_context({"text.parse_math": False})
def topology_figure(
    topology: Topology,
    *,
    title: bool = True,
    width_of: Callable[[Cable], float] | None = None,
    colour_of: Callable[[Cable], str] | None = None,
    legend: Sequence[LegendEntry] | None = None,
) -> Figure:
    """Return the drawing of a network as a figure, for a file or a report.

    Parameters
    ----------
    topology : Topology
        Network to draw.
    title : bool
        Whether to draw the network's name and counts above it.
    width_of, colour_of : callable, optional
        Functions from a cable to its line width in points and to its colour, such as by load. By
        default cables are coloured by level, and wider by the rate of a level of its own.
    legend : sequence of LegendEntry, optional
        Entries of the legend. By default the legend has the levels if `colour_of` is not given.
    """
    picture = Picture(topology)
    picture.draw_frames()
    for cable, points in picture.cable_curves():
        picture.draw_cable(
            cable,
            points,
            width_of(cable) if width_of else 1.1 * picture.relative_width(cable.level),
            colour_of(cable) if colour_of else COLOURS[cable.level % len(COLOURS)],
        )
    picture.draw_nodes()
    if title:
        picture.draw_title()
    if legend is not None:
        picture.draw_legend(legend)
    elif colour_of is None:
        picture.draw_legend(picture.level_samples())
    return picture.finished()


def text_width(text: str, size: float) -> float:
    """Return the width of a text in points."""
    return size * _relative_width(DIGIT.sub("0", text))  # all digits are equally wide


@cache
def _relative_width(text: str) -> float:
    """Return the width of a text relative to its text size."""
    font = FontProperties(size=100)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 100


@dataclass
class Picture:
    """Coordinates and matplotlib figure of a network drawing while it is drawn."""

    topology: Topology
    layout: Layout = field(init=False)
    places: list[tuple[int, Point]] = field(init=False)  # drawn nodes, repeated ones last
    unlabelled: int = field(init=False, default=0)  # number of nodes too small for a label

    def __post_init__(self) -> None:
        topology = self.topology
        self.layout = layout = topology.layout()
        self.places = [*sorted(layout.positions.items()), *sorted(layout.repeated.items())]
        centres = [point for _, point in self.places]
        self.levels: set[int] = set()
        corners = self._bounding_points(centres)
        self.low, self.high = corners.min(axis=0) - MARGIN, corners.max(axis=0) + MARGIN
        self.inches = min(INCHES, MOST_INCHES / float((self.high - self.low).max()))
        # Title and legend of a large network drawing are magnified to stay legible.
        sides = (self.high - self.low) * self.inches
        self.magnified = float(np.clip(sides.max() / 14, 1.0, 2.4))
        self.switch_widths = self._switch_widths()
        self.obstacles = self._obstacles(centres)
        self.figure = Figure()
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.cables, self.nodes = Shapes(zorder=2), Shapes(zorder=3)
        self.axes.add_artist(self.cables)
        self.axes.add_artist(self.nodes)

    def _bounding_points(self, centres: list[Point]) -> np.ndarray:
        """Return points whose bounding box contains all nodes, frames and notes of the drawing."""
        points = [*centres]
        for note in self.layout.notes:
            (x, y), half, high = note.centre, note.width / 2, note.size / 2
            points += [(x - half, y - high), (x + half, y + high)]
        for frame in self.layout.frames:
            if isinstance(frame, DrawingDisc):
                x, y = frame.centre
                points += [(x - frame.radius, y - frame.radius)]
                points += [(x + frame.radius, y + frame.radius)]
            else:
                left, low, right, top = self.layout.sides(frame)
                points += [(left, low), (right, top)]
        return np.array(points)

    def units(self, points: float) -> float:
        """Convert a length from points to the drawing's layout units."""
        return points / POINTS / self.inches

    def is_server(self, node: int) -> bool:
        """Return True if a drawn node is a server, not a switch."""
        return node < self.topology.servers

    def label(self, node: int) -> str:
        """Return the label of a node: the layout's short label, or the node's name."""
        return self.layout.labels.get(node) or self.topology.name(node)

    def _switch_widths(self) -> dict[int, float]:
        """Return each switch's width in the drawing: its label's width, limited by the space."""
        rows: dict[float, list[tuple[float, int]]] = {}
        for node, (x, y) in self.places:
            rows.setdefault(round(y, 3), []).append((x, node))
        widths = {}
        for row in rows.values():
            row.sort()
            for i, (x, node) in enumerate(row):
                if self.is_server(node):
                    continue
                sides = [row[j] for j in (i - 1, i + 1) if 0 <= j < len(row)]
                rooms = [
                    2 * (abs(x - side) - SERVER_RADIUS) if self.is_server(other) else abs(x - side)
                    for side, other in sides
                ]
                wish = max(0.9, self.units(text_width(self.label(node), LABEL)) + 0.35)
                widths[node] = max(min([wish, *(0.82 * room for room in rooms)]), 0.3)
        return widths

    def _obstacles(self, centres: list[Point]) -> CableObstacles:
        """Return the obstacles for cables: all nodes in the order of `places`, then the notes."""
        halves, radii = [], []
        for node, _ in self.places:
            server = self.is_server(node)
            halves.append((0, 0) if server else (self.switch_widths[node] / 2, SWITCH_HEIGHT / 2))
            radii.append(SERVER_RADIUS if server else 0.0)
        for note in self.layout.notes:
            centres = [*centres, note.centre]
            halves.append((note.width / 2, note.size / 2))
            radii.append(0.0)
        edge = 0.3  # width of the outer margin without cables, in layout units
        return CableObstacles(
            np.array(centres),
            np.array(halves, float),
            np.array(radii),
            self.low + edge,
            self.high - edge,
        )

    # -- shapes --------------------------------------------------------------------------------

    def draw_frames(self) -> None:
        """Draw the frames around groups of nodes (outer frames first), and the notes."""
        for frame in self.layout.frames:
            if isinstance(frame, DrawingDisc):
                shape: Patch = Circle(frame.centre, frame.radius)
            else:
                x, y, right, top = self.layout.sides(frame)
                shape = FancyBboxPatch(
                    (x, y), right - x, top - y, boxstyle="round,pad=0,rounding_size=0.3"
                )
            shape.set(facecolor=FRAME, edgecolor=FRAME_EDGE, linewidth=0.7, zorder=0)
            self.axes.add_artist(shape)
        for note in self.layout.notes:
            size = note.size * self.inches * POINTS
            look: dict[str, Any] = {"size": size, "ha": "center", "va": "center"}
            self.axes.text(*note.centre, note.text, color=INK, zorder=5, **look)

    def draw_cable(self, cable: Cable, points: Sequence[Point], width: float, colour: str) -> None:
        """Draw a cable as a curve, whose identifier in an SVG file names both interfaces."""
        topology, layout = self.topology, self.layout
        self.levels.add(int(cable.level))
        codes = [Curve.MOVETO, *[Curve.CURVE4] * 3] if len(points) == 4 else None
        curve = Curve(points, codes)
        interfaces = (
            topology.interface(cable.a, cable.a_port),
            topology.interface(cable.b, cable.b_port),
        )
        style = cable_style(layout, cable.level)
        self.cables.shapes.append(
            Shape("cable-" + "-".join(interfaces), curve, colour, width, style)
        )

    def relative_width(self, level: int) -> float:
        """Return the width of a level's cables, relative to the slowest level's."""
        slowest = min(self.topology.factors.rates, default=1)
        return min(WIDEST, math.sqrt(self.topology.rate_of_level(level) / slowest))

    def cable_curves(self) -> Iterator[tuple[Cable, list[Point]]]:
        """Yield each cable with its curve's points: two ends, and two control points if bent."""
        cables = list(self.topology.links())
        ends = [
            (self._place_index(one.a, one.b), self._place_index(one.b, one.a)) for one in cables
        ]
        for cable, pair, free in zip(cables, ends, straight(self.obstacles, ends), strict=True):
            start, end = (self.places[place][1] for place in pair)
            bent = None if free else control_points(self.obstacles, pair)
            yield cable, [start, *(bent or ()), end]

    def _place_index(self, node: int, far: int) -> int:
        """Return the index in `places` of the drawn node that is the end of a cable from `far`."""
        if (node, far) in self.layout.wrapped:
            return len(self.layout.positions) + sorted(self.layout.repeated).index(node)
        return node

    def draw_nodes(self) -> None:
        """Draw servers and switches with their labels."""
        for i, (node, (x, y)) in enumerate(self.places):
            again = "again-" if i >= len(self.layout.positions) else ""
            if self.is_server(node):
                outline, fill = circle((x, y), SERVER_RADIUS), SERVER_FILL
                room = 2 * SERVER_RADIUS * 0.84
            else:
                width = self.switch_widths[node]
                corner = (x - width / 2, y - SWITCH_HEIGHT / 2)
                outline, fill = box(corner, width, SWITCH_HEIGHT), SWITCH_FILL
                room = width * 0.9
            label = self.label(node)
            name = again + self.topology.node_name(node)
            style: Dashes = AGAIN if again else "solid"
            self.nodes.shapes.append(Shape(name, outline, INK, 0.8, style, fill))
            size = min(LABEL, LABEL * room / self.units(text_width(label, LABEL)))
            size = min(size, 0.8 * SWITCH_HEIGHT * self.inches * POINTS)
            if size >= SMALLEST:
                text = self.axes.text(x, y, label, size=size, color=INK, zorder=4)
                text.set(ha="center", va="center_baseline", gid=f"label-{name}")
            else:
                self.unlabelled += 1

    # -- title and legend ----------------------------------------------------------------------

    def draw_title(self) -> None:
        """Draw the network's name, spec and counts above the drawing."""
        topology = self.topology
        counts = [
            f"{count} {noun if count != 1 else one}"
            for count, noun, one in (
                (topology.servers, "servers", "server"),
                (topology.switches, "switches", "switch"),
                (topology.cables, "cables", "cable"),
            )
        ]
        if self.unlabelled:
            counts.append("illegible names left out")
        self._draw_line_above(", ".join(counts), (CAPTION - 2) * self.magnified, "normal")
        self._draw_line_above(
            f"{topology.title}  {topology.spec}", CAPTION * self.magnified, "bold"
        )

    def _draw_line_above(self, text: str, size: float, weight: str) -> None:
        """Draw a centred line of text above the drawing, and enlarge the drawing for it."""
        height = self.units(1.5 * size)
        x, y = (self.low[0] + self.high[0]) / 2, self.high[1] + height / 2 - 0.3
        self.axes.text(x, y, text, size=size, weight=weight, color=INK, ha="center", va="center")
        self.high[1] += height
        self._widen(1.15 * text_width(text, size))

    def _widen(self, points: float) -> None:
        """Widen the network drawing to at least a width in points."""
        missing = self.units(points) + 2 * 0.4 - (self.high[0] - self.low[0])
        if missing > 0:
            self.low[0] -= missing / 2
            self.high[0] += missing / 2

    def level_samples(self) -> list[LegendEntry]:
        """Return the legend entries of a network drawing whose cables are coloured by level."""
        names = self.layout.level_names
        return [
            LegendEntry(
                names[level] if level < len(names) else f"level {level}",
                COLOURS[level % len(COLOURS)],
                cable_style(self.layout, level),
                1.4 * self.relative_width(level),
            )
            for level in sorted(self.levels)
        ]

    def draw_legend(self, samples: Sequence[LegendEntry]) -> None:
        """Draw the legend of the cables below the drawing."""
        size, line, gap = (
            length * self.magnified for length in (LABEL, 26.0, 16.0)
        )  # lengths in points
        widths = [line + 5 + text_width(sample.text, size) + gap for sample in samples]
        x = (self.low[0] + self.high[0]) / 2 - self.units(sum(widths) - gap) / 2
        y = self.low[1] - 0.1 * self.magnified
        for (text, colour, style, thick), width in zip(samples, widths, strict=True):
            ends = [x, x + self.units(line)]
            look: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": thick}
            self.axes.add_line(Line2D(ends, [y, y], **look))
            self.axes.text(x + self.units(line + 5), y, text, size=size, color=INK, va="center")
            x += self.units(width)
        self.low[1] = y - self.units(1.2 * size)
        self._widen(sum(widths))

    def finished(self) -> Figure:
        """Return the finished network drawing as a matplotlib figure of fitting size."""
        width, height = (self.high - self.low).tolist()
        self.figure.set_size_inches(width * self.inches, height * self.inches)
        self.figure.set_facecolor(PAPER)
        self.axes.set_xlim(self.low[0], self.high[0])
        self.axes.set_ylim(self.low[1], self.high[1])
        return self.figure


def cable_style(layout: Layout, level: int) -> Dashes:
    """Return the matplotlib line style for the cables of a level."""
    styles = layout.styles or STYLES
    return DASHES[styles[level % len(styles)]]
