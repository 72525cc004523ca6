"""The papers' figures and tables, made again: a folder for each paper, a file for each figure.

``dcell/fig11.py`` is ``pillarbox reproduce dcell-fig11``; what no paper has is in ``ours``, under
its own name. Each has ABOUT, a sentence; LIVE, whether it needs a lab (and root) or the simulator;
and ``reproduce(settings) -> Reproduction``. What several figures need is in ``shared``.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache
from types import ModuleType

from topos.base.errors import require

OURS, SHARED = "ours", "shared"


def names() -> list[str]:
    """Return what can be made again (``dcell/fig11.py`` is ``dcell-fig11``)."""
    return sorted(_modules())


def figure(name: str) -> ModuleType:
    """Return the module that makes a figure again, or raise PillarboxError."""
    known = names()
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else "`pillarbox reproduce --list` shows all"
    require(name in known, f"nothing here makes {name!r} again: {hint}")
    return importlib.import_module(_modules()[name])


@cache
def _modules() -> dict[str, str]:
    found = {}
    for folder in pkgutil.iter_modules(__path__):
        if folder.name == SHARED:
            continue
        paper = importlib.import_module(f"{__name__}.{folder.name}")
        prefix = "" if folder.name == OURS else f"{folder.name}-"
        for file in pkgutil.iter_modules(paper.__path__):
            found[prefix + file.name.replace("_", "-")] = f"{paper.__name__}.{file.name}"
    return found
