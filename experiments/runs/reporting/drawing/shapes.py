"""Many shapes as a single matplotlib artist, which is faster than an artist per shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_rgba
from matplotlib.path import Path
from numpy.typing import NDArray

from pillarbox.topos.base.layout import Point

Dashes = Literal["solid"] | tuple[float, Sequence[float]]
_CIRCLE, _BOX = Path.unit_circle(), Path.unit_rectangle()


class Shape(NamedTuple):
    """An outline with an optional fill in a drawing; `name` is its identifier in an SVG file."""

    name: str
    outline: Path
    edge: str
    width: float  # line width in points
    style: Dashes = "solid"
    fill: str | None = None


class Shapes(Artist):
    """A matplotlib artist that draws a list of shapes in order, in units of the axes."""

    def __init__(self, zorder: float) -> None:
        super().__init__()
        self.set_zorder(zorder)
        self.shapes: list[Shape] = []

    def draw(self, renderer: RendererBase) -> None:
        """Draw each shape, as a separate group in an SVG file."""
        transform = self.get_transform()
        look: Any = renderer.new_gc()
        look.set_joinstyle("miter")
        for shape in self.shapes:
            look.set_foreground(shape.edge)
            look.set_linewidth(shape.width)
            look.set_dashes(*_dash_lengths(shape))
            renderer.open_group("shape", gid=shape.name)
            fill = None if shape.fill is None else to_rgba(shape.fill)
            renderer.draw_path(look, shape.outline, transform, fill)
            renderer.close_group("shape")
        look.restore()


def _dash_lengths(shape: Shape) -> tuple[float, NDArray[np.float64] | None]:
    """Return the dash offset and lengths of a shape in points, scaled by its line width."""
    if shape.style == "solid":
        return 0.0, None
    offset, lengths = shape.style
    return offset * shape.width, np.array(lengths) * shape.width


def circle(centre: Point, radius: float) -> Path:
    """Return the outline of a circle as a matplotlib path."""
    return Path(np.asarray(_CIRCLE.vertices) * radius + np.asarray(centre), _CIRCLE.codes)


def box(corner: Point, width: float, height: float) -> Path:
    """Return the outline of a rectangle as a matplotlib path."""
    size = np.array((width, height))
    return Path(np.asarray(_BOX.vertices) * size + np.asarray(corner), _BOX.codes)
