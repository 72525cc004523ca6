"""TCP simulation of arriving flows, on the same flows and paths as the fluid simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from experiments.analysis.arrivals.fluid_events import Course
from experiments.analysis.arrivals.simulated_arrivals import Simulated, drawn_paths, loads_of
from experiments.analysis.fluid.ideal import header_efficiency
from experiments.analysis.fluid.unloaded_time import alone_s
from experiments.analysis.packets.simulated_tcp import Tcp, packets
from experiments.analysis.simulator.paths import routes
from topos.base.topology import Topology

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[numpy.float64]


def simulate_by_tcp(
    topology: Topology, fluid: Simulated, routing: str, tcp: Tcp, seed: int
) -> Simulated:
    """Return the simulation of arriving flows by TCP; ACKs take paths of the same routing.

    The slowdown's reference is a flow alone in the network: all its frames, one after the other, on
    the slowest cable, and its largest frame once on every other cable.
    """
    arrivals, window = fluid.arrivals, fluid.window
    moments = numpy.array([window.from_s, window.until_s])
    flows = arrivals.start_s, arrivals.volume_bytes
    numbers = drawn_paths(topology, routing, arrivals.destination, seed)
    back = routes(topology, routing, arrivals.destination, arrivals.source, numbers)
    found = packets(topology, fluid.routes, back, *flows, tcp, moments, seed)
    course = Course(
        found.begin_s,
        found.end_s,
        fluid.course.path,
        found.delivered_bits,
        found.active,
        found.events,
        found.most_active,
    )
    slowdown = (course.end_s - arrivals.start_s) / _transfer_alone_s(fluid, tcp)
    done = Simulated(arrivals, window, fluid.routes, course, slowdown, fluid.loads)
    cable_bps = tcp.rate_bps * header_efficiency(tcp.header, tcp.mtu)
    return done._replace(loads=loads_of(topology, done, cable_bps))


def _transfer_alone_s(fluid: Simulated, tcp: Tcp) -> Floats:
    volume, cables = fluid.arrivals.volume_bytes, numpy.diff(fluid.routes.starts)
    how = (tcp.rate_bps, tcp.mtu, tcp.header)
    first = alone_s(numpy.minimum(volume, tcp.segment_bytes), numpy.zeros(1), *how)
    passed_on: Floats = numpy.maximum(cables - 1, 0) * first
    return alone_s(volume, cables, *how, tcp.delay_s) + passed_on
