"""Many shapes as one artist of matplotlib's: an artist for each would cost more than drawing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_rgba
from matplotlib.path import Path
from numpy.typing import NDArray

from topos.base.layout import Point

Dashes = Literal["solid"] | tuple[float, Sequence[float]]
_CIRCLE, _BOX = Path.unit_circle(), Path.unit_rectangle()


class Shape(NamedTuple):
    """An outline, filled or not; `name` is its identifier in an SVG."""

    name: str
    outline: Path
    edge: str
    width: float  # points
    style: Dashes = "solid"
    fill: str | None = None


class Shapes(Artist):
    """Shapes in units of the axes, drawn in their order."""

    def __init__(self, zorder: float) -> None:
        super().__init__()
        self.set_zorder(zorder)
        self.shapes: list[Shape] = []

    def draw(self, renderer: RendererBase) -> None:
        """Draw each shape as a group of its own."""
        transform = self.get_transform()
        look: Any = renderer.new_gc()
        look.set_joinstyle("miter")
        for shape in self.shapes:
            look.set_foreground(shape.edge)
            look.set_linewidth(shape.width)
            look.set_dashes(*_dashes(shape))
            renderer.open_group("shape", gid=shape.name)
            fill = None if shape.fill is None else to_rgba(shape.fill)
            renderer.draw_path(look, shape.outline, transform, fill)
            renderer.close_group("shape")
        look.restore()


def _dashes(shape: Shape) -> tuple[float, NDArray[np.float64] | None]:
    """Return offset and lengths, which grow with the width."""
    if shape.style == "solid":
        return 0.0, None
    offset, lengths = shape.style
    return offset * shape.width, np.array(lengths) * shape.width


def circle(centre: Point, radius: float) -> Path:
    """Return a circle's outline."""
    return Path(np.asarray(_CIRCLE.vertices) * radius + np.asarray(centre), _CIRCLE.codes)


def box(corner: Point, width: float, height: float) -> Path:
    """Return a rectangle's outline."""
    size = np.array((width, height))
    return Path(np.asarray(_BOX.vertices) * size + np.asarray(corner), _BOX.codes)
