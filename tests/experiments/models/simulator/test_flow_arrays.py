"""Flows look for a path that works, and take each of those that do equally often."""

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import link_count, working_links
from pillarbox.experiments.models.fluid.rates import (
    bottleneck_throughput,
    equal_share_rates_bps,
    link_loads,
)
from pillarbox.experiments.models.simulator.failure_sets import draw, surviving_routes
from pillarbox.experiments.models.simulator.flow_arrays import (
    all_to_all,
    random_flows,
    working_routes,
)
from pillarbox.experiments.models.simulator.paths import compiled_routings, routes
from pillarbox.hosts.base.failures import parse_failures


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("bcube,4,2", "parallel"),
        ("bcube,3,3,servers=54", "parallel"),
        ("dpillar,6,2", "mp-both"),
        ("dpillar,6,2", "sp-cw"),
        ("fattree,4", "any"),
        ("dcell,3,2", "dcell"),
    ],
)
def test_a_flow_has_a_path_if_one_of_the_set_works(spec: str, name: str) -> None:
    network = topos.parse(spec)
    random = numpy.random.default_rng(2)
    works = draw(network, random, servers=0.1, switches=0.2).works(network)
    ends = random_flows(network.servers, 500, random)
    found = working_routes(network, name, *ends, works, random)
    every = [
        routes(network, name, *ends, c)
        for c in range(compiled_routings(network)[name].choices(network))
    ]
    left = [surviving_routes(each, works) for each in every]
    for flow in range(500):
        ours = tuple(found.links[found.starts[flow] : found.starts[flow + 1]].tolist())
        those = {tuple(w.links[w.starts[flow] : w.starts[flow + 1]].tolist()) for w in left} - {()}
        assert ours in (those or {()})


def test_paths_that_work_are_taken_equally_often() -> None:
    network = topos.parse("bcube,4,2")
    works = working_links(network, parse_failures(network, ["kill 3.0.0"]))
    ends = numpy.zeros(9000, int), numpy.full(9000, 63)
    found = working_routes(network, "parallel", *ends, works, numpy.random.default_rng(1))
    firsts = numpy.bincount(found.links[found.starts[:-1]], minlength=3)[:3]
    assert firsts[2] == 0  # through port 2 the path leads over the dead server
    assert firsts[:2] == pytest.approx([4500, 4500], rel=0.05)


def test_all_to_all_of_bcube_is_theorem_6() -> None:
    network = topos.parse("bcube,4,2")  # Guo 2009: n / (n - 1) (N - 1)
    found = routes(network, "bcube", *all_to_all(numpy.arange(64)))
    assert bottleneck_throughput(equal_share_rates_bps(found, 1.0)) == pytest.approx(4 / 3 * 63)
    assert link_loads(found, None, link_count(network)).sum() == len(found.links)


def test_a_partial_dcell_as_in_the_papers_comparison() -> None:
    # Guo 2009, section 6: a DCell_2 of n = 8 with 28 full DCell_1 and 32 servers of one more. The
    # paper's busiest links of levels 0, 1 and 2 carry so many flows; 298 Gb/s in all.
    network = topos.parse("dcell,8,2,servers=2048")
    found = routes(network, "dcell", *all_to_all(numpy.arange(2048)))
    loads = link_loads(found, None, link_count(network))
    of_servers = loads[: 2048 * network.ports].reshape(2048, network.ports)
    assert of_servers.max(axis=0).tolist() == [14047, 9280, 5184]
    assert bottleneck_throughput(equal_share_rates_bps(found, 1.0)) == pytest.approx(298.4, abs=0.1)
