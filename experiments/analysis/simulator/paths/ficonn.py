"""FiConn's traffic-oblivious routing for arrays of flows (hosts/ficonn/paths.py)."""

from __future__ import annotations

from functools import partial

import numpy

from experiments.analysis.simulator import recursive
from experiments.analysis.simulator.paths import Compiled, Walk
from topos.ficonn import BACKUP, SWITCH, FiConn


def _walk(ficonn: FiConn) -> Walk:
    levels = range(1, ficonn.k + 1)
    tor = partial(
        recursive.fill,
        numpy.array(ficonn.sizes, numpy.int64),
        numpy.array([0, *(2**level for level in levels)]),
        numpy.array([0, *(2 ** (level - 1) - 1 for level in levels)]),
        numpy.array([SWITCH, *[BACKUP] * ficonn.k]),
    )
    return Walk(lambda _: tor, 2 ** (ficonn.k + 1) - 1, [SWITCH, None][: ficonn.ports])


ALGORITHMS = {"tor": Compiled(_walk)}
