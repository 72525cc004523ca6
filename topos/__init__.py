"""Topologies: the networks of the four papers, and the two that the papers compare them with.

>>> from pillarbox import topos
>>> bcube = topos.parse("bcube,4,1")
>>> bcube.servers, bcube.switches, bcube.cables
(16, 8, 32)
>>> [bcube.address(peer) for peer in bcube.peers(bcube.server("0.0"), port=1)]
['1.0', '2.0', '3.0']
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pillarbox.topos.base.errors import PillarboxError
    from pillarbox.topos.base.spec import kinds, network, parse
    from pillarbox.topos.base.topology import Bound, Cable, Plug, Topology

_HOME = {
    "PillarboxError": "pillarbox.topos.base.errors",
    "kinds": "pillarbox.topos.base.spec",
    "network": "pillarbox.topos.base.spec",
    "parse": "pillarbox.topos.base.spec",
    "Bound": "pillarbox.topos.base.topology",
    "Cable": "pillarbox.topos.base.topology",
    "Plug": "pillarbox.topos.base.topology",
    "Topology": "pillarbox.topos.base.topology",
}
__all__ = [
    "Bound",
    "Cable",
    "Plug",
    "Topology",
    "PillarboxError",
    "kinds",
    "network",
    "parse",
]


def __getattr__(name: str) -> Any:
    # Lazy import: modules of networks import `Topology` while package topos is still loading.
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "topos":  # the import name of version 1.0
    from pillarbox import old_names

    old_names.import_for(__name__, __file__)
