"""Completion time of a flow in an idle network, the reference of its slowdown.

A flow of V bytes is split into frames that each deliver up to ``mtu - 52`` bytes and have an
overhead of ``66 + header`` bytes (see `ideal`). On a path of H cables, with the slowest one's
rate, ::

    on the cable = V + frames x overhead
    alone = max(on the cable - burst, largest frame) x 8 / rate + H x delay

A port of a lab is a token bucket, not a serial line: an idle port forwards a burst immediately
(`experiments.models.port_bursts.burst_bytes`), and packets do not queue at the ports after the
first. In a simulation the burst is 0. The duration of flows smaller than the burst is the latency
of the machine's programs, and their slowdown measures waiting for other flows, not the cable's
quality.

The time includes no handshake, no slow start and no wait for acknowledgements: with delays of
milliseconds a flow takes longer even in an idle network, and its slowdown is then above 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from numpy.typing import ArrayLike

from experiments.models.arrays import Floats
from experiments.models.fluid.directed_links import (
    link_factors,
    path_minima,
    path_sums,
    routes_of,
)
from experiments.models.fluid.ideal import ETHERNET_BYTES, TCP_IP_BYTES, static_paths
from topos.base.errors import require
from topos.base.topology import Topology


def idle_network_completion_s(
    volume_bytes: ArrayLike,
    cables: ArrayLike,
    rate_bps: ArrayLike,
    mtu: int,
    header: int = 0,
    delay_s: float = 0.0,
    burst_bytes: ArrayLike = 0.0,
) -> Floats:
    """Return the completion times in an idle network of flows of these volumes, in seconds.

    Parameters
    ----------
    volume_bytes, cables : array-like
        Volume of each flow in bytes, and number of cables on its path, each counted by the delay of
        its level.
    rate_bps : float or array
        Rate of every cable in bit/s; for each flow that of its slowest cable.
    mtu : int
        Size of the largest IP packet in bytes.
    header : int
        Size of the routing's header between Ethernet and IP, in bytes.
    delay_s : float
        Propagation delay of every cable in seconds.
    burst_bytes : float or array
        Burst that an idle port, or the slowest of each flow, forwards immediately, in bytes.

    >>> rate_bps = 1514 * 8  # 1 s per full frame
    >>> idle_network_completion_s([1448, 2896], [2, 2], rate_bps, 1500).tolist()
    [1.0, 2.0]
    """
    volume = numpy.asarray(volume_bytes, numpy.float64)
    count = numpy.asarray(cables, numpy.float64)
    most = mtu - TCP_IP_BYTES
    overhead = ETHERNET_BYTES + header + TCP_IP_BYTES
    on_cable = volume + numpy.ceil(volume / most) * overhead
    largest = numpy.minimum(volume, most) + overhead
    rate, burst = (numpy.asarray(value, numpy.float64) for value in (rate_bps, burst_bytes))
    found: Floats = numpy.maximum(on_cable - burst, largest) * 8 / rate + count * delay_s
    return found


class IdlePaths(NamedTuple):
    """Paths of flows in an idle network, for `idle_network_completion_s`."""

    cables: Floats  # number of cables of each path, each counted by the delay of its level
    rates: Floats  # rate of the slowest cable of each path, in units of the network's rate


def idle_paths(topology: Topology, routing: str, pairs: Sequence[tuple[int, int]]) -> IdlePaths:
    """Return the cables on each pair's path, as computed by the routing alone.

    >>> import topos
    >>> bcube = topos.parse("bcube,4,1,rates=9:2,delays=1:5")
    >>> [column.tolist() for column in idle_paths(bcube, "bcube", [(0, 1), (0, 5)])]
    [[2.0, 12.0], [9.0, 2.0]]
    """
    different = sorted(set(pairs))
    paths = static_paths(topology, routing, different)
    require(None not in paths, f"routing {routing} has no path for some flows of {topology.spec}")
    routes = routes_of(topology, paths)
    delays, rates = (
        link_factors(topology, factors)
        for factors in (topology.factors.delays, topology.factors.rates)
    )
    row_of = {pair: row for row, pair in enumerate(different)}
    rows = [row_of[pair] for pair in pairs]
    return IdlePaths(path_sums(routes, delays)[rows], path_minima(routes, rates)[rows])
