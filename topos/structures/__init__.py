"""Interconnection structures of the papers' comparison tables, without addresses or routing.

>>> from topos import structures
>>> structures.parse("hypercube,6").nodes
64
>>> structures.names()[:3]
['butterfly', 'debruijn', 'fattree']
"""

from topos.structures.base import Claim, Structure
from topos.structures.registry import names, parse

__all__ = ["Claim", "Structure", "names", "parse"]
