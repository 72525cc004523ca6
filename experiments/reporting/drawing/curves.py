"""The ways of cables: straight where nothing stands in between, else bent around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topos.base.layout import Point

Floats = NDArray[np.float64]

CLEARANCE = 0.09  # between a cable and a node that it does not touch, in units of the layout
# How far a curve's two control points may be shifted sideways, as shares of the cable's length.
SHIFTS = (0.0, 0.04, -0.04, 0.09, -0.09, 0.16, -0.16, 0.25, -0.25, 0.36, -0.36)
SHIFT_COST = 0.12  # of a curve beside a straight line, by length and square of the shifts
SAMPLES = 97  # a long cable could slip past a node between fewer

_T = np.linspace(0.0, 1.0, SAMPLES)[:, None]
_WEIGHTS = np.hstack([(1 - _T) ** 3, 3 * _T * (1 - _T) ** 2, 3 * _T**2 * (1 - _T), _T**3])
_PAIRS = np.array([(a, b) for a in SHIFTS for b in SHIFTS])


@dataclass
class Obstacles:
    """What no cable should pass under: rectangles widened all around, or circles (of no size)."""

    centres: Floats  # (count, 2)
    halves: Floats  # (count, 2), half width and half height
    radii: Floats  # (count,), by which the rectangle is widened
    low: Floats  # corners of the picture, which no cable should leave
    high: Floats

    def depths(self, curves: Floats, ends: tuple[int, int]) -> Floats:
        """Return how much of each curve (curves, samples, 2) lies under others than its ends."""
        low, high = curves.min(axis=(0, 1)), curves.max(axis=(0, 1))
        reach = self.halves + self.radii[:, None] + CLEARANCE
        near = ((self.centres + reach > low) & (self.centres - reach < high)).all(axis=1)
        near[list(ends)] = False
        outside = np.maximum(self.low - curves, 0.0) + np.maximum(curves - self.high, 0.0)
        depth: Floats = outside.sum(axis=2)
        for centre, half, radius in zip(
            self.centres[near], self.halves[near], self.radii[near], strict=True
        ):
            away = np.maximum(np.abs(curves - centre) - half, 0.0)
            distance = np.hypot(away[..., 0], away[..., 1]) - radius
            # A cable that is hidden counts as such, however little its middle is covered.
            depth += np.where(distance < CLEARANCE, CLEARANCE - distance + 0.5, 0.0)
        mean: Floats = depth.mean(axis=1)
        return mean


def control_points(obstacles: Obstacles, ends: tuple[int, int]) -> tuple[Point, Point] | None:
    """Return the two control points of a cable's curve, or None where it can be straight."""
    start, end = obstacles.centres[ends[0]], obstacles.centres[ends[1]]
    along = end - start
    if obstacles.depths((start + _T * along)[None], ends)[0] == 0.0:
        return None
    aside = np.array([-along[1], along[0]])
    first = start + along / 3 + _PAIRS[:, :1] * aside
    second = start + along * 2 / 3 + _PAIRS[:, 1:] * aside
    corners = np.stack(
        [np.broadcast_to(start, first.shape), first, second, np.broadcast_to(end, first.shape)],
        axis=1,
    )
    cost = obstacles.depths(_WEIGHTS @ corners, ends) + SHIFT_COST * (_PAIRS**2).sum(axis=1)
    best = int(cost.argmin())
    if not _PAIRS[best].any():
        return None
    (x1, y1), (x2, y2) = first[best].tolist(), second[best].tolist()
    return (x1, y1), (x2, y2)
