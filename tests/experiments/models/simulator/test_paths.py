"""Compiled routing is that of hosts/, link by link, on random flows of every network."""

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import end_of, link_count, links_of
from pillarbox.experiments.models.simulator.hops import hops_of_flows
from pillarbox.experiments.models.simulator.paths import (
    compiled_routings,
    lengths,
    link_flows,
    routes,
    routing_by_name,
)
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.mesh import BY_PORT
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import kinds

SPECS = (
    "bcube,4,2",
    "bcube,2,3",
    "bcube,4,2,servers=16",
    "dcell,4,2",
    "dcell,5,0",
    "dcell,2,3",
    "dcell,2,3,servers=154",
    "dcell,3,2,servers=41",
    "dpillar,4,2",
    "dpillar,4,4",
    "dpillar,6,3",
    "ficonn,4,2",
    "ficonn,4,3",
    "ficonn,10,0",
    "tree,4,5",
    "fattree,4",
    "fattree,4,levels=5",
    "domains,4,2",
    "vl2,4,4,tor=2",
    "torus,4,2,3",
    "torus,5,2",
    "bccc,3,1",
    "bccc,2,2",
    "bccc,4,0",
    "rail,4,2",
    "rail,3,2,2",
    "mesh,3,3",
    "mesh,4,3,2",
)
CASES = [(spec, name) for spec in SPECS for name in compiled_routings(topos.parse(spec))]
SAMPLE = 60


def flows_of(network: topos.Topology) -> tuple[numpy.ndarray, numpy.ndarray]:
    random = numpy.random.default_rng(3)
    sources = random.integers(0, network.servers, SAMPLE)
    destinations = random.integers(0, network.servers - 1, SAMPLE)
    return sources, destinations + (destinations >= sources)


def own_paths(network: topos.Topology, name: str, source: int, destination: int) -> list[Path]:
    """Return the routers' own path, or the whole set where the compiled form has one."""
    if name == "by-port":
        every = range(BY_PORT.choices(network))
        return [BY_PORT.path(network, source, destination, choice) for choice in every]
    if name == "parallel":
        first = next(iter(algorithms(network)))
        return route(network, first, source, destination, several=True).paths
    rule = declared(network.kind).rules.get(name)
    if name in ("any", "vlb"):
        every = range(rule.choices(network))
        return [rule.path(network, source, destination, choice) for choice in every]
    algorithm = algorithms(network)[name]
    several = algorithm.path_set is not None and algorithm.path is None
    return route(network, name, source, destination, several=several).paths


@pytest.mark.parametrize(("spec", "name"), CASES)
def test_links_are_those_of_the_routers_paths(spec: str, name: str) -> None:
    network = topos.parse(spec)
    sources, destinations = flows_of(network)
    choices = compiled_routings(network)[name].choices(network)
    found = [routes(network, name, sources, destinations, choice) for choice in range(choices)]
    hops = [lengths(network, name, sources, destinations, choice) for choice in range(choices)]
    for flow, ends in enumerate(zip(sources.tolist(), destinations.tolist(), strict=True)):
        paths = own_paths(network, name, *ends)
        ours = {tuple(r.links[r.starts[flow] : r.starts[flow + 1]].tolist()) for r in found}
        assert ours - {()} == {tuple(links_of(network, path).tolist()) for path in paths}
        if paths:
            assert {int(h[flow]) for h in hops} - {0} == set(map(len, paths))


@pytest.mark.parametrize(
    ("spec", "name", "choice", "servers"),
    [
        # Guo 2009, Fig. 4
        ("bcube,8,3", "parallel", 0, "0.0.0.1 1.0.0.1 1.0.1.1"),
        ("bcube,8,3", "parallel", 1, "0.0.0.1 0.1.0.1 0.1.1.1 1.1.1.1 1.0.1.1"),
        ("bcube,8,3", "parallel", 2, "0.0.0.1 0.0.1.1 1.0.1.1"),
        ("bcube,8,3", "parallel", 3, "0.0.0.1 0.0.0.2 1.0.0.2 1.0.1.2 1.0.1.1"),
        ("bcube,8,3", "bcube", 0, "0.0.0.1 1.0.0.1 1.0.1.1"),
        ("bcube,8,3", "bcube", 0, "0.0.0.1 1.0.0.1 1.0.1.1 1.0.1.2"),  # level 0 comes last
        # Liao 2012, section 4.2
        ("dpillar,8,2", "sp-cw", 0, "1.0.0 0.1.0 1.1.3"),
        ("dpillar,8,2", "mp", 0, "0.0.0 1.0.3 0.3.3"),
        ("dpillar,8,2", "mp", 1, "0.0.0 1.0.0 0.1.0 1.1.3 0.3.3"),
    ],
)
def test_the_papers_examples(spec: str, name: str, choice: int, servers: str) -> None:
    network = topos.parse(spec)
    expected = [network.server(server) for server in servers.split()]
    ends = numpy.array(expected[:1]), numpy.array(expected[-1:])
    walker = routing_by_name(network, name).walk
    assert walker
    fill, most, _ = walker(network)
    found = hops_of_flows(fill(numpy.array([choice])), most, *ends)
    passed = found.peers[0, : found.counts[0]].tolist()
    assert [network.address(server) for server in passed] == servers.split()[1:]


def test_the_papers_example_of_two_level_tables() -> None:
    network = topos.parse("fattree,4")  # Al-Fares 2008, section 3.4
    ends = (numpy.array([network.server(server)]) for server in ("0.1.0", "2.0.1"))
    nodes = [end_of(network, link)[0] for link in routes(network, "two-level", *ends).links]
    labels = [network.switch_label(int(node) - network.servers) for node in nodes[1:]]
    assert labels == ["edge 0.1", "aggregation 0.0", "core 1", "aggregation 2.0", "edge 2.0"]


@pytest.mark.parametrize(("spec", "name"), CASES)
def test_paths_go_from_end_to_end_over_cables(spec: str, name: str) -> None:
    network = topos.parse(spec)
    sources, destinations = flows_of(network)
    for choice in range(compiled_routings(network)[name].choices(network)):
        found = routes(network, name, sources, destinations, choice)
        for flow, (at, end) in enumerate(zip(sources.tolist(), destinations.tolist(), strict=True)):
            links = found.links[found.starts[flow] : found.starts[flow + 1]].tolist()
            for link in links:
                node, port = end_of(network, link)
                assert node == at
                at = network.plug(node, port).node
            assert at == end or not links


def test_every_network_of_the_papers_has_compiled_routing() -> None:
    examples = {topos.parse(spec).kind for spec in SPECS}
    assert examples == set(kinds()) - {"jellyfish"}  # random: shortest paths, by a search


def test_each_flow_may_take_another_path() -> None:
    network = topos.parse("bcube,4,2")
    ends = numpy.array([0, 0, 0]), numpy.array([63, 63, 63])
    mixed = routes(network, "parallel", *ends, numpy.array([2, 0, 1]))
    alone = [routes(network, "parallel", *ends, choice).links[:6].tolist() for choice in range(3)]
    assert mixed.links.reshape(3, 6).tolist() == [alone[2], alone[0], alone[1]]


def test_long_lists_of_flows_are_handled_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    network = topos.parse("dcell,4,2")
    ends = flows_of(network)
    whole, hops = routes(network, "dcell", *ends), lengths(network, "dcell", *ends)
    monkeypatch.setattr("pillarbox.experiments.models.simulator.hops.BLOCK", 7)
    in_blocks = routes(network, "dcell", *ends)
    assert in_blocks.starts.tolist() == whole.starts.tolist()
    assert in_blocks.links.tolist() == whole.links.tolist()
    assert lengths(network, "dcell", *ends).tolist() == hops.tolist()
    assert routes(network, "dcell", *(e[:0] for e in ends)).flows == 0


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("bcube,4,2", "parallel"),
        ("bcube,4,2,servers=16", "parallel"),
        ("dpillar,4,4", "minimal"),
        ("dpillar,6,3", "mp"),
        ("dcell,2,3,servers=154", "dcell"),
        ("ficonn,4,2", "tor"),
        ("fattree,4", "two-level"),
        ("jellyfish,8,4,3", ""),
    ],
)
def test_flows_on_links_are_those_of_the_routes(
    spec: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = topos.parse(spec)
    ends = flows_of(network)
    choice = numpy.arange(SAMPLE) % routing_by_name(network, name).choices(network)
    found = routes(network, name, *ends, choice)
    expected = numpy.bincount(found.links, minlength=link_count(network)).tolist()
    assert link_flows(network, name, *ends, choice).tolist() == expected
    monkeypatch.setattr("pillarbox.experiments.models.simulator.hops.BLOCK", 7)
    assert link_flows(network, name, *ends, choice).tolist() == expected
    assert not link_flows(network, name, *(e[:0] for e in ends)).any()


@pytest.mark.parametrize(
    ("spec", "mean", "deviation"),
    [("dcell,4,2", 5.16, 1.42), ("dcell,5,2", 5.50, 1.33), ("dcell,6,2", 5.73, 1.25)],
)
def test_dcell_routing_as_in_the_paper(spec: str, mean: float, deviation: float) -> None:
    network = topos.parse(spec)  # Guo 2008, Table 1
    pairs = numpy.indices((network.servers, network.servers)).reshape(2, -1)
    sources, destinations = pairs[:, pairs[0] != pairs[1]]
    hops = lengths(network, "dcell", sources, destinations)
    assert (hops.mean(), hops.std()) == pytest.approx((mean, deviation), abs=0.005)


def test_what_is_not_there_is_refused() -> None:
    network = topos.parse("bcube,4,1")
    two = numpy.array([1, 2])
    with pytest.raises(PillarboxError, match="no routing 'dfr'"):
        routes(network, "dfr", two, two + 1)
    with pytest.raises(PillarboxError, match="two different ends"):
        routes(network, "bcube", two, two)
    with pytest.raises(PillarboxError, match="the numbers 0 to 1"):
        routes(network, "parallel", two, two + 1, 2)
