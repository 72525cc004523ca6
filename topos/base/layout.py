"""Where a network's nodes stand in a drawing. Plain numbers: what draws them is elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

Point = tuple[float, float]

ROW_HEIGHT = 2.6  # of a level of switches, at least


@dataclass
class Box:
    """A rectangular frame around some nodes."""

    nodes: list[int]


@dataclass
class Disc:
    """A round frame, such as that of a cell whose servers surround their switch."""

    centre: Point
    radius: float


@dataclass
class Layout:
    """Positions of nodes (one unit is about one server's width; y grows upwards) and frames.

    A node may stand in `repeated` a second time: DPillar's Fig. 2 draws column 0 on both sides,
    and there cables to that side's switches end at the repeated picture (`wrapped`: pairs of
    server and switch whose cable goes to the repeated server).

    `labels` are what is written on servers instead of their addresses. `level_names` and `styles`
    (solid, dashed, dashdot or dotted) are those of the cables, by level; where there are none, the
    drawing chooses.
    """

    positions: dict[int, Point]
    frames: list[Box | Disc] = field(default_factory=list)
    repeated: dict[int, Point] = field(default_factory=dict)
    wrapped: set[tuple[int, int]] = field(default_factory=set)
    notes: list[tuple[Point, str]] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)
    level_names: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()


def circle(count: int, radius: float, centre: Point = (0.0, 0.0), turn: float = 0.0) -> list[Point]:
    """Return points on a circle, clockwise from the top (turned by `turn` radians)."""
    return [polar(centre, radius, turn + 2 * math.pi * i / count) for i in range(count)]


def polar(centre: Point, radius: float, turn: float) -> Point:
    """Return the point that far from the centre, `turn` radians clockwise from the top."""
    return centre[0] + radius * math.sin(turn), centre[1] + radius * math.cos(turn)


def row_height(width: float) -> float:
    """Return how far apart rows of nodes stand in a drawing so wide, lest cables lie too flat."""
    return max(ROW_HEIGHT, width / 7)


def grid_layout(servers: int, switches: int) -> Layout:
    """Return servers in one row and switches in another: what a network gets that says nothing."""
    width = max(servers, 1.6 * switches, 1)

    def row(count: int, y: float) -> list[Point]:
        step = width / max(count, 1)
        return [((i + 0.5) * step, y) for i in range(count)]

    points = row(servers, 0.0) + row(switches, row_height(width))
    return Layout(dict(enumerate(points)))
