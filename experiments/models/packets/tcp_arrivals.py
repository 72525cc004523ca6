"""TCP simulation of arriving flows, on the same flows and paths as the fluid simulation."""

from __future__ import annotations

import numpy

from pillarbox.experiments.models.arrivals.fluid_events import FluidSimulationResults
from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    ArrivalSimulation,
    random_path_numbers,
    window_loads,
)
from pillarbox.experiments.models.fluid.ideal import header_efficiency
from pillarbox.experiments.models.fluid.unloaded_time import idle_network_completion_s, idle_paths
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters, simulate_tcp_flows
from pillarbox.experiments.models.packets.subflow_paths import subflow_paths
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.topos.base.topology import Topology


def simulate_by_tcp(
    topology: Topology, fluid: ArrivalSimulation, routing: str, tcp: TcpParameters, seed: int
) -> ArrivalSimulation:
    """Return the simulation of arriving flows by TCP; ACKs take paths of the same routing.

    If the TCP parameters have subflows, it is by Multipath TCP, on the paths of `subflow_paths`.

    The slowdown's reference is that of live flows: the flow alone in an idle network, on one path.
    """
    arrivals, window = fluid.arrivals, fluid.window
    moments = numpy.array([window.from_s, window.until_s])
    flows = arrivals.start_s, arrivals.volume_bytes
    if tcp.subflows:
        pairs = zip(arrivals.source.tolist(), arrivals.destination.tolist(), strict=True)
        forth, back, subflows = subflow_paths(topology, pairs, tcp.subflows)
    else:
        numbers = random_path_numbers(topology, routing, arrivals.destination, seed)
        back = routes(topology, routing, arrivals.destination, arrivals.source, numbers)
        forth, subflows = fluid.routes, None
    found = simulate_tcp_flows(topology, forth, back, *flows, tcp, moments, seed, subflows=subflows)
    course = FluidSimulationResults(
        found.begin_s,
        found.end_s,
        fluid.course.path,
        found.delivered_bits,
        found.active,
        found.events,
        found.most_active,
    )
    paths, how = idle_paths(topology, fluid.routes), (tcp.rate_bps, tcp.mtu, tcp.header)
    alone_s = idle_network_completion_s(arrivals.volume_bytes, paths, *how, tcp.delay_s)
    slowdown = (course.end_s - arrivals.start_s) / alone_s
    done = ArrivalSimulation(arrivals, window, fluid.routes, course, slowdown, fluid.loads)
    cable_bps = tcp.rate_bps * header_efficiency(tcp.header, tcp.mtu)
    return done._replace(loads=window_loads(topology, done, cable_bps))
