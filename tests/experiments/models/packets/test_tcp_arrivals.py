"""Flows that arrive, by TCP: beside the same flows as fluids."""

from __future__ import annotations

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.arrivals.simulated_arrivals import goodput_bps, simulate
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.packets.tcp_arrivals import simulate_by_tcp
from pillarbox.experiments.models.workloads.arrivals import Arrivals, Window, poisson_arrivals
from pillarbox.experiments.models.workloads.workload import Workload

TREE, RATE_BPS = topos.parse("tree,2,1"), 20e6
TCP = TcpParameters(RATE_BPS, 100 * 1514)


def test_flows_that_never_meet_are_not_slowed_down() -> None:
    columns = ([0.0, 5.0, 9.0], [0, 1, 2], [15, 4, 9], [1000, 60_000, 2_000_000])
    arrivals, bcube = Arrivals(*map(numpy.array, columns)), topos.parse("bcube,4,1")
    tcp = TcpParameters(RATE_BPS, 100 * 1514, header=20)
    fluid = simulate(bcube, "bcube", arrivals, Window(0.0, 10.0), goodput_bps(bcube, "", RATE_BPS))
    found = simulate_by_tcp(bcube, fluid, "bcube", tcp, 1)
    assert (found.slowdown > 0.99).all()
    assert (found.slowdown < [1.6, 1.15, 1.03]).all()  # servers take some time to send a packet
    assert found.loads.busiest == pytest.approx(fluid.loads.busiest, rel=0.02)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_cable_is_about_processor_sharing(load: float) -> None:
    """1 / (1 - load), but for what TCP needs to find its share (see `analysis.arrivals`)."""
    cable_bps = goodput_bps(TREE, "", RATE_BPS)
    workload = Workload(
        "one-to-one",
        arrivals="poisson",
        load=load,
        sizes="50000",
        duration_s=200.0,
        options={"flows": 1},
    )
    arrivals = poisson_arrivals(TREE, workload, 1, cable_bps)
    fluid = simulate(TREE, "", arrivals, Window(10.0, 190.0), cable_bps)
    found = simulate_by_tcp(TREE, fluid, "", TCP, 1)
    mean = fluid.slowdown[fluid.counts].mean()
    assert found.slowdown[found.counts].mean() == pytest.approx(mean, rel=0.05)
