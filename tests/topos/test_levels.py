"""Networks whose levels have sizes of their own: worked values, and an independent search."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, permutations, product

import pytest

from pillarbox import topos
from pillarbox.hosts.base.path import disjoint
from pillarbox.hosts.bcube.paths import path_set as bcube_paths
from pillarbox.hosts.mesh import path_set as mesh_paths
from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.mesh import Mesh
from pillarbox.topos.rail import Rail

SPECS = ["rail,4,2", "rail,2,5", "rail,3,2,2", "mesh,3,3", "mesh,4,2", "mesh,3,2,2", "mesh,5"]


def differing_levels(network: DigitNetwork, a: int, b: int) -> list[int]:
    pairs = zip(network.digits(a)[::-1], network.digits(b)[::-1], strict=True)
    return [level for level, (one, other) in enumerate(pairs) if one != other]


def longest_shortest_path(servers: int, neighbours: dict[int, set[int]]) -> int:
    longest = 0
    for source in range(servers):
        hops, reached, edge = 0, {source}, {source}
        while len(reached) < servers:
            edge = {peer for server in edge for peer in neighbours[server]} - reached
            reached, hops = reached | edge, hops + 1
        longest = max(longest, hops)
    return longest


@pytest.mark.parametrize("spec", SPECS)
def test_neighbours_differ_in_one_digit_and_hops_count_digits(spec: str) -> None:
    network = topos.parse(spec)
    assert isinstance(network, DigitNetwork)
    around: dict[int, set[int]] = {server: set() for server in range(network.servers)}
    for server in range(network.servers):
        for port in range(network.ports):
            for peer in network.peers(server, port):
                level = network.level_of_port(port)
                assert differing_levels(network, server, peer) == [level]
                value = peer // network.weights[level] % network.sizes[level]
                assert network.port_towards(server, level, value) == port
                assert network.server_plug(server, port).level == level
                around[server].add(peer)
        assert len(around[server]) == sum(size - 1 for size in network.sizes)
    longest = longest_shortest_path(network.servers, around)
    assert longest == len(network.sizes) == network.diameter_bound().value


def test_worked_counts() -> None:
    rail, mesh = Rail(8, 4, 2), Mesh(8, 4, 2)
    assert (rail.servers, rail.switches, rail.ports, rail.cables) == (64, 8 + 16 + 32, 3, 192)
    assert rail.switch_ports == 8
    assert (mesh.servers, mesh.switches, mesh.ports, mesh.cables) == (64, 0, 7 + 3 + 1, 352)
    # Server 39 is 1.0.7: 1 x 32 + 0 x 8 + 7.
    assert rail.address(39) == mesh.address(39) == "1.0.7"
    assert rail.radices() == mesh.radices() == (2, 4, 8)
    assert mesh.weights == (1, 8, 32, 64)
    assert [mesh.level_of_port(port) for port in (0, 6, 7, 9, 10)] == [0, 0, 1, 1, 2]
    # Ports 0, 6, 7 and 10 of 1.0.7: to 1.0.0, 1.0.6, 1.1.7 and 0.0.7.
    assert [mesh.server_plug(39, port).node for port in (0, 6, 7, 10)] == [32, 38, 47, 7]


def test_rail_switches() -> None:
    rail = Rail(4, 2)
    assert [rail.switch_label(switch) for switch in range(rail.switches)] == [
        *("domain 0", "domain 1", "rail 0", "rail 1", "rail 2", "rail 3"),
    ]
    # Domain 1 holds servers 4 to 7; rail 3 the servers 0.3 and 1.3, and has two empty ports.
    assert [rail.switch_plug(1, port).node for port in range(4)] == [4, 5, 6, 7]
    assert [rail.switch_plug(5, port).node for port in range(4)] == [3, 7, -1, -1]
    assert Rail(3, 2, 2).switch_label(9) == "rail 1.2"
    assert Rail(3, 2, 2).switch_label(12) == "level-2 rail 0.2"


@pytest.mark.parametrize("n", [2, 3, 4])
def test_rail_of_equal_sizes_is_bcube_1(n: int) -> None:
    rail, bcube = topos.parse(f"rail,{n},{n}"), topos.parse(f"bcube,{n},1")
    assert [*rail.links()] == [*bcube.links()]
    for a, b in permutations(range(rail.servers), 2):
        assert bcube_paths(rail, a, b) == bcube_paths(bcube, a, b)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.startswith("rail")])
def test_rail_has_a_disjoint_path_by_each_port(spec: str) -> None:
    rail = Rail(*map(int, spec.split(",")[1:]))
    for a, b in permutations(range(rail.servers), 2):
        paths = bcube_paths(rail, a, b)
        assert {path.steps[0].port for path in paths} == set(range(rail.ports))
        assert disjoint(rail, paths)
        assert min(map(len, paths)) == len(differing_levels(rail, a, b))
        assert max(map(len, paths)) <= rail.ports + 1


@pytest.mark.parametrize("sizes", [(5,), (3, 3), (4, 2), (2, 2, 2), (3, 2, 2), (4, 3, 2)])
def test_mesh_has_a_disjoint_path_by_each_port(sizes: tuple[int, ...]) -> None:
    mesh = Mesh(*sizes)
    for a, b in permutations(range(mesh.servers), 2):
        paths = mesh_paths(mesh, a, b)
        differ = len(differing_levels(mesh, a, b))
        assert {path.steps[0].port for path in paths} == set(range(mesh.ports))
        assert disjoint(mesh, paths)
        assert all(path.destination == b for path in paths)
        assert [len(path) for path in paths[:differ]] == [differ] * differ
        assert max(map(len, paths)) <= differ + 2


def cut_cables(topology: Topology, part: Iterable[int]) -> int:
    """Fewest cables cut between a part of the servers and the others, switches on either side."""
    inside = set(part)
    direct = {frozenset((cable.a, cable.b)) for cable in topology.links()}
    cut = sum(len(ends & inside) == 1 and max(ends) < topology.servers for ends in direct)
    for switch in range(topology.switches):
        below = {plug.node for _, plug in topology.neighbours(topology.servers + switch)}
        cut += min(len(below & inside), len(below - inside))
    return cut


def fewest_cut(topology: Topology) -> int:
    halves = combinations(range(topology.servers), topology.servers // 2)
    return min(cut_cables(topology, half) for half in halves)


@pytest.mark.parametrize("spec", ["mesh,4", "mesh,2,2", "mesh,4,2", "mesh,3,2,2", "mesh,6,2"])
def test_bisection_of_a_mesh_is_the_least_cut(spec: str) -> None:
    mesh = topos.parse(spec)
    assert fewest_cut(mesh) == mesh.bisection().value


def test_no_bisection_is_claimed_where_none_is_proved() -> None:
    assert topos.parse("mesh,3,3").bisection().value is None
    assert topos.parse("rail,4,2").bisection().value is None
    for spec in ("rail,4,2", "rail,2,5", "rail,3,2,2"):
        assert fewest_cut(topos.parse(spec)) <= topos.parse(spec).servers / 2


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("rail,4", "write rail,8,4"),
        ("rail,4,1", "each size of a rail network is 2 or more, not 1"),
        ("mesh", "write mesh,a,b,.., for example mesh,3,3"),
        ("mesh,4,1", "each size of a mesh is 2 or more, not 1"),
        ("mesh,64,64,64", "189 ports"),
        ("rail,65536,65537", "32-bit"),
    ],
)
def test_sizes_that_make_no_network_are_refused(spec: str, words: str) -> None:
    with pytest.raises(PillarboxError, match=words):
        topos.parse(spec)


def test_digits_are_the_mixed_radix_number() -> None:
    mesh = Mesh(3, 2, 4)
    counted = product(range(4), range(2), range(3))
    assert [mesh.digits(server) for server in range(24)] == [*counted]
    assert [mesh.server_at(mesh.digits(server)) for server in range(24)] == [*range(24)]
