"""Lookup of a network's compiled code in the simulator: one file per network in each subfolder."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any


@cache  # called again for every block of flows of the same network
def own(folder: str, kind: str, name: str) -> dict[str, Any]:
    """Return a table from a network's file in a folder such as "paths"; empty if there is no such
    file.

    >>> list(own("adapting", "bcube", "ADAPTING"))
    ['bsr']
    """
    path = Path(__file__).parent / folder
    if kind not in {module.name for module in pkgutil.iter_modules([str(path)])}:
        return {}
    module = importlib.import_module(f"{__package__}.{folder}.{kind}")
    return dict(vars(module).get(name, {}))
