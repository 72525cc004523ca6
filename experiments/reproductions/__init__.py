"""The papers' figures and tables, made again: a folder for each paper, a file for each subject.

`shared.figure` says what a figure is; each file registers its own. What no paper has is in ``ours``
and in names that say so.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from topos.base.errors import meant, require

if TYPE_CHECKING:
    from experiments.reproductions.shared.figure import Figure


@cache
def figures() -> dict[str, Figure]:
    """Return all figures by name, in the order of the names."""
    from experiments.reproductions.shared.figure import FIGURES

    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(FIGURES.items()))


def names() -> list[str]:
    """Return what can be made again."""
    return list(figures())


def figure(name: str) -> Figure:
    """Return a figure, or raise PillarboxError."""
    known = names()
    hint = meant(name, known, "`pillarbox reproduce --list` shows all")
    require(name in known, f"nothing here makes {name!r} again: {hint}")
    return figures()[name]
