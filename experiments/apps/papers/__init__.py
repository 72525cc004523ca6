"""Reproductions of the papers' figures and tables: a folder per paper, a file per subject.

A live figure is a file NAME.toml (`shared.live_figure`). A simulated one is a function that a
module registers (`shared.figure`). Figures that are in no paper are in ``ours``, or have names that
say so.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pillarbox.topos.base.errors import meant, require

if TYPE_CHECKING:
    from pillarbox.experiments.apps.papers.shared.figure import Figure


@cache
def figures() -> dict[str, Figure]:
    """Return all reproducible figures and tables by name, in alphabetical order."""
    from pillarbox.experiments.apps.papers.shared.figure import FIGURES
    from pillarbox.experiments.apps.papers.shared.live_figure import SUFFIX, figure_in

    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    files = Path(__path__[0]).glob(f"*/*{SUFFIX}")
    live = {one.stem: figure_in(one, check=False) for one in files}
    return dict(sorted((FIGURES | live).items()))


def names() -> list[str]:
    """Return the names of all reproducible figures and tables."""
    return list(figures())


def figure(name: str) -> Figure:
    """Return a reproducible figure by name, or the live figure of a FILE.toml.

    Raises PillarboxError if the name is unknown or the file is no figure.
    """
    from pillarbox.experiments.apps.papers.shared.live_figure import SUFFIX, figure_in

    if name.endswith(SUFFIX):
        return figure_in(Path(name))
    known = names()
    hint = meant(name, known, "`pillarbox reproduce --list` shows all")
    require(name in known, f"no figure or table is named {name!r}: {hint}")
    return figures()[name]
