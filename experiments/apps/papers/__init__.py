"""Reproductions of the papers' figures and tables: a folder per paper, a file per subject.

`shared.figure` defines a figure; each file registers its own figures. Figures that are in no paper
are in ``ours``, or have names that say so.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from topos.base.errors import meant, require

if TYPE_CHECKING:
    from experiments.apps.papers.shared.figure import Figure


@cache
def figures() -> dict[str, Figure]:
    """Return all reproducible figures and tables by name, in alphabetical order."""
    from experiments.apps.papers.shared.figure import FIGURES

    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(FIGURES.items()))


def names() -> list[str]:
    """Return the names of all reproducible figures and tables."""
    return list(figures())


def figure(name: str) -> Figure:
    """Return a reproducible figure by name; raise PillarboxError if the name is unknown."""
    known = names()
    hint = meant(name, known, "`pillarbox reproduce --list` shows all")
    require(name in known, f"no figure or table is named {name!r}: {hint}")
    return figures()[name]
