"""The torus: wiring coordinate by coordinate, counts and diameters by an independent search."""

import itertools

import networkx
import pytest

from pillarbox import topos
from pillarbox.topos.base.errors import PillarboxError


@pytest.mark.parametrize(
    ("spec", "servers", "ports", "cables", "diameter", "bisection"),
    [
        ("torus,16,16,16", 4096, 6, 12_288, 24, 512),
        ("torus,8,8,8", 512, 6, 1536, 12, 128),
        ("torus,4,4,2", 32, 5, 80, 5, 16),
        ("torus,2,2,2,2", 16, 4, 32, 4, 8),  # a hypercube
        ("torus,5,5", 25, 4, 50, 4, 12),
        ("torus,7", 7, 2, 7, 3, 2),
        ("torus,2", 2, 1, 1, 1, 1),
    ],
)
def test_worked_values(
    spec: str, servers: int, ports: int, cables: int, diameter: int, bisection: int
) -> None:
    torus = topos.parse(spec)
    assert (torus.servers, torus.ports, torus.cables) == (servers, ports, cables)
    assert (torus.switches, torus.switch_ports) == (0, 0)
    assert torus.diameter_bound().value == diameter
    assert torus.bisection().value == bisection
    assert torus.disjoint_paths().value == ports


@pytest.mark.parametrize(
    "spec", ["torus,3,3", "torus,4,2,3", "torus,5", "torus,2,2,2", "torus,6,5"]
)
def test_torus_is_the_product_of_rings(spec: str) -> None:
    torus = topos.parse(spec)
    sizes = torus.radices()
    rings = {
        frozenset([point, (*point[:i], (point[i] + 1) % size, *point[i + 1 :])])
        for point in itertools.product(*map(range, sizes))
        for i, size in enumerate(sizes)
    }
    cables = [frozenset([torus.digits(c.a), torus.digits(c.b)]) for c in torus.links()]
    assert set(cables) == rings
    assert len(cables) == len(rings), "two cables between the same servers"


@pytest.mark.parametrize(
    "spec", ["torus,3,3", "torus,4,2,3", "torus,7", "torus,2,2,2", "torus,6,5"]
)
def test_diameter_and_connectivity_by_a_search(spec: str) -> None:
    torus = topos.parse(spec)
    graph = networkx.Graph((cable.a, cable.b) for cable in torus.links())
    assert networkx.diameter(graph) == torus.diameter_bound().value
    assert networkx.node_connectivity(graph) == torus.disjoint_paths().value


def test_cables_of_a_dimension_have_its_level() -> None:
    torus = topos.parse("torus,3,2,4")
    for cable in torus.links():
        differ = [
            i
            for i, pair in enumerate(zip(*map(torus.digits, (cable.a, cable.b)), strict=True))
            if len(set(pair)) > 1
        ]
        assert differ == [cable.level]


@pytest.mark.parametrize("spec", ["torus,1", "torus,4,1,4", "torus,4,-2"])
def test_sizes_are_two_or_more(spec: str) -> None:
    with pytest.raises(PillarboxError, match="dimensions of size 2 or more"):
        topos.parse(spec)


def test_a_torus_names_no_switch() -> None:
    with pytest.raises(PillarboxError, match="not a switch of torus,3,3: it has none"):
        topos.parse("torus,3,3").switch("s0")


@pytest.mark.parametrize("spec", ["torus,8,8", "torus,4,4,4", "torus,2,3,2,2"])
def test_no_two_servers_overlap_in_the_drawing(spec: str) -> None:
    places = list(topos.parse(spec).layout().positions.values())
    apart = min(max(abs(x - u), abs(y - v)) for (x, y), (u, v) in itertools.combinations(places, 2))
    assert apart > 0.7  # 0.82 is the diameter of a server
