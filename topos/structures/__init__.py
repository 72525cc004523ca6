"""Interconnection structures of the papers' comparison tables, without addresses or routing.

>>> from pillarbox.topos import structures
>>> structures.parse("hypercube,6").nodes
64
>>> structures.names()[:3]
['butterfly', 'debruijn', 'fattree']
"""

from pillarbox.topos.structures.base import Claim, Structure
from pillarbox.topos.structures.registry import names, parse

__all__ = ["Claim", "Structure", "names", "parse"]
