"""Slowdowns of many TCP flows, from fluids and packet simulations of a smaller network."""

from __future__ import annotations

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.arrivals.arrival_request import ArrivalRequest
from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    ArrivalSimulation,
    goodput_bps,
    simulate,
)
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.packets.tail_estimates import (
    FlowSamples,
    drawn_excess_s,
    estimate_tails,
    flow_samples,
    simulate_samples,
)
from pillarbox.experiments.models.packets.tcp_arrivals import simulate_by_tcp
from pillarbox.experiments.models.workloads.arrivals import Arrivals, Window
from pillarbox.topos.base.errors import PillarboxError

BCUBE, SMALLER, RATE_BPS = topos.parse("bcube,3,2"), topos.parse("bcube,2,2"), 1e9
LIMITS = {"most_samples": 500, "most_events": 1e6}
TCP = TcpParameters(RATE_BPS, 100 * 1550, header=36)


def request_of(network: topos.Topology, seed: int = 1) -> ArrivalRequest:
    cable_bps = goodput_bps(network, "", RATE_BPS)
    return ArrivalRequest(network, "", "all-to-all", "100000", seed, cable_bps)


def fluid_simulation(load: float, count: int = 400) -> ArrivalSimulation:
    request = request_of(BCUBE)
    flows = request.drawn(load, count)
    return simulate(BCUBE, "", *flows, request.cable_bps, records_limits=True)


def test_samples_of_the_same_flows_give_the_distribution_of_the_packet_simulation() -> None:
    fluid = fluid_simulation(0.5, 2000)
    samples = flow_samples(BCUBE, fluid, "", TCP, 1)
    found = estimate_tails(BCUBE, fluid, TCP, samples, 1)
    by_tcp = simulate_by_tcp(BCUBE, fluid, "", TCP, 1)
    for share in (0.5, 0.9, 0.99):
        estimated, simulated = (
            numpy.quantile(one.slowdown[one.counts], share) for one in (found, by_tcp)
        )
        assert estimated == pytest.approx(simulated, rel=0.1), share


def test_excess_is_what_packets_add_to_each_flow() -> None:
    fluid = fluid_simulation(0.5)
    samples = flow_samples(BCUBE, fluid, "", TCP, 1)
    by_tcp = simulate_by_tcp(BCUBE, fluid, "", TCP, 1)
    without = FlowSamples(*(column[:1] for column in samples[:4]), 1, 0)
    base = estimate_tails(BCUBE, fluid, TCP, without._replace(excess_s=numpy.zeros(1)), 1)
    added_s = by_tcp.course.end_s - base.course.end_s
    assert added_s[fluid.counts] == pytest.approx(samples.excess_s, abs=1e-12)


def test_tail_grows_with_the_load() -> None:
    tails = []
    for load in (0.2, 0.5, 0.8):
        fluid = fluid_simulation(load, 2000)
        samples = simulate_samples(request_of(SMALLER), load, 500, TCP, **LIMITS)
        found = estimate_tails(BCUBE, fluid, TCP, samples, 1)
        assert (found.slowdown >= 1).all()
        tails.append(numpy.quantile(found.slowdown, 0.99))
    assert 1 < tails[0] < tails[1] < tails[2]


def test_flow_alone_has_no_excess_but_sending_delays() -> None:
    ends = numpy.arange(7), numpy.arange(7)[::-1] + (numpy.arange(7) == 3)
    arrivals = Arrivals(numpy.arange(7.0), *ends, numpy.full(7, 50_000))
    cable_bps = goodput_bps(BCUBE, "", RATE_BPS)
    fluid = simulate(BCUBE, "", arrivals, Window(0.0, 9.0), cable_bps, records_limits=True)
    alone = flow_samples(BCUBE, fluid, "", TCP, 1)
    assert alone.limiting.tolist() == [0] * 7
    assert (numpy.abs(alone.excess_s) < 5 * 1550 * 8 / RATE_BPS).all()


def test_flow_without_a_path_has_no_estimate() -> None:
    fluid = fluid_simulation(0.5)
    samples = flow_samples(BCUBE, fluid, "", TCP, 1)
    lengths = numpy.diff(fluid.routes.starts)
    lost = fluid._replace(
        routes=fluid.routes._replace(
            starts=numpy.concatenate([[0], fluid.routes.starts[1:] - lengths[0]]),
            links=fluid.routes.links[lengths[0] :],
        ),
        course=fluid.course._replace(limits=fluid.course.limits[lengths[0] :]),
    )
    found = estimate_tails(BCUBE, lost, TCP, samples, 1)
    assert numpy.isnan(found.slowdown[0]) and (found.slowdown[1:] >= 1).all()


def samples_with(samples: int, events: float) -> FlowSamples:
    limits = {"most_samples": samples, "most_events": events}
    return simulate_samples(request_of(SMALLER), 0.5, 400, TCP, **limits)


def test_simulations_are_repeated_with_other_flows_until_samples_or_events_suffice() -> None:
    once = samples_with(1, 1e9)
    count = len(once.excess_s)
    assert once.simulations == 1 and count > 200
    assert samples_with(count, 1e9).simulations == 1
    several = samples_with(10**6, 4.5 * once.events)
    assert several.simulations == 4 and several.events <= 4.5 * once.events
    assert several.excess_s[:count].tolist() == once.excess_s.tolist()
    assert len({part.sum() for part in numpy.array_split(several.excess_s, 4)}) == 4
    assert samples_with(count + 1, 1e9).simulations == 2


def test_more_events_than_allowed_are_refused_before_they_are_simulated() -> None:
    with pytest.raises(PillarboxError, match="choose a smaller network, or allow more events"):
        samples_with(1, 1e4)


def test_similar_samples_have_close_sizes_and_fluid_slowdowns() -> None:
    random = numpy.random.default_rng(1)
    volumes = numpy.repeat([1000, 1_000_000], 500)
    slowdowns = numpy.tile(numpy.linspace(1, 10, 500), 2)
    samples = FlowSamples(volumes, numpy.zeros(1000, int), slowdowns, volumes * slowdowns, 1, 0)
    wanted = numpy.array([1.0, 5.0, 10.0] * 2)
    sizes = numpy.repeat([900, 1_100_000], 3)
    found = drawn_excess_s(samples, sizes, numpy.zeros(6, int), wanted, random)
    assert found == pytest.approx(numpy.repeat([1000, 1_000_000], 3) * wanted, rel=0.4)


def test_each_of_many_equal_flows_is_drawn() -> None:
    zeros = numpy.zeros(1000, int)
    equal = zeros + 1000, zeros, numpy.ones(1000)
    samples = FlowSamples(*equal, numpy.arange(1000.0), 1, 0)
    found = drawn_excess_s(samples, *equal, numpy.random.default_rng(1))
    assert len(set(found.tolist())) > 500


def test_other_flows_have_the_load_of_the_same_capacity() -> None:
    request = request_of(SMALLER)
    own, other = request.drawn(0.5, 400), request.drawn(0.5, 400, 2)
    assert own[1] == other[1]
    assert own[0].start_s[0] != other[0].start_s[0]
    again = request.drawn(0.5, 400, request.seed)
    assert again[0].start_s.tolist() == own[0].start_s.tolist()


def test_the_smaller_network_has_the_same_load_for_the_same_time() -> None:
    large, small = request_of(BCUBE), request_of(SMALLER)
    count = small.count_in_time_of(large, 5000)
    of_large, of_small = large.drawn(0.5, 5000), small.drawn(0.5, count)
    assert of_small[1].lasting_s == pytest.approx(of_large[1].lasting_s, rel=0.01)
    assert small.count_in_time_of(large, 100) == small.least_count()
    small.drawn(0.5, small.least_count())
    with pytest.raises(PillarboxError, match=f"--count {small.least_count()}"):
        small.drawn(0.5, small.least_count() - 1)
