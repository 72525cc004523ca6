"""Drawings of recursive networks in the style of their papers: cells on circles of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pillarbox.topos.base.layout import (
    DrawingDisc,
    DrawingText,
    Layout,
    Point,
    cell_name,
    name_size,
    polar,
)
from pillarbox.topos.base.topology import Topology


def nested_circles(topology: Topology, name: str) -> Layout:
    """Return a recursive network's drawing: nested circles of cells, servers around switches.

    Positions follow from the digits of the servers; a cell of level l is labelled `name` with
    subscript l. With a single circle, servers of a cell are on an arc that faces its centre; with
    nested circles, servers surround their switch.
    """
    addresses = [topology.digits(server) for server in range(topology.servers)]
    radices = [int(max(column)) + 1 for column in zip(*addresses, strict=True)]
    levels = len(radices) - 1
    servers = radices[-1]
    facing = levels == 1 and radices[0] > 1
    if facing:
        spread = math.radians(min(200, 55 * (servers - 1)))
        radius = max(1.45, (servers - 1) * 1.12 / max(spread, 1.0))
    else:
        spread = 2 * math.pi * (servers - 1) / servers
        radius = max(1.3, servers * 1.1 / (2 * math.pi))
    radii = [radius]  # radius of the circle of a cell's sub-cells, by level of the cell
    reach = [radius + 0.65]  # outer radius of a drawn cell, by level
    for level, count in enumerate(reversed(radices[:-1])):
        room = reach[-1] + (0.35 if level == 0 else 1.0)
        radii.append(max(room / math.sin(math.pi / count), 1.25 * room) if count > 1 else 0.0)
        names = DrawingText((0.0, 0.0), _bracketed_address([count] * (levels - level))).width
        reach.append(radii[-1] + reach[-1] + 0.25 + (names if level + 1 < levels else 0.0))

    layout = Layout({})
    large = name_size(2 * reach[-1])
    cells: dict[tuple[int, ...], tuple[Point, float]] = {(): ((0.0, 0.0), 0.0)}
    for digits in addresses:
        for depth in range(1, levels + 1):
            cell, level = digits[:depth], levels - depth
            if cell in cells:
                continue
            outer, turn = cells[cell[:-1]]
            turn += 2 * math.pi * int(cell[-1]) / radices[depth - 1]
            centre = polar(outer, radii[level + 1], turn)
            cells[cell] = centre, turn
            full = cell_name(name, level, cell)
            layout.frames.append(DrawingDisc(centre, reach[level], full))
            # Inner cells have short names in small letters; those of outer cells explain them.
            note = (
                DrawingText(centre, full, large)
                if depth == 1
                else DrawingText(centre, _bracketed_address(cell))
            )
            away = angle_of(outer, centre)
            half = abs(math.sin(away)) * note.width + abs(math.cos(away)) * note.size
            aside = polar(centre, reach[level] + 0.15 + half / 2, away)
            layout.notes.append(note._replace(centre=aside))
    members: dict[tuple[int, ...], list[int]] = {}
    for server, digits in enumerate(addresses):
        members.setdefault(digits[:-1], []).append(server)
    for cell, group in members.items():
        centre, turn = cells[cell]
        # Preferred angle of each server: towards the cells to which it is cabled.
        preferred: list[float | None] = []
        for server in group:
            peers = [plug.node for _, plug in topology.neighbours(server)]
            centres = [cells[addresses[p][:-1]][0] for p in peers if p < topology.servers]
            turns = [angle_of(centre, far) for far in centres]
            x, y = sum(map(math.sin, turns)), sum(map(math.cos, turns))
            preferred.append(math.atan2(x, y) if turns else None)
        if facing:
            # A cell's switch is drawn on the outer side: the cell's servers face the other cells.
            centre = polar(centre, 0.42 * radius, turn)
            slots = [
                turn + math.pi + spread * (i / max(servers - 1, 1) - 0.5) for i in range(len(group))
            ]
        else:
            slots = [turn + 2 * math.pi * i / servers for i in range(len(group))]
        layout.positions[topology.server_plug(group[0], 0).node] = centre
        for server, slot in zip(group, _assign_angles(slots, preferred, facing), strict=True):
            layout.positions[server] = polar(centre, radius, slot)
    return layout


def _bracketed_address(cell: Sequence[int]) -> str:
    """Return a cell's address as digits in brackets, such as ``[0,1]``."""
    return f"[{','.join(map(str, cell))}]"


def angle_of(start: Point, end: Point) -> float:
    """Return the direction from `start` to `end` in radians, clockwise from the top."""
    return math.atan2(end[0] - start[0], end[1] - start[1])


def _assign_angles(slots: list[float], preferred: list[float | None], facing: bool) -> list[float]:
    """Return each server's angle on its cell's circle in a drawing, close to its preferred one.

    A server without a preferred angle keeps its slot. Unless the servers are `facing` one
    angle_of, their slots form a full circle, which may be rotated as a whole.
    """
    movable = [i for i, angle in enumerate(preferred) if angle is not None]
    free = [slots[i] for i in movable]
    middle = sum(slots) / len(slots)

    def offset_from_middle(i: int) -> float:
        return math.remainder((preferred[i] or 0.0) - middle, 2 * math.pi)

    order = sorted(movable, key=offset_from_middle)
    phase = 0.0
    if not facing and order:
        # Best rotation of the whole circle: the mean direction (vector sum) of all servers'
        # rotations.
        best = -1.0
        for first in range(len(order)):
            turning = order[first:] + order[:first]
            turns = [(preferred[i] or 0.0) - slot for i, slot in zip(turning, free, strict=True)]
            x, y = sum(map(math.sin, turns)), sum(map(math.cos, turns))
            if math.hypot(x, y) > best + 1e-9:
                best, phase, order = math.hypot(x, y), math.atan2(x, y), turning
    result = [slot + phase for slot in slots]
    for i, slot in zip(order, free, strict=True):
        result[i] = slot + phase
    return result
