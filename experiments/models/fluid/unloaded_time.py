"""Ideal completion time of a flow, alone in the network: the denominator of its slowdown.

A flow of V bytes is split into frames that each deliver up to ``mtu - 52`` bytes and have an
overhead of ``66 + header`` bytes (see `ideal`). On a path of H cables, ::

    on the cable = V + frames x overhead
    ideal = on the cable x 8 / rate of the slowest cable                    bytes over the rate
            + H x delay + first frame x 8 / rate of each other cable        hops

as the field defines it. HPCC's programs (Li 2019, simulation/scratch/third.cc) compute
``standalone_fct = base_rtt + total_bytes * 8 / b``: the bytes include headers, b is the path's
smallest bandwidth, and base_rtt has the delays and a packet's transmission time of every hop; their
results call this the "ideal FCT when the network only has this flow". 1RMA (Singhvi 2020, section
on synthetic workloads, in the manner of Homa) divides by "the best possible latency for an op of
that size on an unloaded network". HPCC counts until the last acknowledgement and therefore the
delays of both directions; here a flow ends with its last byte at the receiver.

A port of a lab is a token bucket, not a serial line: an idle port forwards a burst without waiting
(`pillarbox.experiments.models.port_bursts.burst_bytes`), and frames do not wait at the ports after
the first. So a live flow may beat its ideal, the more the smaller the flow is; the ideal is the
same in a lab, in a simulation and in the papers. Tables and figures mark classes with flows that
fit into the burst.

The time includes no handshake, no slow start and no wait for acknowledgements: with delays of
milliseconds a flow takes longer even in an idle network, and its slowdown is then above 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from numpy.typing import ArrayLike

from pillarbox.experiments.models.arrays import Floats
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    link_factors,
    path_minima,
    path_sums,
    routes_of,
)
from pillarbox.experiments.models.fluid.ideal import ETHERNET_BYTES, TCP_IP_BYTES, static_paths
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology


class IdlePaths(NamedTuple):
    """Paths of flows in an idle network, in units of the network's rate and delay."""

    delays: Floats  # sum over the path's cables
    rates: Floats  # rate of the slowest cable
    others: Floats  # transmission time of a frame on all cables but the slowest one


def idle_paths(topology: Topology, routes: Routes) -> IdlePaths:
    """Return the cables of each flow's path; factors of levels are those of the network.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,4,1,rates=9:2,delays=1:5")
    >>> paths = idle_paths(bcube, computed_routes(bcube, "bcube", [(0, 1), (0, 5)]))
    >>> [column.round(2).tolist() for column in paths]
    [[2.0, 12.0], [9.0, 2.0], [0.11, 0.72]]
    """
    rates = link_factors(topology, topology.factors.rates)
    slowest = path_minima(routes, rates)
    others = numpy.maximum(path_sums(routes, 1 / rates) - 1 / slowest, 0)
    return IdlePaths(
        path_sums(routes, link_factors(topology, topology.factors.delays)), slowest, others
    )


def idle_network_completion_s(
    volume_bytes: ArrayLike,
    paths: IdlePaths,
    rate_bps: float,
    mtu: int,
    header: int = 0,
    delay_s: float = 0.0,
) -> Floats:
    """Return the ideal completion times of flows of these volumes, in seconds.

    Parameters
    ----------
    volume_bytes : array-like
        Volume of each flow in bytes.
    paths : IdlePaths
        Path of each flow (see `idle_paths`).
    rate_bps, delay_s : float
        Rate in bit/s and propagation delay in seconds of a cable; levels of cables may multiply
        them.
    mtu : int
        Size of the largest IP packet in bytes.
    header : int
        Size of the routing's header between Ethernet and IP, in bytes.

    >>> rate_bps = 1514 * 8  # 1 s per full frame
    >>> two_cables = IdlePaths(*(numpy.array([value, value]) for value in (2.0, 1.0, 1.0)))
    >>> idle_network_completion_s([1448, 2896], two_cables, rate_bps, 1500).tolist()
    [2.0, 3.0]
    """
    volume = numpy.asarray(volume_bytes, numpy.float64)
    most = mtu - TCP_IP_BYTES
    overhead = ETHERNET_BYTES + header + TCP_IP_BYTES
    on_cable = volume + numpy.ceil(volume / most) * overhead
    first = numpy.minimum(volume, most) + overhead
    bits = 8 * (on_cable / paths.rates + first * paths.others)
    found: Floats = bits / rate_bps + paths.delays * delay_s
    return found


def computed_routes(topology: Topology, routing: str, pairs: Sequence[tuple[int, int]]) -> Routes:
    """Return the links of each pair's path, as computed by the routing alone.

    Raises PillarboxError if a pair has no path.
    """
    different = sorted(set(pairs))
    paths = static_paths(topology, routing, different)
    require(None not in paths, f"routing {routing} has no path for some flows of {topology.spec}")
    row_of = {pair: row for row, pair in enumerate(different)}
    return routes_of(topology, paths).rows(numpy.array([row_of[pair] for pair in pairs], int))
