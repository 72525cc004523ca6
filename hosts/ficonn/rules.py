"""FiConn's rules (Li 2009): the cables of TOR.

Scalar functions, without objects: routers call them, and simulators compile them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from hosts.base.recursive import Nested
from topos.ficonn import BACKUP, SWITCH


def nested(sizes: Sequence[int]) -> Nested:
    """Return the cables (Algorithm 1): every 2^l-th server of a member has one of level l."""
    levels = range(1, len(sizes))
    steps, starts = [2**level for level in levels], [2 ** (level - 1) - 1 for level in levels]
    return Nested(sizes, [0, *steps], [0, *starts], [SWITCH, *[BACKUP] * len(levels)])
