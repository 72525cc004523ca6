"""Slowdowns of many TCP flows, from fluids and simulated regions."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.arrivals.arrival_request import ArrivalRequest
from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    ArrivalSimulation,
    goodput_bps,
    simulate,
)
from pillarbox.experiments.models.fluid.directed_links import cabled_ends, link_count
from pillarbox.experiments.models.fluid.unloaded_time import idle_network_completion_s, idle_paths
from pillarbox.experiments.models.packets import region_samples
from pillarbox.experiments.models.packets.region_samples import (
    RegionSamples,
    TcpFlows,
    random_region,
    simulate_region,
    simulate_regions,
)
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.packets.tail_estimates import drawn_excess_s, estimate_tails
from pillarbox.experiments.models.packets.tcp_arrivals import simulate_by_tcp
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.experiments.models.workloads.arrivals import Arrivals, Window
from pillarbox.topos.base.errors import PillarboxError

BCUBE, RATE_BPS = topos.parse("bcube,2,2"), 1e9
TCP = TcpParameters(RATE_BPS, 100 * 1550, header=36)


def fluid_simulation(load: float, count: int = 400, sizes: str = "100000") -> ArrivalSimulation:
    cable_bps = goodput_bps(BCUBE, "", RATE_BPS)
    request = ArrivalRequest(BCUBE, "", "all-to-all", sizes, 1, cable_bps)
    return simulate(BCUBE, "", *request.drawn(load, "cables", count), cable_bps)


def flows_of(fluid: ArrivalSimulation) -> TcpFlows:
    arrivals = fluid.arrivals
    back = routes(BCUBE, "", arrivals.destination, arrivals.source)
    everything = Window(0.0, float("inf"))
    return TcpFlows(BCUBE, arrivals, fluid.routes, back, TCP, everything)


def test_enough_events_give_the_packet_simulation() -> None:
    fluid = fluid_simulation(0.5)
    found = estimate_tails(BCUBE, fluid, "", TCP, 1, events=1e9)
    numpy.testing.assert_array_equal(
        found.simulation.slowdown, simulate_by_tcp(BCUBE, fluid, "", TCP, 1).slowdown
    )


def test_region_of_all_links_is_the_packet_simulation() -> None:
    fluid = fluid_simulation(0.5)
    samples = simulate_region(flows_of(fluid), numpy.ones(link_count(BCUBE), bool), 1)
    volumes, paths = fluid.arrivals.volume_bytes, idle_paths(BCUBE, fluid.routes)
    ideal_s = idle_network_completion_s(volumes, paths, RATE_BPS, 1500, 36)
    alone_s = 8.0 * volumes / goodput_bps(BCUBE, "", RATE_BPS)
    fluid_s = fluid.course.end_s - fluid.arrivals.start_s
    assert samples.fluid_slowdown == pytest.approx(fluid.slowdown)
    by_tcp = simulate_by_tcp(BCUBE, fluid, "", TCP, 1)
    took_s = ideal_s + fluid_s - alone_s + samples.excess_s
    assert took_s / ideal_s == pytest.approx(by_tcp.slowdown)


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    fluid = fluid_simulation(0.5)
    how = {"events": 60_000, "region_links": 12}
    found = [
        estimate_tails(BCUBE, fluid, "", TCP, seed, workers=workers, **how).simulation.slowdown
        for seed, workers in ((1, 1), (1, 3), (2, 1))
    ]
    numpy.testing.assert_array_equal(found[0], found[1])
    assert not numpy.array_equal(found[0], found[2])


def test_tail_grows_with_the_load() -> None:
    tails = []
    for load in (0.2, 0.5, 0.8):
        fluid = fluid_simulation(load, 2000)
        found = estimate_tails(BCUBE, fluid, "", TCP, 1, events=300_000, region_links=16)
        assert (found.simulation.slowdown >= 1).all()
        tails.append(numpy.quantile(found.simulation.slowdown, 0.99))
    assert 1 < tails[0] < tails[1] < tails[2]


def test_flow_alone_has_no_excess_but_sending_delays() -> None:
    ends = numpy.arange(7), numpy.arange(7)[::-1] + (numpy.arange(7) == 3)
    arrivals = Arrivals(numpy.arange(7.0), *ends, numpy.full(7, 50_000))
    cable_bps = goodput_bps(BCUBE, "", RATE_BPS)
    flows = flows_of(simulate(BCUBE, "", arrivals, Window(0.0, 9.0), cable_bps))
    for number in range(5):
        inside = random_region(BCUBE, 6, numpy.random.default_rng(number))
        alone = simulate_region(flows, inside, 1)
        assert alone.limiting.tolist() == [0] * len(alone.limiting)
        assert (numpy.abs(alone.excess_s) < 5 * 1550 * 8 / RATE_BPS).all()


def test_region_that_no_flow_passes_has_no_samples() -> None:
    ends = numpy.array([0]), numpy.array([1])
    arrivals = Arrivals(numpy.zeros(1), *ends, numpy.full(1, 50_000))
    cable_bps = goodput_bps(BCUBE, "", RATE_BPS)
    flows = flows_of(simulate(BCUBE, "", arrivals, Window(0.0, 9.0), cable_bps))
    inside = numpy.ones(link_count(BCUBE), bool)
    inside[flows.routes.links] = False
    assert not len(simulate_region(flows, inside, 1).excess_s)


def test_region_is_connected_and_bounded() -> None:
    network = topos.parse("dcell,4,1")
    links, near, far = cabled_ends(network)
    for seed in range(5):
        inside = random_region(network, 20, numpy.random.default_rng(seed))
        assert 1 <= inside.sum() <= 20
        members = set(near[inside[links]].tolist())
        reached = {min(members)}
        for _ in members:
            reached |= {
                b for a, b in zip(near.tolist(), far.tolist(), strict=True)
                if a in reached and b in members
            }  # fmt: skip
        assert reached == members
    whole = random_region(network, 10_000, numpy.random.default_rng(1))
    assert whole.sum() == len(links)


def test_region_has_the_links_that_lead_into_it_and_the_sources_port() -> None:
    path = region_samples.Routes(
        numpy.array([0, 5, 6, 6, 8]), numpy.array([0, 1, 2, 3, 4, 3, 5, 6])
    )
    inside = numpy.isin(numpy.arange(8), [3])
    expected = {False: [[0, 2, 3], [3], [], []], True: [[0, 2, 3], [3], [], [5]]}
    for is_always_kept, links in expected.items():
        kept = region_samples._inside(path, inside, is_always_kept=is_always_kept)
        ends = zip(kept.starts[:-1], kept.starts[1:], strict=True)
        assert [kept.links[a:b].tolist() for a, b in ends] == links


def test_similar_samples_have_close_sizes_and_fluid_slowdowns() -> None:
    random = numpy.random.default_rng(1)
    volumes = numpy.repeat([1000, 1_000_000], 500)
    slowdowns = numpy.tile(numpy.linspace(1, 10, 500), 2)
    samples = RegionSamples(volumes, numpy.zeros(1000, int), slowdowns, volumes * slowdowns, 0)
    wanted = numpy.array([1.0, 5.0, 10.0] * 2)
    sizes = numpy.repeat([900, 1_100_000], 3)
    found = drawn_excess_s(samples, sizes, numpy.zeros(6, int), wanted, random)
    assert found == pytest.approx(numpy.repeat([1000, 1_000_000], 3) * wanted, rel=0.2)


def test_same_regions_are_simulated_alike_whatever_their_order() -> None:
    flows = flows_of(fluid_simulation(0.5))
    regions = [random_region(BCUBE, 8, numpy.random.default_rng(seed)) for seed in (1, 2)]
    one, two = simulate_regions(flows, regions, 1, 2)
    again = simulate_region(flows, regions[1], 2)
    numpy.testing.assert_array_equal(two.excess_s, again.excess_s)
    assert one.events != two.events


@pytest.mark.parametrize(
    ("change", "words"),
    [({"subflows": 2}, "Multipath TCP"), ({"relay_s": 1e-5}, "--relay-us")],
)
def test_what_regions_cannot_do_is_refused(change: dict[str, float], words: str) -> None:
    with pytest.raises(PillarboxError, match=words):
        estimate_tails(BCUBE, fluid_simulation(0.5), "", replace(TCP, **change), 1)
