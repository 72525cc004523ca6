"""The papers' figures and tables, made again: one file each, found by its name.

``dcell_fig11.py`` is ``pillarbox reproduce dcell-fig11``. Each has ABOUT, a sentence; LIVE, whether
it needs a lab (and root) or the simulator; and ``reproduce(settings) -> Reproduction``. What begins
with an underscore is theirs to share.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from types import ModuleType

from topos.base.errors import require

NO_FIGURE = "result"


def names() -> list[str]:
    """Return what can be made again (``dcell_fig11.py`` is ``dcell-fig11``)."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(
        name.replace("_", "-") for name in found if name != NO_FIGURE and not name.startswith("_")
    )


def figure(name: str) -> ModuleType:
    """Return the module that makes a figure again, or raise TopologyError."""
    known = names()
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else "`pillarbox reproduce --list` shows all"
    require(name in known, f"nothing here makes {name!r} again: {hint}")
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
