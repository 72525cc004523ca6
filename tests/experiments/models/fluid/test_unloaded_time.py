"""What a flow takes alone, and what a load is a share of."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.comparison.load_capacity import workload_capacity_bps
from pillarbox.experiments.models.fluid.ideal import header_efficiency
from pillarbox.experiments.models.fluid.unloaded_time import (
    IdlePaths,
    computed_routes,
    idle_network_completion_s,
    idle_paths,
)
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.topos.base.errors import PillarboxError

volumes = st.integers(1, 10**9)


def equal_cables(count: int) -> IdlePaths:
    """Return a path over cables of one rate and one delay."""
    return IdlePaths(*(numpy.array([value]) for value in (float(count), 1.0, count - 1.0)))


@given(volumes, volumes, st.integers(1, 10), st.sampled_from([1500, 9000]))
def test_more_takes_longer_and_never_less_than_its_bytes(
    one: int, more: int, cables: int, mtu: int
) -> None:
    paths = equal_cables(cables)
    took = idle_network_completion_s([one, one + more], paths, 1e7, mtu, 36, 1e-3)
    assert took[0] < took[1]
    assert took[1] >= (one + more) * 8 / 1e7 + cables * 1e-3
    longer = idle_network_completion_s([one, one + more], equal_cables(cables + 1), 1e7, mtu, 36)
    shorter = idle_network_completion_s([one, one + more], paths, 1e7, mtu, 36)
    frames = numpy.minimum([one, one + more], mtu - 52) + 66 + 36
    assert longer - shorter == pytest.approx(frames * 8 / 1e7)


def test_large_flows_have_the_rate_that_headers_leave() -> None:
    took = float(idle_network_completion_s(1e9, equal_cables(4), 1e8, 9000, 36)[0])
    assert 1e9 * 8 / took == pytest.approx(1e8 * header_efficiency(36, 9000), rel=1e-4)


def test_ideal_is_that_of_hpcc() -> None:
    """base_rtt + total_bytes * 8 / b (Li 2019, third.cc), with one direction and one packet less.

    base_rtt has the transmission time of a packet on every cable, and total_bytes that of the
    first packet again.
    """
    cables, packets, rate_bps, delay_s = 3, 7, 1e8, 2e-6
    frame_s = 1514 * 8 / rate_bps
    base_rtt_s = cables * delay_s + cables * frame_s
    total_s = packets * frame_s
    found = idle_network_completion_s(
        packets * 1448, equal_cables(cables), rate_bps, 1500, 0, delay_s
    )
    assert found[0] == pytest.approx(base_rtt_s + total_s - frame_s)


# To a server of the same switch, and to the farthest.
LONG = {"bcube,4,1": (2, 4), "dcell,4,1": (1, 5), "tree,4,4": (2, 4)}


@pytest.mark.parametrize("spec", LONG)
def test_paths_count_their_cables(spec: str) -> None:
    topology = topos.parse(spec)
    pairs = [(0, server) for server in range(1, topology.servers)]
    found = idle_paths(topology, computed_routes(topology, "shortest", pairs)).delays
    assert (found.min(), found.max()) == LONG[spec]


LOADS = {
    ("tree,4,4", "servers"): 16,
    ("tree,4,4", "busiest"): 5,  # 12 of 15 flows of a rack of 4 leave it by one cable
    ("bcube,4,1", "servers"): 32,
    ("bcube,4,1", "busiest"): 20,  # n (N-1) / (n-1), Guo 2009
    ("fattree,4", "busiest"): 16,
    ("fattree,4", "bisection"): 30,  # 8 cables: 4 x 8 x 15 / 16
}


@pytest.mark.parametrize(("spec", "of"), LOADS)
def test_a_load_is_of_so_many_cables(spec: str, of: str) -> None:
    workload = Workload(arrivals="poisson", load=0.5, duration_s=1.0, load_of=of)
    routing = "bcube" if spec.startswith("bcube") else ""
    found = workload_capacity_bps(topos.parse(spec), workload, 1, routing, 1e6, 1500)
    header = header_efficiency(20 if routing else 0)
    assert found / header / 1e6 == pytest.approx(LOADS[spec, of], rel=0.02)


def test_the_busiest_link_of_a_large_network_is_not_looked_for() -> None:
    workload = Workload(arrivals="poisson", load=0.5, duration_s=1.0, load_of="busiest")
    with pytest.raises(PillarboxError, match="load_of = servers"):
        workload_capacity_bps(topos.parse("bcube,9,2"), workload, 1, "bcube", 1e6, 1500)
