"""Sprayed flows in the fluid model: equal parts on each path, in ideals, bounds and gaps."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.comparison.load_capacity import busiest_link_share
from pillarbox.experiments.models.comparison.throughput_gap import compute_throughput_gap
from pillarbox.experiments.models.fluid.directed_links import (
    link_count,
    path_counts,
    paths_of_flow,
    routes_of,
)
from pillarbox.experiments.models.fluid.ideal import ideal, static_flow_paths, static_paths
from pillarbox.experiments.models.fluid.path_bound import PathBound
from pillarbox.experiments.models.fluid.rates import MaxMin, link_loads
from pillarbox.experiments.models.simulator.uncompiled import path_finder
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.hosts.base.failures import parse_failures

CUBE = topos.parse("bcube,4,1")
FAR = (CUBE.server("0.0"), CUBE.server("3.3"))
NEAR = (CUBE.server("0.0"), CUBE.server("0.3"))


def total_bps(routing: str, pairs: list[tuple[int, int]]) -> float:
    flows = [Flow(number, *pair, duration_s=1.0) for number, pair in enumerate(pairs)]
    return ideal(CUBE, routing, flows, 1e8, segments_per_ack=1e9).total_bps


def test_one_flow_fills_all_paths() -> None:
    for pair in (FAR, NEAR):
        assert total_bps("spray", [pair]) == pytest.approx(2 * total_bps("bsr", [pair]), rel=1e-6)


def test_the_slowest_path_limits_a_sprayed_flow() -> None:
    """Half of a flow shares one cable with another flow: both get two thirds of a cable."""
    other = (CUBE.server("0.0"), CUBE.server("0.1"))
    whole = total_bps("bsr", [FAR])
    flows = [Flow(0, *FAR, duration_s=1.0), Flow(1, *other, duration_s=1.0)]
    far = static_flow_paths(CUBE, "spray", [FAR])[0]
    (one,) = static_paths(CUBE, "bcube", [other])
    found = ideal(CUBE, "bsr", flows, 1e8, paths=[far, one], segments_per_ack=1e9)
    assert found.goodput_bps.tolist() == pytest.approx([whole * 2 / 3] * 2, rel=1e-6)


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=12))
@pytest.mark.parametrize("spec", ["bcube,4,1", "mesh,4,4", "dpillar,4,2"])
def test_no_cable_carries_more_than_its_rate(spec: str, drawn: list[tuple[int, int]]) -> None:
    network = topos.parse(spec)
    pairs = [(a % network.servers, b % network.servers) for a, b in drawn]
    pairs = [(a, b) for a, b in pairs if a != b]
    paths = static_flow_paths(network, "spray", pairs)
    counts, routes, links = path_counts(paths), routes_of(network, paths), link_count(network)
    assert counts.tolist() == [len(paths_of_flow(one)) for one in paths]
    rates = MaxMin(routes, links, counts).rates(1.0)
    loads = link_loads(routes, rates / counts, links)
    assert loads.max(initial=0.0) <= 1 + 1e-9
    for flow in range(len(pairs)):
        own = routes.links[routes.starts[flow] : routes.starts[flow + 1]]
        assert loads[own].max() == pytest.approx(1)  # a full cable limits every flow


def test_bound_of_a_sprayed_flow_before_and_after_a_failure() -> None:
    whole = PathBound(CUBE, "bsr", static_paths(CUBE, "bsr", [FAR]), 1e8)
    paths = static_flow_paths(CUBE, "spray", [FAR])
    sprayed = PathBound(CUBE, "spray", paths, 1e8)
    one = numpy.ones(1)
    rate_bps = whole.rates_bps(one)[0]
    assert sprayed.rates_bps(one)[0] == pytest.approx(2 * rate_bps)
    assert sprayed.rates_bps(numpy.zeros(1))[0] == pytest.approx(2 * rate_bps)
    assert sprayed.least_s(one) == pytest.approx(whole.least_s(one) / 2)
    # While one path fails, the other carries half of the flow or all of it.
    left = paths_of_flow(paths[0])[:1]
    failing = PathBound(CUBE, "spray", paths, 1e8, later=[left])
    assert failing.rates_bps(one)[0] == pytest.approx(2 * rate_bps)
    assert PathBound(CUBE, "spray", [left], 1e8).rates_bps(one)[0] == pytest.approx(rate_bps)


def test_all_disjoint_paths_around_failures_carry_a_flow() -> None:
    broken = parse_failures(CUBE, ["kill 3.0"])
    (paths,) = static_flow_paths(CUBE, "spray", [FAR], broken)
    assert len(paths_of_flow(paths)) == 2
    assert not any(CUBE.server("3.0") in path.servers for path in paths_of_flow(paths))
    assert static_flow_paths(CUBE, "spray", [FAR], parse_failures(CUBE, ["kill 3.3"])) == [None]
    assert static_flow_paths(CUBE, "bsr", [FAR]) == static_paths(CUBE, "bsr", [FAR])


def test_gap_and_load_divide_flows_among_their_paths() -> None:
    found = compute_throughput_gap(CUBE, [FAR], ["bcube", "spray"])
    totals = {one.routing: (one.total, one.throughput, one.worst_flows) for one in found.reached}
    assert totals == {"bcube": (1.0, 1.0, 1), "spray": (2.0, 2.0, 1)}
    demand = numpy.zeros((CUBE.servers, CUBE.servers))
    demand[FAR] = 1.0
    assert busiest_link_share(CUBE, "spray", demand) == 0.5


def test_simulated_flows_are_not_sprayed() -> None:
    with pytest.raises(topos.PillarboxError, match="simulated flows take one path each: spray"):
        path_finder(CUBE, "spray")
