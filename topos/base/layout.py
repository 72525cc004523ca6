"""Where a network's nodes stand in a drawing. Plain numbers: what draws them is elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topos.base.topology import Topology

Point = tuple[float, float]


@dataclass
class Box:
    """A frame around some nodes, such as a cell, with the text that stands above it."""

    nodes: list[int]
    text: str = ""


@dataclass
class Layout:
    """Positions of nodes (one unit is about one server's width; y grows upwards) and frames.

    A node may stand in `repeated` a second time: DPillar's Fig. 2 draws column 0 on both sides,
    and there cables to that side's switches end at the repeated picture (`wrapped`: pairs of
    server and switch whose cable goes to the repeated server).
    """

    positions: dict[int, Point]
    boxes: list[Box] = field(default_factory=list)
    repeated: dict[int, Point] = field(default_factory=dict)
    wrapped: set[tuple[int, int]] = field(default_factory=set)
    notes: list[tuple[Point, str]] = field(default_factory=list)


def circle(count: int, radius: float, centre: Point = (0.0, 0.0), turn: float = 0.0) -> list[Point]:
    """Return points on a circle, clockwise from the top (turned by `turn` radians)."""
    angles = [math.pi / 2 - turn - 2 * math.pi * i / count for i in range(count)]
    x, y = centre
    return [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles]


def nested_circles(topology: Topology, radices: tuple[int, ...]) -> Layout:
    """Return cells on a circle, each a circle of smaller cells, down to servers around a switch.

    `radices` are those of a server's digits, most significant first. The layout is a recursive
    network's: server and switch positions follow from the digits alone.
    """
    radii = [max(1.2, radices[-1] / 4)]  # of the circle on which each level's cells stand
    reach = [radii[0] + 0.8]  # how far a cell's drawing reaches from its centre
    for count in reversed(radices[:-1]):
        spread = 1.12 * reach[-1] / math.sin(math.pi / count) if count > 1 else 0.0
        radii.append(spread)
        reach.append(spread + reach[-1])

    def centre(digits: tuple[int, ...]) -> Point:
        x = y = 0.0
        for position, digit in enumerate(digits):
            level = len(radices) - 1 - position
            x, y = circle(radices[position], radii[level], (x, y))[digit]
        return x, y

    positions: dict[int, Point] = {}
    cells: dict[tuple[int, ...], list[int]] = {}
    for server in range(topology.servers):
        digits = topology.digits(server)
        positions[server] = centre(digits)
        cells.setdefault(digits[:-1], []).append(server)
        if len(digits) > 2:
            cells.setdefault(digits[:-2], []).append(server)
        switch = topology.server_plug(server, 0).node
        positions.setdefault(switch, centre(digits[:-1]))
    boxes = [Box(nodes, ".".join(map(str, cell))) for cell, nodes in cells.items() if cell]
    return Layout(positions, boxes)


def grid_layout(topology: Topology) -> Layout:
    """Return servers in one row and switches in another: what a network gets that says nothing."""
    width = max(topology.servers, topology.switches, 1)

    def row(count: int, y: float) -> list[Point]:
        step = width / max(count, 1)
        return [((i + 0.5) * step, y) for i in range(count)]

    points = row(topology.servers, 0.0) + row(topology.switches, max(3.0, width / 6))
    return Layout(dict(enumerate(points)))
