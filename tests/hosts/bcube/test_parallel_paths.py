"""BSR's sets of parallel paths around failures, compared with an independent search."""

import networkx
import pytest

from pillarbox import topos
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.path import Path, disjoint
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.hosts.bcube.selection import parallel_paths, replacement
from pillarbox.topos.bcube import BCube
from tests.hosts.bcube.failed import living_pair, random_failures

SPECS = ["bcube,4,1", "bcube,2,3", "bcube,3,2", "bcube,4,2,servers=32", "bcube,2,2", "bcube,5,0"]
MOST_HOPS = 8


def hops_left(bcube: BCube, failures: Failures, kept: list[Path], ends: set[int]) -> networkx.Graph:
    """Servers and the hops between them that work and touch nothing of the kept paths.

    From the list of cables, and the paths' nodes as `Path.nodes` has them: no arithmetic of digits.
    """
    closed = set(failures.nodes)
    for path in kept:
        closed.update(path.nodes(bcube)[1:-1])
    below: dict[int, list[int]] = {}
    for cable in bcube.links():
        if not {cable.a, cable.b} & closed and frozenset((cable.a, cable.b)) not in failures.links:
            below.setdefault(cable.b, []).append(cable.a)
    graph = networkx.Graph()
    graph.add_nodes_from(ends)
    for servers in below.values():
        for i, a in enumerate(servers):
            graph.add_edges_from(
                (a, b) for b in servers[i + 1 :] if frozenset((a, b)) not in failures.links
            )
    return graph


def distance(graph: networkx.Graph, a: int, b: int) -> float:
    try:
        found: int = networkx.shortest_path_length(graph, a, b)
    except networkx.NetworkXNoPath:
        return float("inf")
    return found if found <= MOST_HOPS else float("inf")


@pytest.mark.parametrize("spec", SPECS)
def test_set_is_as_large_as_an_independent_search_allows(spec: str) -> None:
    bcube = topos.parse(spec)
    replaced = given_up = 0
    for seed in range(200):
        failures = random_failures(bcube, seed)
        a, b = living_pair(bcube, failures, seed)
        paths = parallel_paths(bcube, a, b, failures)
        wanted = path_set(bcube, a, b)
        assert disjoint(bcube, paths)
        for path in paths:
            assert (path.source, path.destination) == (a, b)
            assert len(set(path.servers)) == len(path.servers)
            assert len(path) <= MOST_HOPS
            assert failures.first_on(bcube, path) is None
        assert set(paths) >= {path for path in wanted if failures.first_on(bcube, path) is None}
        assert [len(path) for path in paths] == sorted(map(len, paths))
        if len(paths) < len(wanted):
            given_up += 1
            assert distance(hops_left(bcube, failures, paths, {a, b}), a, b) == float("inf")
        replaced += len(set(paths) - set(wanted))
        if paths:
            graph = hops_left(bcube, failures, [], {a, b})
            assert distance(graph, a, b) == len(paths[0]), "the default path is a shortest one"
    assert given_up > 15
    assert replaced > 20 or bcube.k == 0


@pytest.mark.parametrize("spec", SPECS[:4])
def test_replacement_is_a_shortest_path_beside_those_kept(spec: str) -> None:
    bcube = topos.parse(spec)
    found = 0
    for seed in range(100):
        failures = random_failures(bcube, seed)
        a, b = living_pair(bcube, failures, seed)
        kept = [p for p in path_set(bcube, a, b) if failures.first_on(bcube, p) is None]
        kept = kept[: seed % 3]
        path = replacement(bcube, a, b, kept, failures)
        expected = distance(hops_left(bcube, failures, kept, {a, b}), a, b)
        assert (len(path) if path else float("inf")) == expected
        if path:
            found += 1
            assert disjoint(bcube, [*kept, path])
            assert failures.first_on(bcube, path) is None
    assert found > 50


def test_never_more_paths_than_a_maximum_flow() -> None:
    bcube = topos.parse("bcube,3,2")
    for seed in range(0, 200, 5):
        failures = random_failures(bcube, seed)
        a, b = living_pair(bcube, failures, seed)
        graph = networkx.Graph()
        graph.add_nodes_from([a, b])
        graph.add_edges_from(
            (cable.a, cable.b) for cable in bcube.links() if not {cable.a, cable.b} & failures.nodes
        )
        most = networkx.node_connectivity(graph, a, b)
        paths = parallel_paths(bcube, a, b, failures)
        assert len(paths) <= most
        assert bool(paths) == bool(most)


def test_example_of_section_7_5() -> None:
    bcube = topos.parse("bcube,4,1")
    source, destination = bcube.server("0.0"), bcube.server("1.3")
    dead = Failures(frozenset([bcube.server("0.3")]))
    paths = route(bcube, "bsr", source, destination, dead, several=True).paths
    told = [" ".join(map(bcube.address, path.servers)) for path in paths]
    # The paper finds P_3 = 00 02 22 23 13: as long, and as parallel.
    assert told == ["0.0 1.0 1.3", "0.0 0.1 2.1 2.3 1.3"]
    both = Failures(frozenset([bcube.server("0.3"), bcube.server("1.0")]))
    assert route(bcube, "bsr", source, destination, both).paths
    lonely = Failures(frozenset(bcube.server_plug(source, port).node for port in (0, 1)))
    assert route(bcube, "bsr", source, destination, lonely).dropped == (
        "no path of 8 hops or fewer is left"
    )
