"""Queues that mark packets, and the congestion controls at one bottleneck, packet by packet."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import link_count
from pillarbox.experiments.models.packets.congestion import CONTROLS
from pillarbox.experiments.models.packets.simulated_tcp import (
    TcpParameters,
    TcpSimulationResults,
    simulate_tcp_flows,
)
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.topos.base.errors import PillarboxError

RATE_BPS, FRAME, QUEUE, MARKED_FROM = 100e6, 1514, 100, 1 / 5
LASTS_S, WARM_UP_S = 4.0, 1.0
NETWORK = topos.parse("tree,9,1")


@cache
def incast(congestion: str, marked_from: float, flows: int = 8) -> TcpSimulationResults:
    """Simulate flows of several servers to one; sample all queues every 10 ms."""
    tcp = TcpParameters(
        RATE_BPS, QUEUE * FRAME, congestion=congestion, marked_from=marked_from, delay_s=50e-6
    )
    ends = numpy.arange(1, flows + 1), numpy.zeros(flows, numpy.int64)
    paths = routes(NETWORK, "", *ends), routes(NETWORK, "", *ends[::-1])
    volumes = numpy.full(flows, int(RATE_BPS * LASTS_S / 8))
    moments = numpy.arange(WARM_UP_S, LASTS_S, 0.01)
    return simulate_tcp_flows(
        NETWORK,
        *paths,
        numpy.linspace(0, 1e-3, flows),
        volumes,
        tcp,
        moments,
        until_s=LASTS_S,
        sampled=numpy.arange(link_count(NETWORK)),
    )


def queue_packets(found: TcpSimulationResults) -> numpy.ndarray:
    """Return the samples of the longest queue, in full packets."""
    longest = int(found.queued_bytes.mean(axis=0).argmax())
    samples: numpy.ndarray = found.queued_bytes[:, longest] / FRAME
    return samples


def fairness(found: TcpSimulationResults) -> float:
    shares = found.arrived_bytes.astype(float)
    return float(shares.sum() ** 2 / (len(shares) * (shares**2).sum()))


def goodput_bps(found: TcpSimulationResults) -> float:
    return float(found.arrived_bytes.sum() * 8 / LASTS_S)


def test_the_queue_of_dctcp_stays_near_its_threshold() -> None:
    # Alizadeh et al. 2010, section 3.3: at most K + N packets, and never empty
    found = incast("dctcp", MARKED_FROM)
    samples = queue_packets(found)
    assert found.drops.sum() < 8  # in slow start, if at all
    assert 0.5 * 20 < numpy.median(samples) < 20 + 8
    assert numpy.quantile(samples, 0.99) < 20 + 2 * 8
    assert fairness(found) > 0.95
    droptail = incast("cubic", 0.0)
    assert numpy.median(queue_packets(droptail)) > 2 * numpy.median(samples)
    assert goodput_bps(found) > 0.98 * goodput_bps(droptail)


def test_marks_replace_drops() -> None:
    for congestion in ("reno", "cubic"):
        dropped, marked = incast(congestion, 0.0), incast(congestion, MARKED_FROM)
        assert dropped.drops.sum() > 0
        assert marked.drops.sum() == 0 == marked.repeats.sum()
        assert queue_packets(marked).max() < queue_packets(dropped).max()
        assert goodput_bps(marked) > 0.9 * goodput_bps(dropped)


def test_a_control_by_delay_needs_no_marks() -> None:
    samples = queue_packets(incast("delay", 0.0))
    target = 4e-3 * RATE_BPS / 8 / FRAME  # 4 ms of queueing are 33 packets
    assert 0.4 * target < numpy.median(samples) < 1.3 * target
    assert incast("delay", 0.0).drops.sum() < 16  # in slow start


@pytest.mark.parametrize("congestion", CONTROLS)
@pytest.mark.parametrize("marked_from", [0.0, MARKED_FROM])
def test_every_control_fills_the_port_and_no_queue_is_longer_than_it_may(
    congestion: str, marked_from: float
) -> None:
    found = incast(congestion, marked_from)
    assert goodput_bps(found) > 0.9 * RATE_BPS * 1448 / FRAME
    assert 0 < found.queued_bytes.max() <= QUEUE * FRAME * (1 + 1e-9)
    assert found.queued_bytes.shape == (300, link_count(NETWORK))


def test_flows_alone_leave_queues_that_are_not_sampled() -> None:
    tcp = TcpParameters(RATE_BPS, QUEUE * FRAME)
    ends = numpy.array([1]), numpy.array([0])
    paths = routes(NETWORK, "", *ends), routes(NETWORK, "", *ends[::-1])
    volumes = numpy.array([1448])
    found = simulate_tcp_flows(NETWORK, *paths, numpy.zeros(1), volumes, tcp, numpy.arange(3.0))
    assert found.queued_bytes.shape == (3, 0)


@pytest.mark.parametrize(("marked_from", "fits"), [(0.0, True), (0.99, True), (1.0, False)])
def test_a_threshold_is_within_the_queue(marked_from: float, fits: bool) -> None:
    tcp = TcpParameters(RATE_BPS, QUEUE * FRAME)
    if fits:
        assert replace(tcp, marked_from=marked_from).marked_from == marked_from
    else:
        with pytest.raises(PillarboxError, match="fraction of a queue's length"):
            replace(tcp, marked_from=marked_from)
