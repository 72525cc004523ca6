"""DCellRouting for arrays of flows (hosts/dcell/paths.py)."""

from __future__ import annotations

from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.simulator import compiled_recursive
from pillarbox.experiments.models.simulator.hops import Hops
from pillarbox.experiments.models.simulator.paths import CompiledRouting, WalkRule
from pillarbox.hosts.dcell.rules import nested
from pillarbox.topos.dcell import DCell


def _walk(dcell: DCell) -> WalkRule:
    by_uid = compiled_recursive.fill_of(nested(dcell.sizes))

    def fill(sources: Ints, destinations: Ints, hops: Hops) -> None:
        by_uid(dcell.uid(sources), dcell.uid(destinations), hops)
        servers = dcell.server_of_uid(hops.peers)
        if (
            servers is not hops.peers
        ):  # some partial DCells, in which uids and server numbers differ
            hops.peers[:] = servers

    return WalkRule(lambda _: fill, 2 ** (dcell.k + 1) - 1, [0, *[None] * dcell.k])


ALGORITHMS = {"dcell": CompiledRouting(_walk)}
