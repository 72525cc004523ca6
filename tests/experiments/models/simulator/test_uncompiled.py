"""Routing that was not compiled: the simulator takes it from hosts/NETWORK, flow by flow."""

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import routes_of, working_links
from pillarbox.experiments.models.simulator import around
from pillarbox.experiments.models.simulator.compiled_networks import network_table
from pillarbox.experiments.models.simulator.failure_sets import draw
from pillarbox.experiments.models.simulator.flow_arrays import all_to_all
from pillarbox.experiments.models.simulator.paths import compiled_routings, lengths, routes
from pillarbox.experiments.models.simulator.uncompiled import failures_of
from pillarbox.hosts.base.algorithms import SHORTEST, Algorithm, algorithms, route
from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.dcell.plain import DCellRouting
from pillarbox.topos.base.spec import small

CASES = [
    (spec, name)
    for spec in small()
    for name, algorithm in algorithms(topos.parse(spec)).items()
    if name not in compiled_routings(topos.parse(spec)) and (algorithm.path or name == SHORTEST)
]


@pytest.mark.parametrize(("spec", "name"), CASES)
def test_flows_take_the_paths_of_the_algorithm(spec: str, name: str) -> None:
    network = topos.parse(spec)
    ends = all_to_all(numpy.arange(network.servers))
    paths = [
        route(network, name, *pair).paths[0]
        for pair in zip(*(end.tolist() for end in ends), strict=True)
    ]
    expected, found = routes_of(network, paths), routes(network, name, *ends)
    assert found.starts.tolist() == expected.starts.tolist()
    assert found.links.tolist() == expected.links.tolist()
    assert lengths(network, name, *ends).tolist() == [len(path) for path in paths]


@pytest.mark.parametrize("name", ["tar", "shortest"])
def test_around_failures_they_take_what_the_algorithm_finds(name: str) -> None:
    network = topos.parse("ficonn,4,1")
    random = numpy.random.default_rng(3)
    broken = draw(network, random, servers=0.1, cables=0.1)
    works = broken.works(network)
    failures = failures_of(network, works)
    assert working_links(network, failures).tolist() == works.tolist()
    sources, destinations = all_to_all(numpy.arange(network.servers))
    found = around.routes(network, name, sources, destinations, works, random)
    ways = [
        next(iter(route(network, name, *pair, failures).paths), None)
        for pair in zip(sources.tolist(), destinations.tolist(), strict=True)
    ]
    assert found.links.tolist() == routes_of(network, ways).links.tolist()
    assert works[found.links].all()
    assert 0 < sum(way is None for way in ways) < len(ways)


def test_an_algorithm_that_is_only_a_router_is_run_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = topos.parse("dcell,4,1")
    bare = Algorithm("nothing but a router", router=DCellRouting)
    known = declared("dcell").algorithms
    monkeypatch.setitem(known, "bare", bare)
    ends = numpy.array([0, 3, 7]), numpy.array([19, 5, 12])
    plain = routes(network, "dcell", *ends)
    assert routes(network, "bare", *ends).links.tolist() == plain.links.tolist()
    assert lengths(network, "bare", *ends).tolist() == lengths(network, "dcell", *ends).tolist()


def test_a_network_without_a_compiled_file_has_none() -> None:
    assert network_table("paths", "nosuch", "ALGORITHMS") == {}
    assert network_table("adapting", "tree", "ADAPTING") == {}
