"""The tabulated structures against networkx, exhaustive search, and the papers' formulas."""

from __future__ import annotations

import itertools
import subprocess
import sys

import networkx
import pytest

from pillarbox.topos import structures
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.structures.base import Structure
from pillarbox.topos.structures.butterflies import (
    Butterfly,
    DeBruijn,
    WrappedButterfly,
    wrapped_columns,
)
from pillarbox.topos.structures.grids import FullMesh, Hypercube, Ring, Torus
from pillarbox.topos.structures.trees import FatTree, Tree

SMALL = [
    *map(FullMesh, (2, 3, 6, 7)),
    *map(Ring, (3, 4, 7, 8)),
    *map(Torus, (3, 4, 5, 6)),
    *map(Hypercube, (1, 2, 3, 4)),
    *map(Butterfly, (1, 2, 3)),
    *map(WrappedButterfly, (3, 4, 5)),
    DeBruijn(2, 2),
    DeBruijn(2, 4),
    DeBruijn(3, 3),
    *(Tree(*size) for size in ((3, 3), (4, 3), (9, 4), (20, 5))),
    *map(FatTree, (2, 4, 16)),
]


def name(structure: Structure) -> str:
    return f"{type(structure).__name__}-{structure.nodes}"


def graph(structure: Structure) -> networkx.Graph:
    made = networkx.DiGraph() if structure.directed else networkx.MultiGraph()
    made.add_nodes_from(range(structure.nodes))
    made.add_edges_from(structure.edges())
    return made


def edge_set(edges) -> set[frozenset[int]]:
    return {frozenset(edge) for edge in edges}


@pytest.mark.parametrize("structure", SMALL, ids=name)
class TestEveryStructure:
    def test_counts_are_those_of_the_edges(self, structure):
        made = graph(structure)
        assert made.number_of_nodes() == structure.nodes
        assert made.number_of_edges() == structure.edge_count == len(list(structure.edges()))
        degrees = made.out_degree() if structure.directed else made.degree()
        assert max(degree for _, degree in degrees) == structure.degree

    def test_arrays_hold_the_same_edges(self, structure):
        owners, fars = structure.edge_arrays()
        assert sorted(zip(owners.tolist(), fars.tolist(), strict=True)) == sorted(structure.edges())

    def test_diameter_is_exact(self, structure):
        assert networkx.diameter(graph(structure)) == structure.diameter()


WITH_BISECTION = [s for s in SMALL if s.nodes <= 16 and s.bisection() is not None]


@pytest.mark.parametrize("structure", WITH_BISECTION, ids=name)
def test_bisection_is_exact(structure):
    assert fewest_cut(structure) == structure.bisection()


def fewest_cut(structure: Structure) -> int:
    edges = list(structure.edges())
    others = range(1, structure.nodes)
    halves = (
        set(half)
        for size in {structure.nodes // 2, (structure.nodes + 1) // 2}
        for half in itertools.combinations(others, size)
    )
    return min(sum((a in half) != (b in half) for a, b in edges) for half in halves)


WITH_BOTTLENECK = [s for s in SMALL if s.bottleneck() is not None]


@pytest.mark.parametrize("structure", WITH_BOTTLENECK, ids=name)
def test_bottleneck_is_the_largest_load_of_evenly_split_shortest_paths(structure):
    # Unordered pairs on a full-duplex edge are the ordered pairs on each of its directions.
    loads = networkx.edge_betweenness_centrality(graph(structure), normalized=False)
    assert max(loads.values()) == pytest.approx(structure.bottleneck())


def test_full_mesh_and_ring_are_those_of_networkx():
    assert edge_set(FullMesh(7).edges()) == edge_set(networkx.complete_graph(7).edges)
    assert edge_set(Ring(7).edges()) == edge_set(networkx.cycle_graph(7).edges)


def test_torus_is_the_periodic_grid():
    grid = networkx.grid_2d_graph(5, 5, periodic=True)
    assert edge_set(Torus(5).edges()) == edge_set(
        (5 * a + b, 5 * c + d) for (a, b), (c, d) in grid.edges
    )


def test_tree_is_the_balanced_one():
    assert networkx.is_isomorphic(networkx.Graph(graph(Tree(16, 5))), networkx.balanced_tree(4, 2))
    with pytest.raises(PillarboxError, match="66 leaves are no multiple"):
        Tree(66, 5)


def test_a_fat_tree_has_as_many_edges_between_any_two_heights():
    fat = FatTree(16)
    heights = [height for height, count in enumerate(fat.counts) for _ in range(count)]
    edges = [heights[owner] for owner, _ in fat.edges()]
    assert [edges.count(height) for height in range(fat.height)] == [16] * 4
    with pytest.raises(PillarboxError, match="a power of 2, not 12"):
        FatTree(12)


def test_hypercube_is_that_of_networkx():
    cube = networkx.hypercube_graph(4)
    number = {bits: sum(bit << i for i, bit in enumerate(bits)) for bits in cube}
    assert edge_set(Hypercube(4).edges()) == edge_set((number[a], number[b]) for a, b in cube.edges)


def test_de_bruijn_is_the_iterated_line_graph():
    words = networkx.complete_graph(3, networkx.DiGraph)
    words.add_edges_from((letter, letter) for letter in range(3))
    twice = networkx.line_graph(networkx.line_graph(words))
    twice = networkx.convert_node_labels_to_integers(twice)
    twice.remove_edges_from(list(networkx.selfloop_edges(twice)))
    assert networkx.is_isomorphic(twice, graph(DeBruijn(3, 3)))


def test_butterfly_joins_rows_that_differ_in_the_columns_bit():
    made = networkx.Graph(graph(Butterfly(3)))
    by_definition = networkx.Graph(
        (8 * column + row, 8 * (column + 1) + other)
        for column in range(3)
        for row in range(8)
        for other in range(8)
        if row | 1 << column == other | 1 << column
    )
    assert edge_set(made.edges) == edge_set(by_definition.edges)


def test_wrapped_butterfly_is_the_butterfly_with_its_last_column_folded_onto_the_first():
    folded = {frozenset(node % 24 for node in edge) for edge in Butterfly(3).edges()}
    assert folded == edge_set(WrappedButterfly(3).edges())
    assert networkx.is_connected(graph(WrappedButterfly(3)))


@pytest.mark.parametrize("structure", [s for s in SMALL if not isinstance(s, Tree)], ids=name)
def test_claims_in_print_that_are_exact(structure):
    assert structure.degree_claim().value == pytest.approx(structure.degree) or isinstance(
        structure, Butterfly
    )
    if not isinstance(structure, Torus | Ring):
        assert structure.diameter_claim().value == structure.diameter()


def test_a_trees_diameter_in_print_is_that_of_a_root_with_one_subtree_less():
    assert Tree(64, 5).diameter_claim().value == Tree(64, 5).diameter() == 6
    assert FatTree(16).diameter_claim().value == FatTree(16).diameter() == 8


def test_departs_from_the_paper_diameter_of_the_torus():
    # Guo 2008, Table 3 prints sqrt(N) - 1; the search above finds 2 floor(sqrt(N) / 2).
    for side in (3, 4, 5, 6):
        assert Torus(side).diameter() == side - side % 2
    assert [Torus(side).diameter_claim().value for side in (4, 5)] == [3, 4]
    assert [Torus(side).diameter() for side in (4, 5)] == [4, 4]


def test_the_rings_bottleneck_in_print_is_exact_for_even_sizes():
    assert Ring(8).bottleneck() == Ring(8).bottleneck_claim().value == 8
    assert Ring(7).bottleneck() == 6
    assert Ring(7).bottleneck_claim().value == pytest.approx(49 / 8)


def test_de_bruijns_bisection_in_print_is_no_exact_value():
    undirected = DeBruijn(2, 4)
    assert fewest_cut(undirected) < undirected.bisection_claim().value == 16


def test_wrapped_columns_invert_the_size():
    for k in (3, 5, 12):
        assert wrapped_columns(k * 2**k) == pytest.approx(k)


def test_every_example_is_found_by_its_name():
    found = structures.names()
    assert {"fullmesh", "ring", "torus", "tree", "fattree"} < set(found)
    assert {"hypercube", "butterfly", "wrappedbutterfly", "debruijn"} < set(found)
    from pillarbox.topos.structures.registry import structure_classes

    for kind, made in structure_classes().items():
        assert type(structures.parse(made.example)) is made
        assert made.example.startswith(kind + ",")


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("thorus,4", "did you mean torus"),
        ("torus", "write torus,side"),
        ("torus,x", "whole numbers"),
        ("torus,2", "side >= 3"),
        ("ring,2", "nodes >= 3"),
        ("wrappedbutterfly,2", "k >= 3"),
        ("debruijn,1,4", "d >= 2"),
        ("debruijn,2", "write debruijn,d,length"),
        ("hypercube,41", "is larger than"),
        ("hypercube,999999999999999999", "is larger than"),
        ("butterfly,999999999999999999", "is larger than"),
    ],
)
def test_wrong_specs_say_what_would_be_right(spec, hint):
    with pytest.raises(PillarboxError, match=hint):
        structures.parse(spec)


def test_structures_answer_without_numpy():
    code = (
        "import sys; from pillarbox.topos import structures; "
        "list(structures.parse('torus,4').edges()); sys.exit('numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
