"""A network's picture as a file: checked before anything is drawn, written all or not at all."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.files import write_atomically
from topos.base.errors import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from topos.base.topology import Topology

MOST_SERVERS = 1200  # beyond, not even cables can be told apart
FORMATS = (".svg", ".png")
MOST_PIXELS = 12_000  # of a PNG's longer side
DPI = 160


def draw_topology(topology: Topology, path: Path, *, title: bool = True) -> None:
    """Draw the network as its paper draws it, into an .svg or .png file.

    The same network gives the same bytes. `title` says whether name and counts stand above.

    Raises
    ------
    PillarboxError
        Where the suffix is another, the network is too large, or the file cannot be written.
    """
    suffix = path.suffix.lower()
    require(
        suffix in FORMATS,
        f"a drawing is an .svg or a .png file, by its suffix, which {path.name!r} does not have",
    )
    require(
        topology.servers <= MOST_SERVERS,
        f"{topology.spec} has {topology.servers} servers, and a drawing is legible up to some 100 "
        f"and refused above {MOST_SERVERS}: choose smaller parameters",
    )
    directory = path.parent
    require(
        directory.is_dir() and os.access(directory, os.W_OK) and not path.is_dir(),
        f"{str(path)!r} cannot be written: name a file in a directory that exists and is writable",
    )
    from experiments.reporting.drawing.network_figure import topology_figure

    write_atomically(path, rendered(topology_figure(topology, title=title), suffix[1:]))


def rendered(figure: Figure, file_format: str) -> bytes:
    """Return the figure as the bytes of an ``svg`` or ``png`` file, without date or version."""
    import matplotlib as mpl

    stream = BytesIO()
    how: dict[str, Any] = {"metadata": {"Date": None}}
    if file_format == "png":  # the least effort makes files that are as small, in half the time
        how = {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}}
    dpi = min(DPI, MOST_PIXELS / max(figure.get_size_inches()))
    # Text stays text, which can be searched and read aloud; the salt makes the identifiers equal.
    with mpl.rc_context({"svg.hashsalt": "pillarbox", "svg.fonttype": "none"}):
        figure.savefig(stream, format=file_format, dpi=dpi, **how)
    return stream.getvalue()
