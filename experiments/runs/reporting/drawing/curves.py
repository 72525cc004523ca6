"""Routing of cables in a drawing: straight lines, or Bézier curves around obstacles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pillarbox.topos.base.layout import Point

Floats = NDArray[np.float64]

CLEARANCE = 0.09  # minimum distance between a drawn cable and other nodes, in layout units
# Sideways shifts of a cable's two Bezier control points, as shares of the cable's length.
SHIFTS = (0.0, 0.04, -0.04, 0.09, -0.09, 0.16, -0.16, 0.25, -0.25, 0.36, -0.36)
SHIFT_COST = 0.12  # cost of bending a drawn cable, per squared shift
SAMPLES = 97  # sampled points per drawn cable; fewer could miss a crossed node

_T = np.linspace(0.0, 1.0, SAMPLES)[:, None]
_WEIGHTS = np.hstack([(1 - _T) ** 3, 3 * _T * (1 - _T) ** 2, 3 * _T**2 * (1 - _T), _T**3])
# Pairs of control point shifts in batches, smallest shifts first.
_PAIRS = np.array_split(
    np.array(sorted(product(SHIFTS, SHIFTS), key=lambda pair: pair[0] ** 2 + pair[1] ** 2)), 8
)


@dataclass
class CableObstacles:
    """Shapes in a network drawing that cables avoid: rectangles (or points) with a margin."""

    centres: Floats  # centres of the shapes, (count, 2)
    halves: Floats  # half width and half height of each shape, (count, 2)
    radii: Floats  # margin around the rectangles, or radius of the circles, (count,)
    low: Floats  # lower left corner of the drawing, the limit of all cables
    high: Floats  # upper right corner of the drawing

    def __post_init__(self) -> None:
        # Index of obstacles: grid squares of one layout unit, with the obstacles that overlap. A
        # sample is compared only with the obstacles of its square.
        reach = self.halves + self.radii[:, None] + CLEARANCE
        first, last = self._squares(self.centres - reach), self._squares(self.centres + reach)
        within: dict[tuple[int, int], list[int]] = {}
        for i, ((left, low), (right, high)) in enumerate(
            zip(first.tolist(), last.tolist(), strict=True)
        ):
            for square in product(range(left, right + 1), range(low, high + 1)):
                within.setdefault(square, []).append(i)
        shape = self._squares(self.high) + 1
        most = max(map(len, within.values()))
        self._near = np.full((*shape, most), -1)
        for square, found in within.items():
            self._near[square][: len(found)] = found

    def _squares(self, points: Floats) -> NDArray[np.int64]:
        """Return column and row of each point's grid square; points outside map to the edge."""
        inside = np.clip(points, self.low, self.high)
        return np.floor(inside - self.low).astype(np.int64)

    def depths(self, curves: Floats, ends: tuple[Any, Any]) -> Floats:
        """Return the mean overlap of each cable curve (curves, samples, 2) with obstacles.

        The nodes at the curve's ends are excluded. `ends` are two node indices for all curves, or
        two arrays of shape (curves, 1, 1).
        """
        outside = np.maximum(self.low - curves, 0.0) + np.maximum(curves - self.high, 0.0)
        depth: Floats = outside.sum(axis=(1, 2))
        squares = self._squares(curves)
        near = self._near[squares[..., 0], squares[..., 1]]
        curve, sample, slot = np.nonzero((near >= 0) & (near != ends[0]) & (near != ends[1]))
        found = near[curve, sample, slot]
        away = np.abs(curves[curve, sample] - self.centres[found]) - self.halves[found]
        away = np.maximum(away, 0.0)
        distance = np.hypot(away[:, 0], away[:, 1]) - self.radii[found]
        # Every curve sample inside an obstacle costs at least 0.5, even at the obstacle's edge.
        hidden = np.where(distance < CLEARANCE, CLEARANCE - distance + 0.5, 0.0)
        depth += np.bincount(curve, hidden, len(curves))
        mean: Floats = depth / curves.shape[1]
        return mean


def straight(obstacles: CableObstacles, ends: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return a mask of the cables that a straight line connects without touching obstacles."""
    first, second = np.array(ends).T
    start, end = obstacles.centres[first, None], obstacles.centres[second, None]
    each = first[:, None, None], second[:, None, None]
    free: NDArray[np.bool_] = obstacles.depths(start + _T * (end - start), each) == 0.0
    return free


def control_points(obstacles: CableObstacles, ends: tuple[int, int]) -> tuple[Point, Point] | None:
    """Return the two control points of a cable's best curve, or None for a straight line."""
    start, end = obstacles.centres[ends[0]], obstacles.centres[ends[1]]
    along = end - start
    aside = np.array([-along[1], along[0]])
    least, best = np.inf, None
    for pairs in _PAIRS:
        costs = SHIFT_COST * (pairs**2).sum(axis=1)
        if least <= costs[0]:
            break  # later pairs of shifts have higher costs
        first = start + along / 3 + pairs[:, :1] * aside
        second = start + along * 2 / 3 + pairs[:, 1:] * aside
        corners = np.stack(np.broadcast_arrays(start, first, second, end), axis=1)
        costs += obstacles.depths(_WEIGHTS @ corners, ends)
        i = int(costs.argmin())
        if costs[i] < least:
            least, best = costs[i], (first[i], second[i]) if pairs[i].any() else None
    if best is None:
        return None
    (x1, y1), (x2, y2) = best[0].tolist(), best[1].tolist()
    return (x1, y1), (x2, y2)
