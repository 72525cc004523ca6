"""The way of a file: everybody gets every part once, and no two trees share a cable."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.traffic.file_distribution import hop_flows, plan_for
from pillarbox.experiments.models.workloads.distribution_plan import (
    DistributionPlan,
    nearest_servers,
    plan_of,
)
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.bcube.rules import digit
from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.bcube import BCube

SPECS = (
    *("bcube,4,1", "bcube,2,3", "bcube,3,2", "bcube,4,2,servers=16", "bcube,4,2,servers=32"),
    *("rail,4,2", "rail,2,5", "rail,3,2,2"),
)
OTHERS = ("dcell,4,1", "dpillar,4,2", "ficonn,4,1", "tree,2,2", "fattree,4")


def assert_everybody_gets_every_part_once(plan: DistributionPlan) -> None:
    for tree in plan.trees:
        has = {plan.source}
        for sender, receiver in tree:
            assert sender in has, "a sender has nothing to send"
            assert receiver not in has, "a part arrives twice"
            has.add(receiver)
        assert has >= set(plan.receivers)
        useful = {sender for sender, _ in tree} | set(plan.receivers)
        assert has <= useful | {plan.source}, "a part goes to somebody who has no use for it"


def busiest(topology: Topology, plan: DistributionPlan) -> int:
    """Return how many hops share a directed cable, where each hop is one between neighbours."""
    used: Counter[tuple[int, int]] = Counter()
    for tree in plan.trees:
        for sender, receiver in tree:
            ports = [p for p in range(topology.ports) if receiver in topology.peers(sender, p)]
            assert len(ports) == 1, "a hop is no single cable"
            back = next(p for p in range(topology.ports) if sender in topology.peers(receiver, p))
            used[sender, topology.server_plug(sender, ports[0]).node] += 1
            used[topology.server_plug(receiver, back).node, receiver] += 1
    return max(used.values())


@pytest.mark.parametrize("spec", [*SPECS, *OTHERS])
def test_to_all(spec: str) -> None:
    topology = topos.parse(spec)
    for source in {0, 1, topology.servers - 1}:
        plan = plan_of(topology, source, [s for s in range(topology.servers) if s != source])
        assert_everybody_gets_every_part_once(plan)
        if plan.kind == "trees":
            assert busiest(topology, plan) == 1
            # Theorem 5: as many times faster than one cable as there are ports in use.
            assert len(plan.trees) == sum(radix > 1 for radix in topology.radices())


@pytest.mark.parametrize("spec", ["bcube,4,1", "bcube,2,3", "bcube,4,2,servers=32", "rail,4,3,2"])
def test_to_neighbours_of_different_levels_over_a_complete_graph(spec: str) -> None:
    bcube = topos.parse(spec)
    assert isinstance(bcube, DigitNetwork)
    for source in range(0, bcube.servers, 3):
        neighbours = [bcube.peers(source, level)[0] for level in range(bcube.k + 1)]
        for several in range(2, len(neighbours) + 1):
            for receivers in combinations(neighbours, several):
                plan = plan_of(bcube, source, receivers)
                assert_everybody_gets_every_part_once(plan)
                assert busiest(bcube, plan) == 1
                # r receivers get it r times faster, and each is the first to get a part.
                assert [tree[0] for tree in plan.trees] == [(source, r) for r in receivers]
                # An edge of the graph is two hops at most.
                assert all(len(tree) == 1 + 2 * (several - 1) for tree in plan.trees)


@pytest.mark.parametrize("spec", SPECS)
def test_to_any_others_over_what_is_needed_of_the_spanning_trees(spec: str) -> None:
    bcube = topos.parse(spec)
    whole = plan_of(bcube, 0, range(1, bcube.servers))
    receivers = [bcube.servers - 1, bcube.servers - 2]
    plan = plan_of(bcube, 0, receivers)
    assert_everybody_gets_every_part_once(plan)
    assert busiest(bcube, plan) == 1
    assert len(plan.trees) == len(whole.trees)
    assert all(set(some) < set(all_) for some, all_ in zip(plan.trees, whole.trees, strict=True))


def test_a_network_without_trees_has_a_pipeline() -> None:
    for spec in OTHERS:
        topology = topos.parse(spec)
        offers = declared(topology.kind).distribution is not None
        assert (plan_of(topology, 1, [0, 2, 3]).kind == "trees") == offers
    assert plan_of(topos.parse("tree,2,2"), 1, [3, 0]).trees == (((1, 3), (3, 0)),)


@pytest.mark.parametrize(("source", "receivers"), [(0, []), (0, [1, 0]), (0, [1, 1])])
def test_no_plan_for_nonsense(source: int, receivers: list[int]) -> None:
    with pytest.raises(PillarboxError):
        plan_of(topos.parse("bcube,4,1"), source, receivers)


@pytest.mark.parametrize("size_bytes", [2, 3, 1000, 10**9 + 1])
def test_parts_are_the_whole_file_and_nearly_equal(size_bytes: int) -> None:
    plan = plan_of(topos.parse("bcube,4,1"), 0, range(1, 16))
    parts = plan.bytes_per_tree(size_bytes)
    assert sum(parts) == size_bytes
    assert max(parts) - min(parts) <= 1
    flows = [flow for _, flow in hop_flows(plan, size_bytes)]
    assert [flow.number for flow in flows] == list(range(30))
    arriving: Counter[int] = Counter()
    for flow in flows:
        arriving[flow.destination] += flow.volume_bytes or 0
    assert set(arriving) == set(range(1, 16)) and set(arriving.values()) == {size_bytes}


def test_a_file_too_small_to_be_divided_is_refused() -> None:
    with pytest.raises(PillarboxError, match="at least 2 bytes"):
        plan_of(topos.parse("bcube,4,1"), 0, [1, 4]).bytes_per_tree(1)


@pytest.mark.parametrize("spec", [*SPECS, *OTHERS])
def test_nearest_servers_are_of_different_ports_first(spec: str) -> None:
    topology = topos.parse(spec)
    everybody = nearest_servers(topology, 1, topology.servers - 1)
    assert sorted([1, *everybody]) == list(range(topology.servers))
    few = nearest_servers(topology, 1, 2)
    assert few == everybody[:2]
    if isinstance(topology, BCube) and topology.k:
        levels = {
            level
            for near in few
            for level in range(topology.k + 1)
            if digit(topology.weights, near, level) != digit(topology.weights, 1, level)
        }
        assert len(levels) == 2
    with pytest.raises(PillarboxError, match="except the source"):
        nearest_servers(topology, 0, topology.servers)


def workload(pattern: str, **options: object) -> Workload:
    return Workload(pattern, 1000, options={"distribute": True, **options})


def test_the_papers_chunk_replication() -> None:
    bcube = topos.parse("bcube,4,1")
    named = plan_for(bcube, workload("one-to-several", receivers="0.1,1.0"), 1)
    assert named == plan_for(bcube, workload("one-to-several"), 5)
    assert named.receivers == (bcube.server("0.1"), bcube.server("1.0"))
    tree = plan_for(topos.parse("tree,4,4"), workload("one-to-several", receivers="0.1,1.0"), 1)
    assert tree.trees == (((0, 1), (1, 4)),)
    # The time of a full cable for the whole file, against that for the largest part.
    speed_up = Fraction(1000, max(tree.bytes_per_tree(1000))) / Fraction(
        1000, max(named.bytes_per_tree(1000))
    )
    assert 1 / speed_up == 2


def test_options_of_the_pattern_hold() -> None:
    bcube = topos.parse("bcube,4,1")
    assert plan_for(bcube, workload("one-to-all", source="3.3"), 1).source == 15
    assert len(plan_for(bcube, workload("one-to-several", receivers=3), 1).receivers) == 3
    assert plan_for(bcube, workload("one-to-several", source="1.0"), 1).receivers == (5, 0)
    with pytest.raises(PillarboxError, match="no option 'senders'"):
        plan_for(bcube, workload("one-to-all", senders=1), 1)


def test_what_distributes_no_file_is_refused() -> None:
    bcube = topos.parse("bcube,4,1")
    with pytest.raises(PillarboxError, match="choose one-to-several or one-to-all"):
        plan_for(bcube, workload("all-to-all"), 1)
    endless = Workload("one-to-all", duration_s=1.0, options={"distribute": True})
    with pytest.raises(PillarboxError, match="volume_bytes"):
        plan_for(bcube, endless, 1)
