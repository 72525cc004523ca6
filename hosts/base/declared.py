"""What hosts/NETWORK declares, found by the network's name: the only look-up of its kind.

A file hosts/NETWORK.py, or a folder of that name, has one NETWORK (`hosts.base.network.Network`).
This file knows nothing of what stands in it, so that everything below may ask.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

import hosts
from topos.base.errors import PillarboxError
from topos.base.spec import kinds


@cache
def declared(kind: str) -> Any:
    """Return the NETWORK of hosts/KIND; None where a network has no routing of its own."""
    if kind not in {module.name for module in pkgutil.iter_modules(hosts.__path__)}:
        return None
    module = importlib.import_module(f"hosts.{kind}")
    found = getattr(module, "NETWORK", None)
    if found is None:
        raise PillarboxError(
            f"{module.__file__} declares no NETWORK = Network(...): docs/extending-routing.md has "
            "an example"
        )
    return found


def all_declared() -> list[Any]:
    """Return the NETWORK of every network that has one, by the networks' names."""
    return [found for kind in kinds() if (found := declared(kind)) is not None]
