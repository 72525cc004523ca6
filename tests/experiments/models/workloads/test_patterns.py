"""Traffic patterns: the flows that the name promises, over every network, and the same again."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product
from random import Random
from typing import Any

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.experiments.models.workloads.patterns import (
    PATTERNS,
    PatternOptions,
    disjoint_paths,
    flows_of,
)
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.hosts.base.path import disjoint
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

NETWORKS = [topos.parse(spec) for kind in topos.kinds() for spec in topos.network(kind).examples]
SMALL = [topology for topology in NETWORKS if topology.servers <= 64]
BCUBE = topos.parse("bcube,4,1")

networks = st.sampled_from(SMALL)
seeds = st.integers(0, 1 << 32)


def flows(topology: Topology, pattern: str, seed: int = 1, **options: Any) -> list[Flow]:
    return flows_of(topology, Workload(pattern, volume_bytes=1000, options=options), seed)


def pairs(topology: Topology, pattern: str, seed: int = 1, **options: Any) -> list[tuple[int, int]]:
    return [(one.source, one.destination) for one in flows(topology, pattern, seed, **options)]


@given(networks, st.sampled_from(sorted(PATTERNS)), seeds)
def test_every_pattern_makes_flows_between_different_servers(
    topology: Topology, pattern: str, seed: int
) -> None:
    made = flows(topology, pattern, seed)
    assert [one.number for one in made] == list(range(len(made)))
    assert made
    for one in made:
        assert one.source != one.destination
        assert {one.source, one.destination} <= set(range(topology.servers))
        assert (one.volume_bytes, one.duration_s, one.start_s) == (1000, None, 0.0)
    assert flows(topology, pattern, seed) == made


@given(networks, seeds)
def test_permutation_lets_each_send_to_one_and_receive_from_one(
    topology: Topology, seed: int
) -> None:
    sources, destinations = zip(*pairs(topology, "permutation", seed), strict=True)
    everybody = list(range(topology.servers))
    assert sorted(sources) == sorted(destinations) == everybody


@given(networks, seeds, st.floats(0, 1))
def test_a_share_of_a_permutation_sends(topology: Topology, seed: int, share: float) -> None:
    found = pairs(topology, "permutation", seed, share=share)
    assert len(found) == max(1, round(share * topology.servers))
    assert set(found) <= set(pairs(topology, "permutation", seed))


@given(networks)
def test_neighbours_are_one_hop_away(topology: Topology) -> None:
    found = pairs(topology, "neighbours")
    near = [
        {peer for port in range(topology.ports) for peer in topology.peers(server, port)}
        for server in range(topology.servers)
    ]
    assert all(destination in near[source] for source, destination in found)
    assert Counter(found) == Counter((b, a) for a, b in found)  # neighbours of each other
    if topology is BCUBE:
        assert len(found) == 16 * 2 * 3


@given(networks)
def test_longest_matching_is_a_permutation(topology: Topology) -> None:
    sources, destinations = zip(*pairs(topology, "longest-matching"), strict=True)
    assert sorted(sources) == sorted(destinations) == list(range(topology.servers))


@pytest.mark.parametrize("spec", ["dcell,2,1", "bcube,2,2", "dpillar,4,2", "ficonn,2,2"])
def test_longest_matching_is_the_longest_of_all_permutations(spec: str) -> None:
    topology = topos.parse(spec)
    graph = networkx.Graph((cable.a, cable.b) for cable in topology.links())
    cables = dict(networkx.all_pairs_shortest_path_length(graph))
    every = range(topology.servers)
    most = max(sum(cables[a][b] for a, b in enumerate(order)) for order in permutations(every))
    assert sum(cables[a][b] for a, b in pairs(topology, "longest-matching")) == most


def test_longest_matching_of_a_large_network_is_refused() -> None:
    with pytest.raises(PillarboxError, match="at most 2000 servers, and bcube,16,2 has 4096"):
        pairs(topos.parse("bcube,16,2"), "longest-matching")


@given(networks)
def test_to_all(topology: Topology) -> None:
    everybody = range(topology.servers)
    assert set(pairs(topology, "all-to-all")) == set(permutations(everybody, 2))
    last = topology.servers - 1
    made = pairs(topology, "one-to-all", source=topology.address(last))
    assert made == [(last, other) for other in range(last)]


@given(networks, st.data())
def test_some_are_as_many_as_asked_for(topology: Topology, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, topology.servers - 1))
    one, seed = topology.address(data.draw(st.integers(0, topology.servers - 1))), data.draw(seeds)
    out = pairs(topology, "one-to-several", seed, source=one, receivers=count)
    into = pairs(topology, "several-to-one", seed, destination=one, senders=count)
    assert len(set(out)) == len(set(into)) == len(out) == len(into) == count
    assert {topology.address(source) for source, _ in out} == {one}
    assert {topology.address(destination) for _, destination in into} == {one}


@given(networks, st.data())
def test_burst_is_all_pairs_of_two_groups(topology: Topology, data: st.DataObject) -> None:
    senders = data.draw(st.integers(1, topology.servers - 1))
    receivers = data.draw(st.integers(1, topology.servers - senders))
    made = pairs(topology, "burst", data.draw(seeds), senders=senders, receivers=receivers)
    left, right = ({pair[end] for pair in made} for end in (0, 1))
    assert (len(left), len(right), left & right) == (senders, receivers, set())
    assert sorted(made) == sorted(product(left, right))


@pytest.mark.parametrize("topology", NETWORKS, ids=lambda topology: topology.spec)
def test_one_to_one_has_a_flow_for_each_disjoint_path_of_the_routing(topology: Topology) -> None:
    from pillarbox.hosts.base.algorithms import choose, route

    made = pairs(topology, "one-to-one")
    (ends,) = Counter(made)
    assert ends == (0, topology.servers - 1)
    assert len(made) == disjoint_paths(topology, *ends)
    by_ports = topology.kind in ("bcube", "rail", "mesh")
    by_columns = topology.kind == "dpillar"
    halves = topology.switch_ports // 2
    assert len(made) == (topology.ports if by_ports else halves if by_columns else 1)
    name = choose(topology, None, several=True, opposite=False)
    found = route(topology, name, *ends, several=True).paths
    shared = found[0].nodes(topology)[1:2] + found[0].nodes(topology)[-2:-1]  # of DPillar
    assert disjoint(topology, found, shared=shared)


def test_options_choose() -> None:
    made = pairs(BCUBE, "one-to-one", source="1.2", destination="0.3", flows=3)
    assert made == [(BCUBE.server("1.2"), BCUBE.server("0.3"))] * 3
    listed = pairs(BCUBE, "one-to-several", receivers="1.0, 0.1")
    assert listed == pairs(BCUBE, "one-to-several", receivers=["1.0", "0.1"]) == [(0, 4), (0, 1)]
    # Groups that overlap: nobody sends to itself.
    assert pairs(BCUBE, "burst", senders="0.0,0.1", receivers="0.1,0.2") == [(0, 1), (0, 2), (1, 2)]


def test_seed_decides() -> None:
    for pattern in ("permutation", "burst", "one-to-several", "several-to-one"):
        assert len({tuple(pairs(BCUBE, pattern, seed)) for seed in range(8)}) > 1


@given(seeds, st.floats(0.001, 10.0))
def test_jitter_moves_starts_and_nothing_else(seed: int, jitter_s: float) -> None:
    plain, late = (flows(BCUBE, "permutation", seed, **o) for o in ({}, {"jitter_s": jitter_s}))
    assert [one.destination for one in plain] == [one.destination for one in late]
    starts = [one.start_s for one in late]
    assert len(set(starts)) == len(starts)
    assert 0 <= min(starts) <= max(starts) <= jitter_s
    assert late == flows(BCUBE, "permutation", seed, jitter_s=jitter_s)


@pytest.mark.parametrize(
    ("pattern", "options", "said"),
    [
        ("all-to-al", {}, "no traffic pattern 'all-to-al': did you mean all-to-all"),
        ("?", {}, "there are one-to-one, one-to-several"),
        ("all-to-all", {"source": "0.0"}, "has no option 'source': there are jitter_s"),
        ("one-to-one", {"source": "0.9"}, "'0.9' is not a server of bcube,4,1"),
        ("one-to-one", {"source": 0.3}, "a text like '3.3', not 0.3"),
        ("one-to-one", {"destination": "0.0"}, "source and destination are both 0.0"),
        ("one-to-one", {"flows": 0}, "flows is a whole number from 1"),
        ("one-to-several", {"receivers": 16}, "a whole number from 1 to 15 in bcube,4,1, not 16"),
        ("one-to-several", {"receivers": True}, "receivers is a whole number"),
        ("one-to-several", {"receivers": []}, "receivers lists no server"),
        ("one-to-several", {"receivers": "0.1,0.1"}, "lists a server twice"),
        ("one-to-several", {"receivers": "0.0"}, "0.0 would send to itself"),
        ("several-to-one", {"senders": "0.0"}, "0.0 would send to itself"),
        ("burst", {"senders": 9, "receivers": 8}, "a whole number from 1 to 7"),
        ("burst", {"senders": "0.1", "receivers": "0.1"}, "both 0.1 alone"),
        ("burst", {"senders": 16}, "no server is left for receivers"),
        ("all-to-all", {"jitter_s": -1}, "jitter_s is a number of seconds, not -1"),
        ("all-to-all", {"jitter_s": float("nan")}, "jitter_s is a number of seconds"),
    ],
)
def test_what_cannot_be_is_said(pattern: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(topos.PillarboxError) as error:
        flows(BCUBE, pattern, **options)
    assert said in str(error.value)


@pytest.mark.parametrize("pattern", ["all-to-all", "permutation"])
def test_more_flows_than_memory_holds_are_refused(pattern: str) -> None:
    with pytest.raises(
        topos.PillarboxError, match="more than 1000000 flows: choose a smaller network"
    ):
        flows_of(topos.parse("bcube,2,26"), Workload(pattern, duration_s=1.0), seed=1)


def test_servers_are_drawn_from_a_network_that_memory_does_not_hold() -> None:
    workload = Workload("one-to-several", duration_s=1.0, options={"receivers": 5})
    flows = flows_of(topos.parse("bcube,2,26"), workload, seed=1)
    assert len({flow.destination for flow in flows} - {0}) == 5


def test_every_server_but_the_others_can_be_drawn() -> None:
    topology = topos.parse("bcube,4,1")
    others = {0, 1, 7, 15}
    options = PatternOptions(topology, {"receivers": 12}, Random(1))
    assert options.servers("receivers", 2, others) == sorted({*range(16)} - others)


def test_volumes_have_a_bound() -> None:
    assert Workload(volume_bytes=10**15).volume_bytes == 10**15
    with pytest.raises(topos.PillarboxError, match="volume_bytes is at most"):
        Workload(volume_bytes=10**15 + 1)


def test_amounts_and_sizes_are_checked() -> None:
    for workload, said in (
        (Workload(volume_bytes=0), "at least 1"),
        (Workload(duration_s=0.0), "more than 0"),
    ):
        with pytest.raises(topos.PillarboxError, match=said):
            flows_of(BCUBE, workload, 1)
    with pytest.raises(topos.PillarboxError, match="is more than 1000000 flows"):
        flows(topos.parse("bcube,8,3"), "all-to-all")
    with pytest.raises(topos.PillarboxError, match="only one server"):
        flows(topos.parse("tree,1,1"), "all-to-all")
