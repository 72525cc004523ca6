"""Topologies: the networks of the four papers, and the two that the papers compare them with.

>>> import topos
>>> bcube = topos.parse("bcube,4,1")
>>> bcube.servers, bcube.switches, bcube.cables
(16, 8, 32)
>>> [bcube.address(peer) for peer in bcube.peers(bcube.server("0.0"), port=1)]
['1.0', '2.0', '3.0']
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topos.base.errors import PillarboxError
    from topos.base.spec import kinds, network, parse
    from topos.base.topology import Bound, Cable, Plug, Topology

_HOME = {
    "PillarboxError": "topos.base.errors",
    "kinds": "topos.base.spec",
    "network": "topos.base.spec",
    "parse": "topos.base.spec",
    "Bound": "topos.base.topology",
    "Cable": "topos.base.topology",
    "Plug": "topos.base.topology",
    "Topology": "topos.base.topology",
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
    raise AttributeError(f"module 'topos' has no attribute {name!r}")
