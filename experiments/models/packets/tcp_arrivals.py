"""TCP simulation of arriving flows, on the same flows and paths as the fluid simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from experiments.models.arrays import Floats
from experiments.models.arrivals.fluid_events import FluidSimulationResults
from experiments.models.arrivals.simulated_arrivals import (
    ArrivalSimulation,
    random_path_numbers,
    window_loads,
)
from experiments.models.fluid.directed_links import link_factors, path_minima, path_sums
from experiments.models.fluid.ideal import header_efficiency
from experiments.models.fluid.unloaded_time import idle_network_completion_s
from experiments.models.packets.simulated_tcp import TcpParameters, simulate_tcp_flows
from experiments.models.simulator.paths import routes
from topos.base.topology import Topology

if TYPE_CHECKING:
    pass


def simulate_by_tcp(
    topology: Topology, fluid: ArrivalSimulation, routing: str, tcp: TcpParameters, seed: int
) -> ArrivalSimulation:
    """Return the simulation of arriving flows by TCP; ACKs take paths of the same routing.

    The slowdown's reference is a flow alone in the network: all its frames, one after the other, on
    the slowest cable, and its largest frame once on every other cable.
    """
    arrivals, window = fluid.arrivals, fluid.window
    moments = numpy.array([window.from_s, window.until_s])
    flows = arrivals.start_s, arrivals.volume_bytes
    numbers = random_path_numbers(topology, routing, arrivals.destination, seed)
    back = routes(topology, routing, arrivals.destination, arrivals.source, numbers)
    found = simulate_tcp_flows(topology, fluid.routes, back, *flows, tcp, moments, seed)
    course = FluidSimulationResults(
        found.begin_s,
        found.end_s,
        fluid.course.path,
        found.delivered_bits,
        found.active,
        found.events,
        found.most_active,
    )
    slowdown = (course.end_s - arrivals.start_s) / _transfer_alone_s(topology, fluid, tcp)
    done = ArrivalSimulation(arrivals, window, fluid.routes, course, slowdown, fluid.loads)
    cable_bps = tcp.rate_bps * header_efficiency(tcp.header, tcp.mtu)
    return done._replace(loads=window_loads(topology, done, cable_bps))


def _transfer_alone_s(topology: Topology, fluid: ArrivalSimulation, tcp: TcpParameters) -> Floats:
    volume, routes, factors = fluid.arrivals.volume_bytes, fluid.routes, topology.factors
    rates = link_factors(topology, factors.rates)
    slowest, how = path_minima(routes, rates), (tcp.mtu, tcp.header)
    first = idle_network_completion_s(
        numpy.minimum(volume, tcp.segment_bytes), numpy.zeros(1), tcp.rate_bps, *how
    )
    # Number of further cables, each counted by its transmission time of a frame.
    further = numpy.maximum(path_sums(routes, 1 / rates) - 1 / slowest, 0)
    delays = path_sums(routes, link_factors(topology, factors.delays))
    passed_on: Floats = further * first
    rate_bps = tcp.rate_bps * slowest
    return idle_network_completion_s(volume, delays, rate_bps, *how, tcp.delay_s) + passed_on
