"""Every pair of small networks: paths follow cables, keep the papers' bounds, and are disjoint."""

import itertools
import os
from collections import Counter

import networkx
import pytest

from pillarbox import topos
from pillarbox.hosts.base.path import Path, Step, disjoint, switches_between
from pillarbox.hosts.bcube import paths as bcube
from pillarbox.hosts.dcell import parallel as dcell_parallel
from pillarbox.hosts.dcell import paths as dcell
from pillarbox.hosts.dpillar import paths as dpillar
from pillarbox.hosts.ficonn import parallel as ficonn_parallel
from pillarbox.hosts.ficonn import paths as ficonn
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE
from pillarbox.topos.ficonn import BACKUP

DPILLARS = [
    "dpillar,4,2",
    "dpillar,6,2",
    "dpillar,8,2",
    "dpillar,4,3",
    "dpillar,6,3",
    "dpillar,4,4",
    "dpillar,8,3",
]
DCELLS = ["dcell,4,1", "dcell,2,2", "dcell,3,2", "dcell,5,0", "dcell,4,2"]
BCUBES = [
    "bcube,4,1",
    "bcube,2,3",
    "bcube,3,2",
    "bcube,4,2",
    "bcube,5,0",
    "bcube,4,2,servers=32",
    "bcube,8,2",
]
FICONNS = ["ficonn,4,1", "ficonn,4,2", "ficonn,6,2", "ficonn,8,1", "ficonn,10,0", "ficonn,8,2"]


# Larger networks are tested from some six sources to all others, unless this says otherwise.
EVERY_PAIR_UP_TO = int(os.environ.get("PILLARBOX_EVERY_PAIR_UP_TO", "64"))


def pairs(topology: topos.Topology) -> list[tuple[int, int]]:
    """All pairs, or every pair from a few sources where there are many."""
    every = topology.servers if topology.servers <= EVERY_PAIR_UP_TO else 6
    step = max(1, topology.servers // every)
    return [
        (a, b) for a in range(0, topology.servers, step) for b in range(topology.servers) if a != b
    ]


def assert_valid(topology: topos.Topology, path: Path, a: int, b: int, bound: int) -> None:
    assert (path.source, path.destination) == (a, b)
    assert len(set(path.servers)) == len(path.servers), "a loop"
    assert len(path) <= bound
    path.nodes(topology)  # raises where a hop follows no cable


@pytest.mark.parametrize("port", [CLOCKWISE, COUNTER_CLOCKWISE])
@pytest.mark.parametrize("spec", DPILLARS)
def test_dpillar_single_path(spec: str, port: int) -> None:
    network = topos.parse(spec)
    for a, b in pairs(network):
        path = dpillar.sp_path(network, a, b, port)
        assert_valid(network, path, a, b, 2 * network.k - 1)
        assert {step.port for step in path.steps} == {port}


@pytest.mark.few
@pytest.mark.parametrize("port", [CLOCKWISE, COUNTER_CLOCKWISE])
@pytest.mark.parametrize("spec", DPILLARS)
def test_dpillar_multi_path_is_disjoint(spec: str, port: int) -> None:
    network = topos.parse(spec)
    for a, b in pairs(network):
        paths = dpillar.mp_paths(network, a, b, port)
        for path in paths:
            assert_valid(network, path, a, b, 2 * network.k + 1)
        # Both ends have one port in that direction, so all paths have the switches there in common.
        shared = {network.server_plug(a, port).node, network.server_plug(b, 1 - port).node}
        assert disjoint(network, paths, shared=shared)
        # Fewer only where the source's first switch leads straight to the destination.
        assert len(paths) == network.half or b in network.peers(a, port)


@pytest.mark.parametrize("spec", DPILLARS)
def test_algorithm_3_forwards_along_the_paths_of_algorithm_2(spec: str) -> None:
    network = topos.parse(spec)
    for a, b in pairs(network)[:: max(1, network.servers // 8)]:
        for port in (CLOCKWISE, COUNTER_CLOCKWISE):
            for path, proxies in dpillar.mp_tunnels(network, a, b, port).items():
                at, steps = a, []
                while step := dpillar.mp_step(network, at, a, b, proxies):
                    steps.append(step)
                    at = step.peer
                    assert len(steps) <= 2 * network.k + 1
                assert tuple(steps) == path.steps


def test_dpillar_example_of_section_4_2() -> None:
    network = topos.parse("dpillar,8,2")
    x, y = network.server("1.0.1"), network.server("1.2.3")
    path = dpillar.sp_path(network, x, y, CLOCKWISE)
    assert [network.address(server) for server in path.servers] == ["1.0.1", "0.2.1", "1.2.3"]


@pytest.mark.parametrize("spec", DCELLS)
def test_dcell_routing(spec: str) -> None:
    network = topos.parse(spec)
    for a, b in pairs(network):
        path = dcell.path(network, a, b)
        assert_valid(network, path, a, b, 2 ** (network.k + 1) - 1)
        assert dcell.next_step(network, a, b) == path.steps[0]


def assert_parallel(topology: topos.Topology, paths: list[Path], a: int, b: int) -> None:
    for path in paths:
        assert_valid(topology, path, a, b, 2 ** (topology.ports + 2))
        nodes = path.nodes(topology)
        assert len(set(nodes)) == len(nodes), "a switch is crossed twice"
    assert disjoint(topology, paths)
    assert len({path.steps[0].port for path in paths}) == len(paths)


@pytest.mark.parametrize("spec", [*DCELLS, "dcell,2,1", "dcell,2,3", "dcell,2,3,servers=1806"])
def test_dcell_has_a_parallel_path_for_each_port(spec: str) -> None:
    network = topos.parse(spec)
    for a, b in pairs(network)[:: 1 if network.servers <= 64 else 5]:
        paths = dcell_parallel.path_set(network, a, b)
        assert len(paths) == network.k + 1
        assert paths[0] == dcell.path(network, a, b)
        assert_parallel(network, paths, a, b)


@pytest.mark.parametrize("spec", [*FICONNS, "ficonn,2,2"])
def test_ficonn_has_as_many_parallel_paths_as_the_maximum_flow(spec: str) -> None:
    network = topos.parse(spec)
    graph = networkx.Graph((cable.a, cable.b) for cable in network.links())
    for a, b in pairs(network)[:: 1 if network.servers <= 64 else 5]:
        paths = ficonn_parallel.path_set(network, a, b)
        assert_parallel(network, paths, a, b)
        if network.n > 4 or network.k < 2:
            assert paths[0] == ficonn.tor_path(network, a, b)
        both = network.k > 0 and all(network.peers(end, BACKUP) for end in (a, b))
        assert len(paths) == 1 + (both and network.n > 2)
        # A single path is the maximum: an end has one cable, or n = 2, a line of servers.
        if len(paths) == 1 and both:
            assert networkx.node_connectivity(graph, a, b) == 1


@pytest.mark.parametrize(("spec", "mean"), [("dcell,4,2", 5.16), ("dcell,5,2", 5.50)])
def test_dcell_mean_path_length_is_that_of_table_1(spec: str, mean: float) -> None:
    network = topos.parse(spec)
    sources = range(0, network.servers, 7)
    lengths = [
        len(dcell.path(network, a, b)) for a in sources for b in range(network.servers) if a != b
    ]
    assert sum(lengths) / len(lengths) == pytest.approx(mean, abs=0.03)


@pytest.mark.parametrize("spec", ["dcell,4,1", "dcell,2,2", "dcell,4,2"])
def test_dcell_groups_of_theorem_6(spec: str) -> None:
    network = topos.parse(spec)
    for source in (0, 7, network.servers - 1):
        groups = Counter(
            dcell.group(network, source, other)
            for other in range(network.servers)
            if other != source
        )
        assert [groups[level] for level in range(network.k + 1)] == dcell.group_sizes(network)


@pytest.mark.parametrize("spec", ["bcube,4,1", "bcube,2,3", "bcube,3,2"])
def test_bcube_routing_by_any_permutation(spec: str) -> None:
    network = topos.parse(spec)
    for order in itertools.permutations(range(network.k + 1)):
        for a, b in pairs(network):
            path = bcube.path(network, a, b, order)
            assert_valid(network, path, a, b, network.k + 1)
            distance = sum(
                x != y for x, y in zip(network.digits(a), network.digits(b), strict=True)
            )
            assert len(path) == distance


@pytest.mark.parametrize("spec", BCUBES)
def test_bcube_path_set_is_parallel(spec: str) -> None:
    network = topos.parse(spec)
    for a, b in pairs(network):
        paths = bcube.path_set(network, a, b)
        assert len(paths) == network.k + 1
        for path in paths:
            assert_valid(network, path, a, b, max(network.k + 2, 1))
        assert disjoint(network, paths)


@pytest.mark.parametrize("spec", [*BCUBES, "bcube,2,2", "bcube,4,3", "bcube,4,2,servers=16"])
def test_bcube_spanning_trees(spec: str) -> None:
    network = topos.parse(spec)
    for source in {0, 1, network.servers // 2, network.servers - 1}:
        trees = bcube.spanning_trees(network, source)
        assert len(trees) == sum(radix > 1 for radix in network.radices())
        used: Counter[tuple[int, int, bool]] = Counter()
        for tree in trees:
            reached = {source}
            for edge in tree:
                assert edge.sender in reached
                assert edge.receiver not in reached
                assert edge.receiver in network.peers(edge.sender, edge.level)
                reached.add(edge.receiver)
                used[edge.sender, edge.receiver, True] += 1
            assert len(reached) == network.servers
        assert max(used.values()) == 1, "a directed edge is in two trees"


@pytest.mark.parametrize("spec", ["bcube,4,1", "bcube,2,3", "bcube,4,2"])
def test_bcube_complete_graph_is_edge_disjoint(spec: str) -> None:
    network = topos.parse(spec)
    for source in range(0, network.servers, 5):
        neighbours = [network.peers(source, level)[0] for level in range(network.k + 1)]
        graph = bcube.complete_graph(network, source, neighbours)
        members = [source, *neighbours]
        assert set(graph) == set(itertools.permutations(members, 2))
        links: Counter[tuple[int, int]] = Counter()
        for (a, b), path in graph.items():
            assert_valid(network, path, a, b, 2)
            nodes = path.nodes(network)
            links.update(itertools.pairwise(nodes))
        assert max(links.values()) == 1, "a directed link is on two edges of the graph"


def test_bcube_complete_graph_refuses_who_is_no_neighbour() -> None:
    network = topos.parse("bcube,4,1")
    with pytest.raises(ValueError, match="level-1 neighbour"):
        bcube.complete_graph(network, 0, [1, 2])


@pytest.mark.parametrize("spec", FICONNS)
def test_ficonn_tor(spec: str) -> None:
    network = topos.parse(spec)
    for a, b in pairs(network):
        path = ficonn.tor_path(network, a, b)
        assert_valid(network, path, a, b, 2 ** (network.k + 1) - 1)


def test_ficonn_tor_mean_at_the_size_of_section_5() -> None:
    network = topos.parse("ficonn,32,2")
    servers = range(0, network.servers, 373)
    lengths = [len(ficonn.tor_path(network, a, b)) for a in servers for b in servers if a != b]
    assert sum(lengths) / len(lengths) == pytest.approx(6.68, abs=0.05)


def test_switches_between_are_those_of_a_hop() -> None:
    fattree = topos.parse("fattree,4")
    assert len(switches_between(fattree, 0, Step(0, 1))) == 1
    assert len(switches_between(fattree, 0, Step(0, 2))) == 3
    assert len(switches_between(fattree, 0, Step(0, 15))) == 5
    with pytest.raises(ValueError, match="does not lead"):
        switches_between(topos.parse("bcube,4,1"), 0, Step(0, 5))
