"""Look-up of a network's routing declaration by the network's name.

A file hosts/KIND.py, or a folder of that name, defines one NETWORK
(`pillarbox.hosts.base.network.Network`). This module does not import the class Network, so that the
modules below may import this module.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from pillarbox import hosts
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import kinds


@cache
def declared(kind: str) -> Any:
    """Return `NETWORK` of the package hosts/KIND (a network's routing); None if there is none."""
    if kind not in {module.name for module in pkgutil.iter_modules(hosts.__path__)}:
        return None
    module = importlib.import_module(f"pillarbox.hosts.{kind}")
    found = getattr(module, "NETWORK", None)
    if found is None:
        raise PillarboxError(
            f"{module.__file__} declares no NETWORK = Network(...): docs/extending-routing.md has "
            "an example"
        )
    return found


def all_declared() -> list[Any]:
    """Return the routing declaration (NETWORK) of every network that has one, sorted by name."""
    return [found for kind in kinds() if (found := declared(kind)) is not None]
