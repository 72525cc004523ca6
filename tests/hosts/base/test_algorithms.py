"""Algorithms by name, failures, and shortest paths against an independent search."""

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.hosts.base.algorithms import algorithms, choose, route
from pillarbox.hosts.base.failures import Failures, parse_failures
from pillarbox.hosts.base.path import Path, disjoint
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.topos.base.spec import small
from pillarbox.topos.base.topology import Topology

SMALL = [
    "dpillar,4,2",
    "dpillar,6,2",
    "dpillar,4,3",
    "dcell,4,1",
    "dcell,2,2",
    "dcell,4,2,servers=70",
    "bcube,4,1",
    "bcube,2,3",
    "bcube,4,2,servers=32",
    "ficonn,4,2",
    "tree,4,4",
    "fattree,4",
]
SMALL += [spec for spec in small() if spec not in SMALL]


def hops(topology: topos.Topology, failures: Failures) -> networkx.DiGraph:
    """Cables as edges; a hop is counted where a server is entered."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(set(range(topology.nodes)) - failures.nodes)
    for cable in topology.links():
        ends = {cable.a, cable.b}
        if not ends & failures.nodes and frozenset(ends) not in failures.links:
            graph.add_edge(cable.a, cable.b, weight=int(cable.b < topology.servers))
            graph.add_edge(cable.b, cable.a, weight=int(cable.a < topology.servers))
    return graph


@given(st.data())
@pytest.mark.parametrize("spec", SMALL)
def test_shortest_path_has_the_fewest_hops(spec: str, data: st.DataObject) -> None:
    topology = topos.parse(spec)
    cables = list(topology.links())
    dead = data.draw(st.sets(st.integers(0, topology.nodes - 1), max_size=6))
    cut = data.draw(st.sets(st.integers(0, len(cables) - 1), max_size=6))
    failures = Failures(
        frozenset(dead), frozenset(frozenset((cables[i].a, cables[i].b)) for i in cut)
    )
    a, b = (data.draw(st.integers(0, topology.servers - 1)) for _ in range(2))
    path = shortest_path(topology, a, b, failures)
    graph = hops(topology, failures)
    if {a, b} & dead or not networkx.has_path(graph, a, b):
        assert path is None
        return
    assert path is not None
    assert len(path) == networkx.shortest_path_length(graph, a, b, weight="weight")
    assert failures.first_on(topology, path) is None


@given(st.data())
@pytest.mark.parametrize("spec", SMALL)
def test_every_algorithm_avoids_what_failed_or_says_why(spec: str, data: st.DataObject) -> None:
    topology = topos.parse(spec)
    failures = Failures(
        frozenset(data.draw(st.sets(st.integers(0, topology.nodes - 1), max_size=3)))
    )
    a, b = (data.draw(st.integers(0, topology.servers - 1)) for _ in range(2))
    for name, algorithm in algorithms(topology).items():
        for several in (False, True):
            routed = route(topology, name, a, b, failures, several=several)
            assert bool(routed.paths) != bool(routed.dropped)
            assert several or len(routed.paths) <= 1
            for path in routed.paths:
                assert (path.source, path.destination) == (a, b)
                assert topology.ports == 1 or failures.first_on(topology, path) is None
            if several and algorithm.path_set and topology.kind == "bcube":
                assert disjoint(topology, routed.paths)


def test_algorithms_are_found_by_the_network() -> None:
    assert list(algorithms(topos.parse("dcell,4,1"))) == ["dcell", "dfr", "shortest"]
    assert list(algorithms(topos.parse("tree,4,4"))) == ["bridge", "shortest"]
    assert choose(topos.parse("dpillar,4,2"), None, several=True, opposite=True) == "mp-ccw"
    assert choose(topos.parse("dpillar,4,2"), "sp-cw", several=False, opposite=True) == "sp-ccw"


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        ("kill 0.9", "from 0 to 3"),
        ("stop s99", "s0 to s4"),
        ("cut 0.0-4.3", "no link between"),
        ("cut 0.0", "two ends"),
        ("rack:1", r"no fault 'rack:1': did you mean rack\?"),
        ("", "no fault ''"),
    ],
)
def test_bad_failure_is_refused(failure: str, says: str) -> None:
    with pytest.raises(topos.PillarboxError, match=says):
        parse_failures(topos.parse("dcell,4,1"), [failure])


def test_link_over_a_switch_fails_for_its_two_servers_only() -> None:
    bcube = topos.parse("bcube,4,1")
    failures = parse_failures(bcube, ["cut 0.0-0.1"])
    assert route(bcube, "bcube", 0, 1, failures).dropped == "link 0.0-0.1 has failed"
    assert route(bcube, "bcube", 0, 2, failures).paths
    detour = route(bcube, "shortest", 0, 1, failures).paths[0]
    assert len(detour) == 2


def test_cable_to_a_switch_fails_for_everything_behind_it() -> None:
    bcube = topos.parse("bcube,4,1")
    failures = parse_failures(bcube, ["cut 0.0-s0"])
    assert all(route(bcube, "bcube", 0, other, failures).dropped for other in (1, 2, 3))
    assert route(bcube, "bcube", 0, 4, failures).paths


def test_link_that_a_partial_dcell_lacks_is_a_failed_link() -> None:
    dcell = topos.parse("dcell,4,1,servers=10")  # of cell 2 only the first two servers
    a, b = dcell.server("2.0"), dcell.server("1.1")
    assert route(dcell, "dcell", a, b).paths
    lonely = topos.parse("dcell,4,1,servers=9")
    a, b = lonely.server("2.0"), lonely.server("1.1")
    assert "has failed" in route(lonely, "dcell", a, b).dropped
    assert route(lonely, "shortest", a, b).paths


def test_fattree_goes_around_a_failed_core_switch() -> None:
    fattree = topos.parse("fattree,4")
    cores = [s for s in range(fattree.switches) if fattree.switch_label(s).startswith("core")]
    failures = Failures(frozenset(fattree.servers + core for core in cores[:-1]))
    assert route(fattree, "shortest", 0, 15, failures).paths
    all_dead = Failures(frozenset(fattree.servers + core for core in cores))
    assert route(fattree, "shortest", 0, 15, all_dead).dropped == "no path is left"


def test_packet_to_oneself_stays() -> None:
    bcube = topos.parse("bcube,4,1")
    assert route(bcube, "bcube", 3, 3, several=True).paths[0].servers == (3,)


def test_a_single_path_is_found_without_a_check_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = []

    def first_on(self: Failures, topology: Topology, path: Path) -> tuple[int, ...] | None:
        checked.append(path)
        return None if len(checked) > 1 else (0,)

    monkeypatch.setattr(Failures, "first_on", first_on)
    dpillar = topos.parse("dpillar,8,2")
    assert route(dpillar, "mp", 0, 9).paths == [checked[1]]
    assert len(checked) == 2
