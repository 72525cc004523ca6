"""Files with drawings of networks: checks before drawing, and atomic writes."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.base.files import write_atomically
from pillarbox.topos.base.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pillarbox.topos.base.topology import Topology

MOST_SERVERS = 1200  # maximum number of servers in a network drawing, for legible cables
FORMATS = (".svg", ".png")  # file suffixes of network drawings
MOST_PIXELS = 12_000  # maximum length of a PNG's longer side, in pixels
DPI = 160  # resolution of a PNG in pixels per inch


def draw_topology(topology: Topology, path: Path, *, title: bool = True) -> None:
    """Draw a network as in its paper, to an .svg or .png file.

    The same network always gives the same bytes. `title` adds the name and the counts of servers,
    switches and cables.

    Raises
    ------
    PillarboxError
        If the suffix is unknown, the network is too large, or the file cannot be written.
    """
    suffix = path.suffix.lower()
    require(
        suffix in FORMATS,
        f"{path.name!r} is not a file name of a drawing: use the suffix .svg or .png",
    )
    require(
        topology.servers <= MOST_SERVERS,
        f"{topology.spec} has {topology.servers} servers, and drawings are limited to "
        f"{MOST_SERVERS} (legible up to about 100): choose smaller parameters",
    )
    directory = path.parent
    require(
        directory.is_dir() and os.access(directory, os.W_OK) and not path.is_dir(),
        f"{str(path)!r} cannot be written: name a file in a directory that exists and is writable",
    )
    from pillarbox.experiments.runs.reporting.drawing.network_figure import topology_figure

    write_atomically(path, rendered(topology_figure(topology, title=title), suffix[1:]))


def rendered(figure: Figure, file_format: str) -> bytes:
    """Return the bytes of a figure as ``svg`` or ``png`` file, without date or version."""
    import matplotlib as mpl

    stream = BytesIO()
    how: dict[str, Any] = {"metadata": {"Date": None}}
    if file_format == "png":  # PNG compression level 3 is as good as higher levels
        how = {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}}
    dpi = min(DPI, MOST_PIXELS / max(figure.get_size_inches()))
    # In SVG files, text stays searchable text, and the salt makes identifiers reproducible.
    with mpl.rc_context({"svg.hashsalt": "pillarbox", "svg.fonttype": "none"}):
        figure.savefig(stream, format=file_format, dpi=dpi, **how)
    return stream.getvalue()
