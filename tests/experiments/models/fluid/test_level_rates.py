"""Models of networks whose levels of cables have rates of their own: figures by hand."""

from __future__ import annotations

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.arrivals.simulated_arrivals import simulate
from pillarbox.experiments.models.comparison.bisection import (
    bisection,
    bisection_by_integer_program,
)
from pillarbox.experiments.models.comparison.load_capacity import workload_capacity_bps
from pillarbox.experiments.models.comparison.prices import LIAO, network_bill
from pillarbox.experiments.models.comparison.throughput_gap import compute_throughput_gap
from pillarbox.experiments.models.fluid.ideal import (
    bound_bps,
    header_efficiency,
    ideal,
    static_paths,
)
from pillarbox.experiments.models.fluid.path_bound import PathBound
from pillarbox.experiments.models.packets.bulk import bulk_flows
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.simulator.adapting import adaptive_flows
from pillarbox.experiments.models.workloads.arrivals import Arrivals, Window
from pillarbox.experiments.models.workloads.collectives.bound import all_reduce_share
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.experiments.models.workloads.workload import Workload

# Level 0 joins 0.0 with 0.1 and 1.0 with 1.1; level 1 joins 0.0 with 1.0 and 0.1 with 1.1.
BCUBE = topos.parse("bcube,2,1,rates=9:1")
RATE_BPS = 10e6
GOODPUT_BPS = RATE_BPS * header_efficiency(20)  # of BCubeRouting over a cable of relative rate 1
PAIRS = [(0, 1), (1, 3), (0, 2)]


def flows_of(pairs: list[tuple[int, int]], volume_bytes: int = 1_000_000) -> list[Flow]:
    return [Flow(number, *pair, volume_bytes) for number, pair in enumerate(pairs)]


def test_ideal_rates_are_those_of_each_flows_level() -> None:
    found = ideal(BCUBE, "bcube", flows_of(PAIRS), RATE_BPS, segments_per_ack=1e9)
    assert found.goodput_bps / GOODPUT_BPS == pytest.approx([9, 1, 1])
    assert found.end_s[0] == pytest.approx(found.end_s[1] / 9)


def test_a_flow_over_both_levels_has_the_slow_ones_rate_and_leaves_the_rest() -> None:
    # 0 to 3 corrects digit 1 first: 0.0, 1.0, 1.1; its hop in level 0 is shared with 2 to 3.
    found = ideal(BCUBE, "bcube", flows_of([(0, 3), (2, 3)]), RATE_BPS, segments_per_ack=1e9)
    assert found.goodput_bps / GOODPUT_BPS == pytest.approx([1, 8])


def test_the_bound_of_any_routing_uses_both_levels() -> None:
    # From 0.0 to 1.0: level 1 directly, and level 1 of 0.1 over level 0.
    bound = bound_bps(BCUBE, "bcube", flows_of([(0, 2)]), RATE_BPS)
    assert bound is not None
    assert bound / GOODPUT_BPS == pytest.approx(2)


def test_the_bound_over_known_paths_has_the_rate_of_each_cable() -> None:
    bound = PathBound(BCUBE, "bcube", static_paths(BCUBE, "bcube", PAIRS), RATE_BPS)
    rates = bound.rates_bps(numpy.array([8e6, 1e6, 1e6]))
    assert rates / GOODPUT_BPS == pytest.approx([9, 1, 1])
    # The cable of the second flow is busy longest, not that with most bits.
    assert bound.least_s(numpy.array([4e6, 1e6, 0])) == pytest.approx(1e6 / GOODPUT_BPS)


@pytest.mark.parametrize("delays", ["", ",delays=1:5"])
def test_packets_and_fluid_agree(delays: str) -> None:
    network = topos.parse(f"{BCUBE.spec}{delays}")
    tcp = TcpParameters(RATE_BPS, 151_400, header=20, delay_s=1e-4)
    flows = bulk_flows(network, "bcube", PAIRS, 2_000_000, tcp, seed=1)
    fluid, packets = flows.fluid().end_s, flows.packets().end_s
    assert fluid == pytest.approx(2_000_000 * 8 / (GOODPUT_BPS * numpy.array([9, 1, 1])), rel=0.01)
    assert packets == pytest.approx(fluid, rel=0.05)


def test_packets_take_longer_over_a_level_with_longer_delays() -> None:
    def ends_s(spec: str) -> numpy.ndarray:
        tcp = TcpParameters(RATE_BPS, 151_400, header=20, delay_s=0.01)
        flows = bulk_flows(topos.parse(spec), "bcube", [(0, 1), (0, 2)], 1000, tcp, seed=1)
        return flows.packets().end_s

    # One segment over two cables, each delayed by 10 ms, or by 50 ms in level 1.
    added_s = ends_s("bcube,2,1,delays=1:5") - ends_s("bcube,2,1")
    assert added_s == pytest.approx([0.0, 0.08], abs=1e-3)


def test_queues_of_levels_may_differ() -> None:
    # A queue of two frames loses packets of two flows that share it; one of 100 frames does not.
    pairs = [(0, 2), (1, 2)]
    drops = []
    for queues in ((200_000.0, 200_000.0), (3_100.0, 200_000.0)):
        tcp = TcpParameters(RATE_BPS, 200_000, header=20, levels_queue_bytes=queues)
        flows = bulk_flows(topos.parse("bcube,3,1,rates=1:9"), "bcube", pairs, 300_000, tcp, seed=1)
        drops.append(flows.packets().drops.sum())
    assert drops[0] == 0 < drops[1]


def test_slowdown_is_relative_to_the_flows_own_slowest_cable() -> None:
    columns = (numpy.array(column) for column in ([0.0, 0.0], [0, 1], [1, 3], [9000, 1000]))
    found = simulate(BCUBE, "bcube", Arrivals(*columns), Window(0.0, 1.0), 8000.0)
    assert found.course.end_s.tolist() == [1.0, 1.0]
    assert found.slowdown.tolist() == [1.0, 1.0]
    # 36 kbyte/s of links with 2 x (4 x 9 + 4 x 1) x 1 kbyte/s.
    assert found.loads.offered == pytest.approx(2 * 10_000 / 80_000)
    assert found.loads.busiest == pytest.approx(1.0)


def test_loads_refer_to_the_rates_of_ports_and_of_the_busiest_link() -> None:
    def capacity(load_of: str) -> float:
        workload = Workload(
            arrivals="poisson", load=0.5, duration_s=1.0, load_of=load_of, pattern="all-to-all"
        )
        return workload_capacity_bps(BCUBE, workload, 1, "bcube", RATE_BPS, 1500) / GOODPUT_BPS

    assert capacity("servers") == pytest.approx(4 * (9 + 1))
    # Each link of level 1 carries 2 of the 12 flows.
    assert capacity("busiest") == pytest.approx(12 / 2)
    # Two cables of level 1 in each direction, crossed by 4 of the 12 flows.
    assert capacity("bisection") == pytest.approx(2 * 12 / 4)


def test_the_bisection_counts_cables_by_their_rate() -> None:
    assert bisection(topos.parse("bcube,2,1"), 5.0).exact == 2
    assert bisection(BCUBE, 5.0).exact == 2  # cut across level 1
    assert bisection(topos.parse("bcube,2,1,rates=1:9"), 5.0).exact == 2
    assert bisection(topos.parse("bcube,2,1,rates=9:9"), 5.0).exact == 18
    assert bisection_by_integer_program(topos.parse("bcube,2,1,rates=9:3"), 1, 40, 10.0) == (6, 6)


def test_throughput_of_routings_and_its_optimum_use_the_rates() -> None:
    every = [(a, b) for a in range(4) for b in range(4) if a != b]
    found = compute_throughput_gap(BCUBE, every, ["bcube"])
    # Level 1 is full when each flow has 1/2: 12 flows of 0.5.
    assert found.reached[0].throughput == pytest.approx(6)
    assert found.best_throughput is not None
    assert found.best_throughput.at_most == pytest.approx(6, rel=1e-3)
    limits = {limit.name: limit for limit in found.limits}
    assert limits["ports"].throughput == pytest.approx(12 / 3 * 10)
    assert limits["bisection"].throughput == pytest.approx(6)
    assert limits["links"].why.startswith("16 links of rate 80")


def test_collectives_use_the_total_rate_of_a_servers_ports() -> None:
    plain = all_reduce_share(topos.parse("bcube,2,1"), range(4))
    assert all_reduce_share(BCUBE, range(4)) == pytest.approx(plain * 2 / 10)


def test_bsr_moves_flows_off_a_slow_level() -> None:
    # From 0.0 to 1.1 both paths cross both levels: two flows use level 1 of one or of two servers.
    ends = numpy.array([0, 0]), numpy.array([3, 3])
    flows = adaptive_flows(BCUBE, "bsr", *ends, numpy.random.default_rng(1))
    for _ in range(4):
        flows.probe()
    assert len({int(path) for path in flows.path}) == 2


def test_prices_of_levels_multiply_cables_and_their_ports() -> None:
    plain = network_bill(topos.parse("bcube,4,1"), LIAO)
    dear = network_bill(topos.parse("bcube,4,1,prices=1:3"), LIAO)
    assert dear.cables_usd == pytest.approx(2 * plain.cables_usd)
    assert plain.switches_usd is not None
    assert dear.switches_usd == pytest.approx(2 * plain.switches_usd)
    assert dear.switches_w == plain.switches_w
    assert network_bill(topos.parse("bcube,4,1,rates=9:1"), LIAO) == plain
