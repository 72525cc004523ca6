"""Paths of port addresses in all networks whose servers have several ports."""

from __future__ import annotations

import random
from itertools import product

import pytest

from pillarbox import topos
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.path import disjoint
from pillarbox.hosts.base.pinned_paths import (
    disjoint_paths,
    hops_of,
    links_in_order,
    path_of,
    pinned_path,
    ports_of_ends,
    reverse,
)
from pillarbox.hosts.wire.source_route import MOST_HOPS, MOST_LINKS
from pillarbox.topos.base.spec import small
from pillarbox.topos.base.topology import Topology

ODD = ["dpillar,4,3", "dpillar,6,2", "dcell,2,2", "dcell,3,2,servers=41", "bcube,2,3"]
ODD += ["bcube,4,2,servers=32", "ficonn,4,2", "bccc,3,1", "torus,3,3", "mesh,3,3"]
SPECS = [spec for spec in [*small(), *ODD] if topos.parse(spec).ports > 1]
# Partial networks lack some disjoint paths.
FULL = [spec for spec in SPECS if "servers=" not in spec]


def pairs(topology: Topology, most: int = 40) -> list[tuple[int, int]]:
    every = [(a, b) for a in range(topology.servers) for b in range(topology.servers) if a != b]
    return random.Random(3).sample(every, min(most, len(every)))


@pytest.mark.parametrize("spec", SPECS)
def test_path_leaves_by_its_port_and_back_arrives_by_it(spec: str) -> None:
    topology = topos.parse(spec)
    found = 0
    for source, destination in pairs(topology):
        for port in range(topology.ports):
            path = pinned_path(topology, source, port, destination, None)
            if path is None:
                continue
            found += 1
            path.nodes(topology)  # raises ValueError if a hop follows no cable
            assert (path.source, path.destination) == (source, destination)
            assert len(set(path.servers)) == len(path.servers), "a loop"
            assert path.steps[0].port == port
            back = pinned_path(topology, destination, None, source, port)
            assert back == reverse(topology, path)
            assert back.nodes(topology) == path.nodes(topology)[::-1]
            assert ports_of_ends(topology, back)[1] == port
    assert found


@pytest.mark.parametrize("spec", SPECS)
def test_path_with_both_ports_uses_both_or_that_of_the_lower_server(spec: str) -> None:
    topology = topos.parse(spec)
    both = 0
    for source, destination in pairs(topology, 12):
        for ports in product(range(topology.ports), repeat=2):
            path = pinned_path(topology, source, ports[0], destination, ports[1])
            back = pinned_path(topology, destination, ports[1], source, ports[0])
            if path is None:
                assert back is None
                continue
            assert back is not None
            assert back.nodes(topology) == path.nodes(topology)[::-1]
            own = ports_of_ends(topology, path)
            both += own == ports
            lower = 0 if source < destination else 1
            assert own == ports or own[lower] == ports[lower] or own[1 - lower] == ports[1 - lower]
    assert both


@pytest.mark.parametrize("spec", FULL)
def test_paths_of_a_pair_by_different_ports_share_no_node(spec: str) -> None:
    topology = topos.parse(spec)
    if not any(one.path_set for one in algorithms(topology).values()):
        pytest.skip("the network has no path set")
    for source, destination in pairs(topology):
        paths = disjoint_paths(topology, min(source, destination), max(source, destination))
        assert disjoint(topology, paths)
        for path in paths:
            out_by, in_by = ports_of_ends(topology, path)
            assert pinned_path(topology, path.source, out_by, path.destination, None) == path
            assert pinned_path(topology, path.source, None, path.destination, in_by) == path


@pytest.mark.parametrize(("spec", "ports"), [("dpillar,4,2", 2), ("bcube,4,1", 2), ("mesh,4,2", 4)])
def test_every_port_of_a_pair_has_a_disjoint_path(spec: str, ports: int) -> None:
    topology = topos.parse(spec)
    for source, destination in pairs(topology):
        paths = disjoint_paths(topology, min(source, destination), max(source, destination))
        ends = [ports_of_ends(topology, path) for path in paths]
        assert len(paths) == ports == len({out for out, _ in ends}) == len({by for _, by in ends})


@pytest.mark.parametrize("spec", SPECS)
def test_hops_describe_the_path(spec: str) -> None:
    topology = topos.parse(spec)
    for source, destination in pairs(topology, 20):
        path = pinned_path(topology, source, 0, destination, None)
        hops = hops_of(topology, path) if path else None
        if not path or hops is None:
            continue
        again = path_of(topology, source, hops)
        assert again is not None
        assert again.servers == path.servers
        assert [step.port for step in again.steps] == [step.port for step in path.steps]
    links = links_in_order(topology, 0)
    assert path_of(topology, 0, [len(links)]) is None
    assert path_of(topology, topology.servers, [0]) is None
    assert path_of(topology, 0, []).servers == (0,)  # type: ignore[union-attr]


def test_pairs_without_ports_have_no_pinned_path() -> None:
    bcube = topos.parse("bcube,4,1")
    assert pinned_path(bcube, 0, None, 5, None) is None
    assert pinned_path(bcube, 5, 1, 5, 0) is None


def test_port_without_a_cable_has_no_pinned_path() -> None:
    ficonn = topos.parse("ficonn,4,1")
    bare = next(s for s in range(12) if ficonn.server_plug(s, 1).node < 0)
    other = (bare + 4) % 12
    assert pinned_path(ficonn, bare, 1, other, None) is None
    # The port of the other address still decides.
    found = pinned_path(ficonn, bare, 1, other, 0)
    assert found is not None
    assert ports_of_ends(ficonn, found)[1] == 0


@pytest.mark.parametrize(("size", "has_path"), [(2 * MOST_HOPS, True), (2 * MOST_HOPS + 2, False)])
def test_path_longer_than_the_header_is_not_pinned(size: int, has_path: bool) -> None:
    ring = topos.parse(f"torus,{size}")
    path = pinned_path(ring, 0, 0, size // 2, None)
    assert (path is not None) == has_path
    assert path is None or len(path) == MOST_HOPS


@pytest.mark.parametrize(("n", "has_hops"), [(MOST_LINKS + 1, True), (MOST_LINKS + 2, False)])
def test_links_beyond_a_byte_are_not_pinned(n: int, has_hops: bool) -> None:
    rail = topos.parse(f"bcube,{n},0")
    path = pinned_path(rail, 0, 0, n - 1, None)
    assert path is not None
    assert (hops_of(rail, path) is not None) == has_hops
