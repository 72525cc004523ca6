"""Lookup of a network's compiled code in the simulator: one file per network in each subfolder."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any


@cache  # cached, since it is called for every block of flows of a network
def network_table(folder: str, kind: str, name: str) -> dict[str, Any]:
    """Return a table from a network's file in a folder such as "paths"; empty if there is no such
    file.

    >>> list(network_table("adapting", "bcube", "ADAPTING"))
    ['bsr']
    """
    path = Path(__file__).parent / folder
    if kind not in {module.name for module in pkgutil.iter_modules([str(path)])}:
        return {}
    module = importlib.import_module(f"{__package__}.{folder}.{kind}")
    return dict(vars(module).get(name, {}))
