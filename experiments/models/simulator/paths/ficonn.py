"""FiConn's traffic-oblivious routing for arrays of flows (hosts/ficonn/paths.py)."""

from __future__ import annotations

from experiments.models.simulator import compiled_recursive
from experiments.models.simulator.paths import CompiledRouting, WalkRule
from hosts.ficonn.rules import nested
from topos.ficonn import SWITCH, FiConn


def _walk(ficonn: FiConn) -> WalkRule:
    tor = compiled_recursive.fill_of(nested(ficonn.sizes))
    return WalkRule(lambda _: tor, 2 ** (ficonn.k + 1) - 1, [SWITCH, None][: ficonn.ports])


ALGORITHMS = {"tor": CompiledRouting(_walk)}
