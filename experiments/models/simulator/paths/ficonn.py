"""FiConn's traffic-oblivious routing for arrays of flows (hosts/ficonn/paths.py)."""

from __future__ import annotations

from pillarbox.experiments.models.simulator import compiled_recursive
from pillarbox.experiments.models.simulator.paths import CompiledRouting, WalkRule
from pillarbox.hosts.ficonn.rules import nested
from pillarbox.topos.ficonn import SWITCH, FiConn


def _walk(ficonn: FiConn) -> WalkRule:
    tor = compiled_recursive.fill_of(nested(ficonn.sizes))
    return WalkRule(lambda _: tor, 2 ** (ficonn.k + 1) - 1, [SWITCH, None][: ficonn.ports])


ALGORITHMS = {"tor": CompiledRouting(_walk)}
