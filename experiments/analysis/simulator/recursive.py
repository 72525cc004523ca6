"""DCell's and FiConn's ways for arrays of flows: the rule of hosts/base/recursive.py, compiled."""

from __future__ import annotations

from typing import Any

import numpy

from experiments.analysis.simulator.compiled import native
from hosts.base.recursive import Nested, write_hops


def arrays(net: Nested) -> Nested:
    """Return the same in arrays, of which numba needs no other code for another level k."""
    return Nested(*(numpy.array(column, numpy.int64) for column in net))  # type: ignore[arg-type]


@native
def fill(net: Nested, sources: Any, destinations: Any, ports: Any, peers: Any, counts: Any) -> None:
    """Write the hops of each flow; see `experiments.analysis.simulator.hops`."""
    stack = numpy.empty((3, len(net.sizes)), numpy.int64)
    room = stack[0], stack[1], stack[2]
    for flow in range(len(sources)):
        ends = sources[flow], destinations[flow]
        counts[flow] = write_hops(net, *ends, room, ports[flow], peers[flow])
