"""How long a flow takes that has the network to itself: what its slowdown is relative to.

A flow of V bytes is cut into frames that each deliver up to ``mtu - 52`` bytes and have ``66 +
header`` more (see `ideal`). On a path of H cables, all of the same rate, ::

    on the cable = V + frames x overhead
    alone = max(on the cable - burst, largest frame) x 8 / rate + H x delay

A port of a lab is a token bucket and no serial line: at rest it lets a burst pass at once
(`experiments.linux.shaping.burst_bytes`), and nothing waits at the ports behind the first. In a
simulation the burst is 0. Flows smaller than the burst take what the machine's programs take, and
their slowdown says how long others made them wait, not how good the cable is.

There is no handshake in it, no slow start and no acknowledgement that is waited for: with delays of
milliseconds a flow alone takes longer, and its slowdown says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import ArrayLike, NDArray

from experiments.analysis.fluid.directed_links import links_of
from experiments.analysis.fluid.ideal import (
    ETHERNET_BYTES,
    TCP_IP_BYTES,
    static_paths,
)
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]


def alone_s(
    volume_bytes: ArrayLike,
    cables: ArrayLike,
    rate_bps: float,
    mtu: int,
    header: int = 0,
    delay_s: float = 0.0,
    burst_bytes: float = 0.0,
) -> Floats:
    """Return the time that flows of these volumes take alone, over so many cables.

    Parameters
    ----------
    volume_bytes, cables : array-like
        Of each flow.
    rate_bps : float
        Of every cable.
    mtu : int
        The largest IP packet.
    header : int
        What the routing puts between the Ethernet header and the packet.
    delay_s : float
        Of every cable.
    burst_bytes : float
        That a port at rest lets pass at once.

    >>> alone_s([1448, 2896], [2, 2], 1514 * 8, 1500).tolist()  # frames of a second each
    [1.0, 2.0]
    """
    volume = numpy.asarray(volume_bytes, numpy.float64)
    count = numpy.asarray(cables, numpy.float64)
    most = mtu - TCP_IP_BYTES
    overhead = ETHERNET_BYTES + header + TCP_IP_BYTES
    on_cable = volume + numpy.ceil(volume / most) * overhead
    largest = numpy.minimum(volume, most) + overhead
    found: Floats = numpy.maximum(on_cable - burst_bytes, largest) * 8 / rate_bps + count * delay_s
    return found


def cables_of(topology: Topology, routing: str, pairs: Sequence[tuple[int, int]]) -> Any:
    """Return over how many cables each pair's path leads, as the routing alone has it.

    >>> import topos
    >>> cables_of(topos.parse("bcube,4,1"), "bcube", [(0, 1), (0, 5)]).tolist()
    [2, 4]
    """
    different = sorted(set(pairs))
    paths = static_paths(topology, routing, different)
    require(None not in paths, f"{routing} has no path for some flows of {topology.spec}")
    long = {
        pair: len(links_of(topology, path))
        for pair, path in zip(different, paths, strict=True)
        if path is not None
    }
    return numpy.array([long[pair] for pair in pairs], numpy.int64)
