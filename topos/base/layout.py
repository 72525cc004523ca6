"""Positions of a network's nodes in a drawing, as plain numbers independent of any renderer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

Point = tuple[float, float]

ROW_HEIGHT = 2.6  # minimum distance between a drawing's rows of nodes, in drawing units
NAME = 0.45  # height of a node name's letters in a drawing, in drawing units
LETTER = 0.6  # maximum mean width of a letter in a drawing, as a fraction of its height
ACROSS = 42.0  # width of a large drawing, in letter heights of its node names
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass
class DrawingBox:
    """A rectangular frame around nodes of a network drawing, with the name of the group."""

    nodes: list[int]
    name: str = ""
    # Distance from the outermost nodes' centres to the frame, in drawing units.
    margin: float = 0.62
    foot: float = 0.0  # additional height of the frame below its nodes, for their names


@dataclass
class DrawingDisc:
    """A round frame in a drawing, for example around a cell whose servers surround their switch."""

    centre: Point
    radius: float
    name: str = ""


class DrawingText(NamedTuple):
    """A text in a network drawing: the name of a level, a cell or a column."""

    centre: Point
    text: str
    size: float = NAME

    @property
    def width(self) -> float:
        """Maximum width of the text in a network drawing, in drawing units."""
        return LETTER * self.size * len(self.text)


@dataclass
class Layout:
    """Drawing of a network: positions of nodes (unit: about one server's width) and frames.

    `repeated` holds the second position of nodes that are drawn twice: DPillar's Fig. 2 draws
    column 0 on both sides. `wrapped` lists the (server, switch) pairs whose cable ends at the
    server's second position.

    `labels` replace addresses as the texts on servers. `level_names` and `styles` (solid, dashed,
    dashdot or dotted) apply to cables, by level; if they are empty, the renderer chooses.
    """

    positions: dict[int, Point]
    frames: list[DrawingBox | DrawingDisc] = field(default_factory=list)
    repeated: dict[int, Point] = field(default_factory=dict)
    wrapped: set[tuple[int, int]] = field(default_factory=set)
    notes: list[DrawingText] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)
    level_names: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()

    def sides(self, box: DrawingBox) -> tuple[float, float, float, float]:
        """Return the coordinates of a drawing frame's left, lower, right and upper side."""
        xs, ys = zip(*(self.positions[node] for node in box.nodes), strict=True)
        return (
            min(xs) - box.margin,
            min(ys) - box.margin - box.foot,
            max(xs) + box.margin,
            max(ys) + box.margin,
        )

    def name_rows(self, rows: Sequence[tuple[float, str]]) -> None:
        """Add the name of each row (y coordinate, name) of nodes at the left of a drawing."""
        xs = [x for x, _ in [*self.positions.values(), *self.repeated.values()]]
        heights = sorted(y for y, _ in rows)
        apart = min((high - low for low, high in pairwise(heights)), default=ROW_HEIGHT)
        size = min(name_size(max(xs) - min(xs)), 0.8 * apart)
        for y, text in rows:
            note = DrawingText((0.0, 0.0), text, size)
            self.notes.append(note._replace(centre=(min(xs) - 0.9 - note.width / 2, y)))


def name_size(width: float) -> float:
    """Return the letter height at which node names are readable in a drawing of this width."""
    return max(NAME, width / ACROSS)


def cell_name(name: str, level: int, digits: Sequence[int] = ()) -> str:
    """Return the name of a cell (sub-network) in the notation of the papers.

    >>> cell_name("DCell", 0, [4, 2]), cell_name("BCube", 1)
    ('DCell₀[4,2]', 'BCube₁')
    """
    place = f"[{','.join(map(str, digits))}]" if digits else ""
    return f"{name}{level}".translate(SUBSCRIPTS) + place


def circle(count: int, radius: float, centre: Point = (0.0, 0.0), turn: float = 0.0) -> list[Point]:
    """Return `count` points on a circle, clockwise from the top, rotated by `turn` radians."""
    return [polar(centre, radius, turn + 2 * math.pi * i / count) for i in range(count)]


def polar(centre: Point, radius: float, turn: float) -> Point:
    """Return the point on a circle at the angle `turn`, in radians clockwise from its top."""
    return centre[0] + radius * math.sin(turn), centre[1] + radius * math.cos(turn)


def row_height(width: float) -> float:
    """Return the distance between a drawing's rows of nodes; wide drawings need a larger one."""
    return max(ROW_HEIGHT, width / 7)


def grid_layout(servers: int, switches: int) -> Layout:
    """Return a network's default drawing: servers in one row, switches in a row above."""
    width = max(servers, 1.6 * switches, 1)

    def row(count: int, y: float) -> list[Point]:
        step = width / max(count, 1)
        return [((i + 0.5) * step, y) for i in range(count)]

    height = row_height(width)
    layout = Layout(dict(enumerate(row(servers, 0.0) + row(switches, height))))
    layout.name_rows([(0.0, "servers"), (height, "switches")][: 2 if switches else 1])
    return layout
