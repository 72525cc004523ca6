"""The ways of cables: straight where nothing stands in between, else bent around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topos.base.layout import Point

Floats = NDArray[np.float64]

CLEARANCE = 0.09  # between a cable and a node that it does not touch, in units of the layout
# How far the middle of a cable may be shifted, as shares of its length, in order of preference.
BENDS = (0.0, *(sign * bend for bend in (0.05, 0.1, 0.16, 0.23, 0.31, 0.4) for sign in (1, -1)))
SAMPLES = 33


@dataclass
class Obstacles:
    """What no cable should pass under: rectangles widened all around, or circles (of no size)."""

    centres: Floats  # (count, 2)
    halves: Floats  # (count, 2), half width and half height
    radii: Floats  # (count,), by which the rectangle is widened

    def depth(self, points: Floats, ends: tuple[int, int]) -> float:
        """Return how deep the points come into any obstacle but the cable's two ends."""
        low, high = points.min(axis=0), points.max(axis=0)
        reach = self.halves + self.radii[:, None] + CLEARANCE
        near = ((self.centres + reach > low) & (self.centres - reach < high)).all(axis=1)
        near[list(ends)] = False
        if not near.any():
            return 0.0
        away = np.abs(points[:, None] - self.centres[near]) - self.halves[near]
        distance = np.hypot(*np.moveaxis(np.maximum(away, 0.0), 2, 0)) - self.radii[near]
        return float(np.maximum(CLEARANCE - distance, 0.0).max(axis=0).sum())


def bent(start: Point, end: Point, bend: float) -> Point:
    """Return the control point of the curve whose middle is shifted by that share of its length."""
    (x0, y0), (x1, y1) = start, end
    return (x0 + x1) / 2 - 2 * bend * (y1 - y0), (y0 + y1) / 2 + 2 * bend * (x1 - x0)


def control_point(obstacles: Obstacles, ends: tuple[int, int]) -> Point | None:
    """Return the control point of a cable's curve, or None where it can be straight."""
    start, end = (tuple(obstacles.centres[i].tolist()) for i in ends)
    t = np.linspace(0.0, 1.0, SAMPLES)[:, None]
    best, least = 0.0, np.inf
    for bend in BENDS:
        control = np.array(bent(start, end, bend))
        points = (1 - t) ** 2 * np.array(start) + 2 * t * (1 - t) * control + t**2 * np.array(end)
        depth = obstacles.depth(points, ends)
        if depth < least - 1e-9:
            best, least = bend, depth
        if depth == 0.0:
            break
    return bent(start, end, best) if best else None
