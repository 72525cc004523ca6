"""DCell's and FiConn's way, compiled: over the one cable between two members, and on from there.

The rule is that of `hosts.base.recursive`: go to the near end of the cable, over it, and on to the
destination. Here the near ends on the way stand on a stack, so that none is computed twice.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy

MOST_LEVELS = 16


@numba.njit(cache=True, nogil=True)
def fill(
    sizes: Any,
    steps: Any,
    offsets: Any,
    port_of: Any,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    """Write the hops of each flow.

    Parameters
    ----------
    sizes : array
        Servers of a member, by level.
    steps, offsets : arrays
        By level: server ``rank * step + offset`` of a member has the cable to its rank-th other.
    port_of : array
        The port of each level.
    sources, destinations, ports, peers, counts : arrays
        See `experiments.analysis.simulator.hops`.
    """
    # On the stack: the near end of a cable, its far end and level; at the bottom the destination.
    near = numpy.empty(MOST_LEVELS, numpy.int64)
    far, levels = numpy.empty_like(near), numpy.empty_like(near)
    for flow in range(len(sources)):
        here, hops, depth = sources[flow], 0, 0
        near[0] = destinations[flow]
        while True:
            target = near[depth]
            if here == target:
                if depth == 0:
                    break
                here, level = far[depth], levels[depth]
                depth -= 1
            else:
                level = 0
                while here // sizes[level] != target // sizes[level]:
                    level += 1
                if level:
                    size, whole = sizes[level - 1], sizes[level]
                    base = here // whole * whole
                    a, b = (here - base) // size, (target - base) // size
                    step, offset = steps[level], offsets[level]
                    depth += 1
                    near[depth] = base + a * size + (b - (b > a)) * step + offset
                    far[depth] = base + b * size + (a - (a > b)) * step + offset
                    levels[depth] = level
                    continue
                here = target
            ports[flow, hops] = port_of[level]
            peers[flow, hops] = here
            hops += 1
        counts[flow] = hops
