"""Flows that arrive in networks: loads, choices among paths, classes of sizes, groups."""

from __future__ import annotations

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    cable_capacity_bps,
    goodput_bps,
    group_completion_s,
    simulate,
    slowdown_rows_by_size,
)
from pillarbox.experiments.models.fluid.ideal import header_efficiency
from pillarbox.experiments.models.simulator.flow_arrays import random_flows
from pillarbox.experiments.models.workloads.arrivals import Arrivals, Window
from pillarbox.topos.base.errors import PillarboxError

BPS = 1e6


def arriving(spec: str, flows: int, load: float, routing: str = "") -> Arrivals:
    network, random = topos.parse(spec), numpy.random.default_rng(3)
    pairs = random_flows(network.servers, flows, random)
    volumes = random.integers(1, 100_000, flows)
    last_s = volumes.sum() * 8 / (load * cable_capacity_bps(network, routing, pairs, BPS))
    return Arrivals(numpy.sort(random.random(flows)) * last_s, *pairs, volumes)


def test_the_load_that_is_offered_is_the_one_of_the_cables() -> None:
    arrivals = arriving("bcube,4,1", 4000, 0.4)
    window = Window(0.0, float(arrivals.start_s[-1]) * 1.0001)
    found = simulate(topos.parse("bcube,4,1"), "", arrivals, window, BPS)
    loads = found.loads
    assert loads.offered == pytest.approx(0.4, rel=0.01)
    assert loads.carried == pytest.approx(loads.offered, rel=0.05)  # some are still under way
    assert loads.active_before == 0 < loads.active_after < 100
    # 3.2 of 64 links a flow, 32 of which leave servers: a server's port for each hop.
    assert loads.servers == pytest.approx(0.4 * 64 / 3.2 / 32, rel=0.02)
    assert 1.0 * loads.offered < loads.busiest < 1.5 * loads.offered
    assert found.counts.all() and found.slowdown.min() > 1 - 1e-9


def test_what_begins_outside_the_window_does_not_count() -> None:
    arrivals = arriving("bcube,4,1", 1000, 0.3)
    middle = Window(*numpy.quantile(arrivals.start_s, (0.25, 0.75)).tolist())
    found = simulate(topos.parse("bcube,4,1"), "", arrivals, middle, BPS)
    assert found.counts.sum() == pytest.approx(500, abs=2)
    assert found.loads.offered == pytest.approx(found.loads.carried, rel=0.15)
    assert found.loads.active_before > 0


def test_a_network_that_is_asked_for_too_much_carries_less() -> None:
    arrivals = arriving("tree,4,4", 3000, 0.9)  # its few upper cables have the most to carry
    window = Window(0.0, float(arrivals.start_s[-1]))
    loads = simulate(topos.parse("tree,4,4"), "", arrivals, window, BPS).loads
    assert loads.busiest > 1
    assert loads.carried < 0.8 * loads.offered
    assert loads.active_after > 100


@pytest.mark.parametrize("spec", ["bcube,4,1", "dpillar,4,2", "fattree,4"])
def test_least_crowded_paths_are_faster_than_random_ones(spec: str) -> None:
    network = topos.parse(spec)
    routing = {"bcube": "parallel", "dpillar": "mp-both", "fattree": "any"}[network.kind]
    arrivals = arriving(spec, 3000, 0.5, routing)
    window = Window(0.0, float(arrivals.start_s[-1]))
    at_random, chosen = (
        simulate(network, routing, arrivals, window, BPS, choice=choice)
        for choice in ("random", "least-crowded")
    )
    assert chosen.slowdown.mean() < 0.95 * at_random.slowdown.mean()
    assert len(numpy.unique(chosen.course.path)) > 1
    assert chosen.routes.flows == 3000 and chosen.loads.offered > 0


def test_routing_that_is_not_compiled_goes_flow_by_flow() -> None:
    bcube, arrivals = topos.parse("bcube,4,1"), arriving("bcube,4,1", 200, 0.3)
    window = Window(0.0, float(arrivals.start_s[-1]))
    one, other = (simulate(bcube, name, arrivals, window, BPS) for name in ("bcube", "shortest"))
    assert numpy.diff(one.routes.starts).tolist() == numpy.diff(other.routes.starts).tolist()


def test_paths_are_chosen_in_a_known_way() -> None:
    arrivals = arriving("bcube,4,1", 10, 0.3)
    with pytest.raises(PillarboxError, match="random or least-crowded, not 'best'"):
        simulate(topos.parse("bcube,4,1"), "", arrivals, Window(0, 1), BPS, choice="best")


def test_headers_take_their_part() -> None:
    assert goodput_bps(topos.parse("tree,4,4"), "", 1e9) == 1e9 * header_efficiency(0)
    assert goodput_bps(topos.parse("bcube,4,1"), "bcube", 1e9) == 1e9 * header_efficiency(20)
    assert goodput_bps(topos.parse("bcube,4,1"), "parallel", 1e9) == 1e9 * header_efficiency(36)


def test_classes_of_sizes() -> None:
    sizes = numpy.array([1, 9_999, 10_000, 10**6, 10**7])
    rows = slowdown_rows_by_size(sizes, numpy.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert [row["sizes"] for row in rows] == [
        *("below 10 kB", "10-100 kB", "1-10 MB", "10 MB and more", "all")
    ]
    assert [row["flows"] for row in rows] == [2, 1, 1, 1, 5]
    assert rows[-1]["mean"] == rows[-1]["median"] == 3.0
    assert 4.9 < rows[-1]["p99"] < 5.0


def test_a_group_is_done_when_its_last_flow_is() -> None:
    group = numpy.array([1, 0, 1, 0])
    ends = numpy.array([5.0, 2.0, 9.0, numpy.nan])
    took = group_completion_s(group, ends, numpy.array([1.0, 0.0, 2.0, 0.0]))
    assert took.tolist() == pytest.approx([numpy.nan, 8.0], nan_ok=True)
