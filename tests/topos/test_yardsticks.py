"""VL2, Jellyfish, domains with rails, and graph structures as networks, for comparisons."""

import numpy
import pytest

from pillarbox import topos
from pillarbox.topos import structures
from pillarbox.topos.base.check import problems
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.jellyfish import regular_graph
from pillarbox.topos.structures.network import structure_network

GRAPHS = ("hypercube,4", "debruijn,3,2", "butterfly,2", "wrappedbutterfly,3", "fullmesh,5")


@pytest.mark.parametrize("spec", [*GRAPHS, "graph-ring,5"])
def test_structure_is_a_network(spec: str) -> None:
    graph = structure_network(spec, ["ring"])
    assert graph
    structure = structures.parse(spec.removeprefix("graph-"))
    pairs = {frozenset(pair) for pair in structure.edges()}
    assert problems(graph) == []
    assert {frozenset((cable.a, cable.b)) for cable in graph.links()} == pairs
    assert (graph.servers, graph.switches, graph.cables) == (structure.nodes, 0, len(pairs))
    assert graph.spec == spec


@pytest.mark.parametrize("spec", GRAPHS)
def test_structure_is_parsed_with_and_without_prefix(spec: str) -> None:
    assert topos.parse(spec).spec == topos.parse(f"graph-{spec}").spec == spec


def test_networks_win_over_structures_of_their_name() -> None:
    assert structure_network("torus,4", ["torus"]) is None
    graph = structure_network("graph-torus,4", ["torus"])
    assert graph and (graph.kind, graph.spec) == ("graph-torus", "graph-torus,4")
    assert topos.parse("fattree,4").switches == 20


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("graph-tree,64,5", "are switches"),
        ("hypercube,6,2", "write hypercube,dimension"),
        ("fullmesh,2000", "2000 has 1999000 edges|1999000 edges"),
    ],
)
def test_structures_that_are_no_networks(spec: str, said: str) -> None:
    with pytest.raises(PillarboxError, match=said):
        topos.parse(spec)


@pytest.mark.parametrize(("a", "i", "tor"), [(4, 4, 20), (12, 8, 3), (24, 36, 20)])
def test_vl2_has_the_counts_of_its_figure(a: int, i: int, tor: int) -> None:
    vl2 = topos.parse(f"vl2,{a},{i},tor={tor}")
    assert vl2.servers == tor * a * i // 4
    labels = [vl2.switch_label(switch).split()[0] for switch in range(vl2.switches)]
    counts = [labels.count(kind) for kind in ("ToR", "aggregation", "intermediate")]
    assert counts == [a * i // 4, i, a // 2]
    for switch, kind in enumerate(labels):
        cabled = sum(1 for _ in vl2.neighbours(vl2.servers + switch))
        assert cabled == {"ToR": tor + 2, "aggregation": a, "intermediate": i}[kind]


@pytest.mark.parametrize(("n", "r"), [(20, 5), (9, 4), (50, 3), (6, 5), (3, 2)])
def test_jellyfish_is_regular_and_depends_on_the_seed(n: int, r: int) -> None:
    edges = regular_graph(n, r, seed=1)
    assert len({frozenset(edge) for edge in edges}) == len(edges) == n * r // 2
    assert numpy.bincount(numpy.array(edges).ravel()).tolist() == [r] * n
    assert regular_graph(n, r, seed=1) == edges
    others = {tuple(sorted(regular_graph(n, r, seed=seed))) for seed in range(2, 6)}
    assert len(others) > 1 or r == n - 1


@pytest.mark.parametrize(
    "spec",
    ["jellyfish,5,4,3", "jellyfish,4,3,3", "jellyfish,4,9,4", "domains,4,2,spines=3", "vl2,3,4"],
)
def test_parameters_that_do_not_fit(spec: str) -> None:
    with pytest.raises(PillarboxError):
        topos.parse(spec)


@pytest.mark.parametrize("spec", ["domains,4,2", "domains,8,8", "domains,3,5"])
def test_leaves_of_domains_have_as_much_up_as_down(spec: str) -> None:
    domains = topos.parse(spec)
    ups, downs = {}, {}
    for cable in domains.links():
        if cable.level == 1:
            downs[cable.b] = downs.get(cable.b, 0) + 1
        elif cable.level == 2:
            ups[cable.a] = ups.get(cable.a, 0) + 1
    assert ups == downs
    assert set(ups.values()) == {domains.parameters["d"]}
    assert len(ups) == domains.parameters["g"]
