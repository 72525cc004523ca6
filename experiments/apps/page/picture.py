"""The page's network drawing: the shapes of `topo --draw` as JSON-compatible numbers."""

from __future__ import annotations

from typing import Any

from pillarbox.experiments.runs.reporting.drawing.network_figure import (
    SERVER_RADIUS,
    SWITCH_HEIGHT,
    Picture,
)
from pillarbox.hosts.base.fault_kinds import FAULT_KINDS
from pillarbox.topos.base.layout import DrawingDisc
from pillarbox.topos.base.topology import Topology


def picture_of(topology: Topology) -> dict[str, Any]:
    """Return the coordinates of a network drawing; y increases downwards, as in SVG.

    Returns
    -------
    dict
        ``box``: left, top, width and height of the drawing. ``radius``: of servers. ``height``: of
        switches. ``servers``: number of servers. ``nodes``: node number, x, y, width, name, label
        and IP address (``ip``, empty for switches) of each node, in the order of the node numbers.
        ``again``: node number, x, y and width of nodes that are drawn a second time. ``cables``, in
        the order of `Topology.links`: both ends ``a`` and ``b``, ``level``, relative ``rate`` if
        levels have rates of their own, and ``points`` of a line (two) or of a Bézier curve (four).
        ``frames`` and ``notes``: groups and texts of the paper's figure.
    """
    drawn = Picture(topology)
    (left, bottom), (right, top) = drawn.low.tolist(), drawn.high.tolist()
    places = [
        {
            "node": node,
            "x": round(x, 3),
            "y": round(-y, 3),
            "width": round(drawn.switch_widths.get(node, 2 * SERVER_RADIUS), 3),
        }
        for node, (x, y) in drawn.places
    ]
    first_drawn = len(drawn.layout.positions)
    return {
        "box": [round(left, 3), round(-top, 3), round(right - left, 3), round(top - bottom, 3)],
        "radius": SERVER_RADIUS,
        "height": SWITCH_HEIGHT,
        "servers": topology.servers,
        "nodes": [place | _node_names(drawn, int(place["node"])) for place in places[:first_drawn]],
        "again": places[first_drawn:],
        "cables": [
            {
                "a": cable.a,
                "b": cable.b,
                "level": int(cable.level),
                "points": [[round(x, 3), round(-y, 3)] for x, y in points],
            }
            | ({"rate": topology.rate_of_level(cable.level)} if topology.factors.rates else {})
            for cable, points in drawn.cable_curves()
        ],
        "frames": [_frame_shape(drawn, frame) for frame in drawn.layout.frames],
        "notes": [
            {"x": round(x, 3), "y": round(-y, 3), "text": text, "size": round(size, 3)}
            for (x, y), text, size in drawn.layout.notes
        ],
    }


def _node_names(drawn: Picture, node: int) -> dict[str, str]:
    topology = drawn.topology
    ip = topology.ip(node) if drawn.is_server(node) else ""
    return {"name": topology.name(node), "label": drawn.label(node), "ip": ip}


def _frame_shape(drawn: Picture, frame: Any) -> dict[str, Any]:
    if isinstance(frame, DrawingDisc):
        (x, y), radius = frame.centre, frame.radius
        place = {"x": round(x, 3), "y": round(-y, 3), "radius": round(radius, 3)}
        return {"name": frame.name, **place}
    left, low, right, high = drawn.layout.sides(frame)
    sides = {"width": round(right - left, 3), "height": round(high - low, 3)}
    return {"name": frame.name, "left": round(left, 3), "top": round(-high, 3), **sides}


def _page_fault_kinds() -> dict[str, dict[str, Any]]:
    """Return the kinds of faults for the page, by name: event, sentence and button of each.

    ``amounts`` has a word, the number that the page offers, and a unit for each number.
    """
    return {
        kind.name: {
            "event": kind.event,
            "target": kind.target,
            "predicate": kind.predicate,
            "verb": kind.verb,
            "option": kind.option,
            "amounts": [
                {"word": one.word, "usual": one.usual, "unit": one.unit} for one in kind.amounts
            ],
        }
        for kind in FAULT_KINDS
    }


def recording_head(topology: Topology) -> dict[str, Any]:
    """Return the part of a recording that follows from its network: names, drawing, faults."""
    return {
        "network": topology.spec,
        "title": f"{topology.title} {topology.spec}",
        "description": topology.description(),
        "picture": picture_of(topology),
        "fault_kinds": _page_fault_kinds(),
    }
