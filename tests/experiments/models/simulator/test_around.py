"""Compiled routing around failures: the paths that the routers find, each as often."""

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import Routes, links_of, working_links
from pillarbox.experiments.models.simulator import around
from pillarbox.experiments.models.simulator.failure_sets import FailedNodes, draw, surviving_routes
from pillarbox.experiments.models.simulator.flow_arrays import random_flows
from pillarbox.experiments.models.simulator.paths import compiled_routings, routes
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import Failures, parse_failures
from pillarbox.topos.base.errors import PillarboxError

FLOWS = 60


def failures_of(network: topos.Topology, broken: FailedNodes) -> Failures:
    nodes = numpy.flatnonzero(numpy.concatenate([broken.servers, broken.switches]))
    cables = network.cable_arrays()
    pairs = zip(cables.a[broken.cables].tolist(), cables.b[broken.cables].tolist(), strict=True)
    return Failures(frozenset(nodes.tolist()), frozenset(map(frozenset, pairs)))


def found_in(found: Routes, flow: int) -> tuple[int, ...]:
    return tuple(found.links[found.starts[flow] : found.starts[flow + 1]].tolist())


@pytest.mark.parametrize(
    "spec", ["bcube,4,2", "bcube,3,3,servers=54", "bcube,4,2,servers=16", "rail,4,3,2"]
)
def test_a_flow_of_bsr_takes_each_path_of_the_routers_set(spec: str) -> None:
    network = topos.parse(spec)
    random = numpy.random.default_rng(4)
    broken = draw(network, random, servers=0.1, switches=0.15, cables=0.1)
    failures, works = failures_of(network, broken), broken.works(network)
    sources, destinations = random_flows(network.servers, FLOWS, random)
    times = 60
    many = [numpy.repeat(ends, times) for ends in (sources, destinations)]
    found = around.routes(network, "bsr", *many, works, random)
    replaced = 0
    for flow, ends in enumerate(zip(sources.tolist(), destinations.tolist(), strict=True)):
        ours = {found_in(found, flow * times + i) for i in range(times)}
        set_ = route(network, "bsr", *ends, failures, several=True).paths
        assert ours - {()} == {tuple(links_of(network, path).tolist()) for path in set_}
        assert (() in ours) == (not set_)
        replaced += len(set_) > len(route(network, "bcube", *ends, failures, several=True).paths)
    assert replaced > 3


def test_bsr_takes_each_path_of_a_set_equally_often() -> None:
    network = topos.parse("bcube,4,2")
    broken = draw(network, numpy.random.default_rng(1))
    broken.servers[network.server("3.0.0")] = True  # on one path of three: it is replaced
    ends = numpy.zeros(9000, int), numpy.full(9000, 63)
    found = around.routes(network, "bsr", *ends, broken.works(network), numpy.random.default_rng(1))
    firsts = numpy.bincount(found.links[found.starts[:-1]], minlength=3)[:3]
    assert firsts == pytest.approx([3000, 3000, 3000], rel=0.06)


@pytest.mark.parametrize("share", [0.05, 0.35])
def test_a_flow_of_the_fat_tree_takes_any_path_that_works(share: float) -> None:
    network = topos.parse("fattree,4,levels=4")
    random = numpy.random.default_rng(3)
    works = draw(network, random, switches=share).works(network)
    sources, destinations = random_flows(network.servers, FLOWS, random)
    times = 120
    many = [numpy.repeat(ends, times) for ends in (sources, destinations)]
    found = around.routes(network, "any", *many, works, random)
    choices = range(compiled_routings(network)["any"].choices(network))
    every = [
        surviving_routes(routes(network, "any", sources, destinations, choice), works)
        for choice in choices
    ]
    for flow in range(FLOWS):
        working = {found_in(each, flow) for each in every} - {()}
        assert {found_in(found, flow * times + i) for i in range(times)} == (working or {()})


def test_the_fat_tree_looks_at_all_paths_where_tries_find_none() -> None:
    network = topos.parse("fattree,8,levels=4")
    works = draw(network, numpy.random.default_rng(1)).works(network)
    ends = numpy.zeros(64, int), numpy.full(64, network.servers - 1)
    last = routes(network, "any", *(end[:1] for end in ends), 63).links
    for choice in range(63):  # all paths but the last
        own = routes(network, "any", *(end[:1] for end in ends), choice).links
        works[numpy.setdiff1d(own, last)] = False
    found = around.routes(network, "any", *ends, works, numpy.random.default_rng(1))
    assert found.links.reshape(64, -1).tolist() == [last.tolist()] * 64


def test_dfr_is_joined_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    network = topos.parse("dcell,4,1")
    random = numpy.random.default_rng(2)
    works = draw(network, random, cables=0.2).works(network)
    ends = random_flows(network.servers, 50, random)
    whole = around.routes(network, "dfr", *ends, works, random)
    monkeypatch.setattr("pillarbox.experiments.models.simulator.hops.BLOCK", 7)
    in_blocks = around.routes(network, "dfr", *ends, works, random)
    assert in_blocks.starts.tolist() == whole.starts.tolist()
    assert in_blocks.links.tolist() == whole.links.tolist()
    assert works[whole.links].all()


def test_other_routing_takes_a_path_that_works() -> None:
    network = topos.parse("dpillar,4,3")
    random = numpy.random.default_rng(2)
    works = draw(network, random, switches=0.2).works(network)
    ends = random_flows(network.servers, 50, random)
    found = around.routes(network, "mp-both", *ends, works, random)
    assert works[found.links].all()
    assert (numpy.diff(found.starts) == 0).any()
    assert around.routings(network)[0] == "mp"
    with pytest.raises(PillarboxError, match="no routing 'bsr': there are mp, mp-ccw, mp-both"):
        around.routes(network, "bsr", *ends, works, random)


@pytest.mark.parametrize("name", ["mp", "mp-ccw", "mp-both"])
def test_routing_that_probes_takes_the_shortest_path_that_works(name: str) -> None:
    network = topos.parse("dpillar,4,3")
    failures = parse_failures(network, ["stop s1", "kill 1.0.0.1", "cut 0.0.0.0-s0"])
    pairs = [(a, b) for a in range(0, 24, 5) for b in range(24) if a != b]
    ends = numpy.array(pairs).T.copy()
    works = working_links(network, failures)
    found = around.routes(network, name, *ends, works, numpy.random.default_rng(1))
    for flow, pair in enumerate(pairs):
        paths = route(network, name, *pair, failures).paths
        links = found.links[found.starts[flow] : found.starts[flow + 1]].tolist()
        assert links == (links_of(network, paths[0]).tolist() if paths else [])
