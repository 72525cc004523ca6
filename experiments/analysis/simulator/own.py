"""What the simulator has compiled for a network: a file of that name in one of its folders."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any


@cache  # asked again for every block of flows
def own(folder: str, kind: str, name: str) -> dict[str, Any]:
    """Return a table of a network's file in a folder, such as "paths"; empty where there is none.

    >>> list(own("adapting", "bcube", "ADAPTING"))
    ['bsr']
    """
    path = Path(__file__).parent / folder
    if kind not in {module.name for module in pkgutil.iter_modules([str(path)])}:
        return {}
    module = importlib.import_module(f"{__package__}.{folder}.{kind}")
    return dict(vars(module).get(name, {}))
