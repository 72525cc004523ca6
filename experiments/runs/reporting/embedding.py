"""Figures inside an HTML page: SVG with the page's colour variables, for light and dark mode."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from html import escape

from markupsafe import Markup

from pillarbox.experiments.runs.reporting import load_map, style
from pillarbox.experiments.runs.reporting.drawing import network_figure as drawing

# Fonts of SVG figures: matplotlib lays text out in DejaVu Sans; Verdana is as wide.
FONTS = "'DejaVu Sans', Verdana, sans-serif"


@dataclass(frozen=True)
class EmbeddedFigure:
    """A figure of an HTML report: file name, caption and SVG text."""

    name: str  # file name without suffix
    caption: str
    svg: Markup


def embedded(svg: str, name: str, caption: str) -> EmbeddedFigure:
    """Return an SVG figure for an HTML page; the SVG's identifiers get the prefix `name`."""
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    text = _colour_pattern().sub(
        lambda found: f"var({_colour_variables()[found.group().lower()]})", text
    )
    text = text.replace("'DejaVu Sans'", FONTS)
    label = escape(caption, quote=True)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return EmbeddedFigure(name, caption, Markup(text))


@cache
def _colour_variables() -> dict[str, str]:
    """Return the CSS variable for each colour of a figure (see templates/style.css)."""
    named = {
        drawing.INK: "--ink",
        drawing.PAPER: "--paper",
        drawing.FRAME: "--frame",
        drawing.FRAME_EDGE: "--frame-edge",
        drawing.SWITCH_FILL: "--switch",
        style.GRID: "--grid",
        style.INVALID: "--invalid",
        style.FAULT: "--fault",
        load_map.UNUSED: "--unused",
    }
    named |= {colour: f"--r{i}" for i, colour in enumerate(style.RAMP)}
    named |= {colour: f"--c{i}" for i, colour in enumerate(drawing.COLOURS)}
    return {colour.lower(): variable for colour, variable in named.items()}


@cache
def _colour_pattern() -> re.Pattern[str]:
    colours = "|".join(map(re.escape, _colour_variables()))
    return re.compile(f"(?<=: )({colours})", re.IGNORECASE)  # colours in style attributes only
