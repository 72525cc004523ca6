"""The baselines: a host behind bridges or a fat-tree, and the ways through the switches."""

from collections import Counter
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.path import Step, switches_between
from pillarbox.hosts.domains import TwoPorts
from pillarbox.hosts.fattree import hashed_path, two_level_path
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.tree import NETWORK as TREE
from pillarbox.topos.fattree import FatTree

FATTREES = ["fattree,4", "fattree,4,levels=2", "fattree,6", "fattree,4,levels=5"]


def level(fattree: FatTree, node: int) -> int:
    """Return 0 for a server, 1 for an edge switch ... as the cables tell, not the numbers."""
    found, at = 0, node
    while at >= fattree.servers:
        at = fattree.plug(at, 0).node  # the first port of a switch leads down
        found += 1
    return found


@pytest.mark.few
@pytest.mark.parametrize("algorithm", ["two-level", "hashed"])
@pytest.mark.parametrize("spec", [*FATTREES[:2], pytest.param(FATTREES[2], marks=pytest.mark.long)])
def test_every_pair_goes_up_then_down_cable_by_cable(spec: str, algorithm: str) -> None:
    fattree = topos.parse(spec)
    cables = {frozenset((cable.a, cable.b)) for cable in fattree.links()}
    for source, destination in permutations(range(fattree.servers), 2):
        (path,) = route(fattree, algorithm, source, destination).paths
        nodes = path.nodes(fattree)
        assert (nodes[0], nodes[-1]) == (source, destination)
        assert all(frozenset(pair) in cables for pair in pairwise(nodes))
        levels = [level(fattree, node) for node in nodes]
        top = max(levels)
        assert levels == [*range(top + 1), *range(top - 1, -1, -1)]
        # No higher than needed: a plain search finds no way of fewer switches.
        assert len(nodes) == 2 + len(switches_between(fattree, source, Step(0, destination)))


@pytest.mark.parametrize("spec", FATTREES)
def test_two_level_tables_spread_all_flows_evenly_over_the_core(spec: str) -> None:
    fattree = topos.parse(spec)
    cores = [
        fattree.servers + switch
        for switch in range(fattree.switches)
        if fattree.switch_label(switch).startswith("core")
    ]
    flows: Counter[int] = Counter()
    for source, destination in permutations(range(fattree.servers), 2):
        flows.update(two_level_path(fattree, source, destination).steps[0].via)
    assert len({flows[core] for core in cores}) == 1
    assert flows[cores[0]] > 0


def test_a_hash_spreads_the_flows_of_one_pair() -> None:
    fattree = FatTree(6)
    ways = Counter(hashed_path(fattree, 0, 53, flow).steps[0].via[2] for flow in range(900))
    assert len(ways) == 9
    assert min(ways.values()) > 60


@given(st.sets(st.integers(0, 19), max_size=8), st.integers(0, 15), st.integers(0, 15))
def test_hashed_finds_a_way_up_wherever_there_is_one(
    dead: set[int], source: int, destination: int
) -> None:
    fattree = FatTree(4)
    failures = Failures(frozenset(fattree.servers + switch for switch in dead))
    hashed = route(fattree, "hashed", source, destination, failures)
    if source == destination:
        assert [len(path) for path in hashed.paths] == [0]
        return
    shortest = len(switches_between(fattree, source, Step(0, destination)))
    try:
        remaining = len(switches_between(fattree, source, Step(0, destination), failures.nodes))
    except ValueError:
        remaining = 0
    # The shortest ways are those up and down, and one of them is left if none is longer.
    assert bool(hashed.paths) == (remaining == shortest)
    for path in hashed.paths:
        assert failures.first_on(fattree, path) is None
    if not hashed.paths:
        assert "paths through the switches have failed" in hashed.dropped


def test_two_level_drops_with_the_reason() -> None:
    fattree = FatTree(4)
    core = two_level_path(fattree, 0, 15).steps[0].via[2]
    dropped = route(fattree, "two-level", 0, 15, Failures(frozenset([core]))).dropped
    assert dropped == f"switch {fattree.node_name(core)} has failed"
    cut = Failures(links=frozenset([frozenset((core, fattree.plug(core, 3).node))]))
    assert "link s" in route(fattree, "two-level", 0, 15, cut).dropped
    assert route(fattree, "hashed", 0, 15, cut).paths


def test_a_named_way_must_be_cabled_and_working() -> None:
    fattree = FatTree(4)
    step = hashed_path(fattree, 0, 15).steps[0]
    assert switches_between(fattree, 0, step) == list(step.via)
    assert switches_between(fattree, 0, Step(0, 15)) != []  # without a name, some way
    for via in [step.via[:-1], step.via[1:], step.via[::-1], (10**9,), (-1,), (3,)]:
        with pytest.raises(ValueError, match="server 0"):
            switches_between(fattree, 0, Step(0, 15, via))
    with pytest.raises(ValueError, match="breaks off"):
        switches_between(fattree, 0, step, failed_nodes={step.via[2]})
    with pytest.raises(ValueError, match="breaks off"):
        switches_between(fattree, 0, step, failed_links={frozenset(step.via[1:3])})
    assert Step(0, 15) == Step(0, 15, ())


@pytest.mark.parametrize("spec", ["tree,4,4", "fattree,4"])
def test_hosts_send_plain_ip_and_notice_their_own_cable(spec: str) -> None:
    topology = topos.parse(spec)
    router = TREE.algorithms["bridge"].router
    assert router
    network = MemoryNetwork(topology, router)
    trips = [network.send_udp(a, b) for a, b in permutations(range(topology.servers), 2)]
    network.run(1)
    assert all(len(trip.steps) == 1 and trip.arrived_s for trip in trips)
    network.cut(0, topology.server_plug(0, 0).node)
    assert network.send_udp(0, 15).lost == "next hop is down"
    network.heal(0, topology.server_plug(0, 0).node)
    again = network.send_udp(0, 15)
    network.run(1)
    assert again.arrived_s
    # Nothing was ever sent but the packets: no heartbeats.
    assert sum(router.counters["frames out"] for router in network.routers) == len(trips) + 1


@pytest.mark.parametrize("spec", ["domains,4,2", "domains,2,3,spines=2"])
def test_domains_need_no_relay_and_use_rails_if_port_0_is_cut(spec: str) -> None:
    topology = topos.parse(spec)
    network = MemoryNetwork(topology, TwoPorts)
    pairs = list(permutations(range(topology.servers), 2))
    for a, b in pairs:
        (path,) = route(topology, "spread", a, b).paths
        assert [step.port for step in path.steps] == [
            int(topology.digits(a)[0] != topology.digits(b)[0])
        ]
        assert switches_between(topology, a, path.steps[0]) == list(path.steps[0].via)
    network.cut(0, topology.server_plug(0, 0).node)
    network.run(1)
    trips = [network.send_udp(a, b) for a, b in pairs]
    network.run(1)
    assert all(len(trip.steps) == 1 and trip.arrived_s for trip in trips)
    cut = Failures(links=frozenset([frozenset((0, topology.server_plug(0, 0).node))]))
    for trip, (a, b) in zip(trips, pairs, strict=True):
        (path,) = route(topology, "spread", a, b, cut).paths
        assert trip.path.steps[0].port == path.steps[0].port


def test_spines_of_domains_are_loaded_evenly() -> None:
    domains = topos.parse("domains,4,4")
    spines = Counter(
        step.via[1]
        for a, b in permutations(range(domains.servers), 2)
        for step in route(domains, "spread", a, b).paths[0].steps
        if len(step.via) == 3
    )
    assert len(spines) == 4
    assert len(set(spines.values())) == 1


@pytest.mark.parametrize("spec", ["vl2,4,4,tor=2", "vl2,4,2,tor=3"])
def test_paths_of_vl2_pass_an_intermediate_switch_and_avoid_failures(spec: str) -> None:
    vl2 = topos.parse(spec)
    for a, b in permutations(range(vl2.servers), 2):
        (path,) = route(vl2, "vlb", a, b).paths
        via = path.steps[0].via
        assert switches_between(vl2, a, path.steps[0]) == list(via)
        kinds = [vl2.switch_label(node - vl2.servers).split()[0] for node in via]
        if a // vl2.tor == b // vl2.tor:
            assert kinds == ["ToR"]
            continue
        assert kinds == ["ToR", "aggregation", "intermediate", "aggregation", "ToR"]
        (around,) = route(vl2, "vlb", a, b, Failures(frozenset([via[2]]))).paths
        assert via[2] not in around.steps[0].via
