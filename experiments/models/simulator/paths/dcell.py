"""DCellRouting for arrays of flows (hosts/dcell/paths.py)."""

from __future__ import annotations

from typing import Any

from experiments.models.simulator import compiled_recursive
from experiments.models.simulator.paths import CompiledRouting, WalkRule
from hosts.dcell.rules import nested
from topos.dcell import DCell


def _walk(dcell: DCell) -> WalkRule:
    by_uid = compiled_recursive.fill_of(nested(dcell.sizes))

    def fill(sources: Any, destinations: Any, ports: Any, peers: Any, counts: Any) -> None:
        by_uid(dcell.uid(sources), dcell.uid(destinations), ports, peers, counts)
        servers = dcell.server_of_uid(peers)
        if servers is not peers:  # some partial DCells, in which uids and server numbers differ
            peers[:] = servers

    return WalkRule(lambda _: fill, 2 ** (dcell.k + 1) - 1, [0, *[None] * dcell.k])


ALGORITHMS = {"dcell": CompiledRouting(_walk)}
