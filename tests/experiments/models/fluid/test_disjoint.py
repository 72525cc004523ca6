"""Disjoint paths against networkx, which finds them by other means."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import networkx
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid import disjoint
from pillarbox.experiments.models.fluid.directed_links import working_links
from pillarbox.experiments.models.fluid.disjoint import disjoint_paths
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.topos.base.errors import PillarboxError

SPECS = ("bcube,3,1", "bcube,4,2,servers=32", "dcell,4,1", "dcell,3,2,servers=41", "dpillar,4,2")
SPECS += ("dpillar,8,3", "ficonn,4,2", "tree,3,2", "fattree,4", "dcell,2,2")


@pytest.mark.parametrize("spec", SPECS)
def test_as_many_as_networkx_finds(spec: str) -> None:
    network = topos.parse(spec)
    graph = networkx.Graph((cable.a, cable.b) for cable in network.links())
    draw = random.Random(spec)
    for _ in range(5):
        ends = draw.sample(range(network.servers), 2)
        broken = draw.sample(sorted(set(range(network.servers)).difference(ends)), 2)
        failures = parse_failures(network, [f"kill {network.address(s)}" for s in broken])
        left = graph.copy()
        left.remove_nodes_from(broken)
        by_link = networkx.edge_connectivity(left, *ends)
        # Over a cable of their own two servers have one way that no node can cut.
        near = left.has_edge(*ends)
        left.remove_edges_from([ends] * near)
        by_node = networkx.node_connectivity(left, *ends) + near
        works = working_links(network, failures)
        assert disjoint_paths(network, *ends, works) == (by_link, by_node), ends


def test_servers_at_the_same_two_switches_have_two_ways() -> None:
    dpillar = topos.parse("dpillar,4,2")
    peer = next(peer for peer in dpillar.peers(0, 0) if peer in dpillar.peers(0, 1))
    assert disjoint_paths(dpillar, 0, peer) == (2, 2)


def test_ends_that_are_the_same_and_networks_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PillarboxError, match="two different servers"):
        disjoint_paths(topos.parse("bcube,2,1"), 1, 1)
    monkeypatch.setattr(disjoint, "MOST_CABLES", 7)
    with pytest.raises(PillarboxError, match="its 8 cables in memory, and the limit is 7"):
        disjoint_paths(topos.parse("bcube,2,1"), 0, 1)


def test_networks_beyond_the_limit_are_refused() -> None:
    large: Any = SimpleNamespace(spec="bcube,99,3", cables=1_000_001)
    with pytest.raises(PillarboxError, match=r"1,000,001 cables .* the limit is 1,000,000"):
        disjoint_paths(large, 0, 1)
