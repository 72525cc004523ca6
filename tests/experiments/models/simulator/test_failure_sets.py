"""Failures in arrays against the routers' own, and what they leave of the flows."""

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import Routes, working_links
from pillarbox.experiments.models.simulator.failure_sets import draw, surviving_routes
from pillarbox.hosts.base.failures import Failures
from pillarbox.topos.base.errors import PillarboxError


@pytest.mark.parametrize("spec", ["bcube,4,2", "dcell,3,2,servers=41", "fattree,4"])
def test_works_like_the_failures_of_the_routers(spec: str) -> None:
    network = topos.parse(spec)
    random = numpy.random.default_rng(5)
    broken = draw(network, random, servers=0.1, switches=0.2, cables=0.1)
    assert broken.servers.sum() == round(0.1 * network.servers)
    assert broken.switches.sum() == round(0.2 * network.switches)
    assert broken.cables.sum() == round(0.1 * network.cables)
    nodes = numpy.flatnonzero(numpy.concatenate([broken.servers, broken.switches]))
    cables = network.cable_arrays()
    pairs = zip(cables.a[broken.cables].tolist(), cables.b[broken.cables].tolist(), strict=True)
    same = Failures(frozenset(nodes.tolist()), frozenset(map(frozenset, pairs)))
    assert (broken.works(network) == working_links(network, same)).all()


def test_a_rack_takes_its_switch_but_none_that_others_use() -> None:
    network = topos.parse("bcube,4,1")
    broken = draw(network, numpy.random.default_rng(1), racks=0.5)
    racks = broken.servers.reshape(4, 4)
    assert sorted(racks.sum(axis=1).tolist()) == [0, 0, 4, 4]
    assert broken.switches.tolist() == [*racks.all(axis=1).tolist(), *[False] * 4]


def test_flows_over_a_failure_lose_their_path() -> None:
    routes = Routes(numpy.array([0, 2, 2, 3, 5]), numpy.array([0, 1, 2, 1, 2]))
    left = surviving_routes(routes, numpy.array([True, False, True]))
    assert left.starts.tolist() == [0, 0, 0, 1, 1]
    assert left.links.tolist() == [2]


def test_shares_are_shares() -> None:
    with pytest.raises(PillarboxError, match="from 0 to 1"):
        draw(topos.parse("bcube,4,1"), numpy.random.default_rng(1), servers=20)
